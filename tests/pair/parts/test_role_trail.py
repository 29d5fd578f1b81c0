"""Role changes in the trails of a real pair: those that no operation makes, and those while the other site was dead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.trail.chain import FOLDER, ChainVerifier
from gateway.trail.entry import TrailEntry, Who
from gateway.trail.events import BEGUN, ENDED, FENCES, PEER_CHANGE, RESUMED, ROLE
from tests.pair.changes.test_pair_resume import dies, end_of_failover
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from tests.pair.test_monitor import PairProbe, available, rounds, watcher
from twinlog.errors import LeaseLost


def trail(pair: Pair, name: str) -> list[TrailEntry]:
    """The entries as the files of a site have them, along a chain that is sound."""
    found: list[TrailEntry] = []
    verifier = ChainVerifier(seen=found.append)
    for path in sorted((pair.root / name / FOLDER).iterdir()):
        verifier.file(path.name, path.read_bytes())
    assert not verifier.end().faults
    return found


def roles(pair: Pair, name: str) -> list[dict[str, Any]]:
    """Returns what is said by the lines that no operation made."""
    return [entry.what for entry in trail(pair, name) if entry.event == ROLE and not entry.operation]


def of_peer(pair: Pair, name: str) -> list[tuple[str, str, str]]:
    told = [entry.what for entry in trail(pair, name) if entry.event == PEER_CHANGE]
    return [(what["event"], what["kind"], what["to"]) for what in told]


@asynccontextmanager
async def kept_pair(tmp_path: Path, **changes: Any) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path, keeps_trails=True, **changes) as pair:
        yield pair


async def test_a_degrade_by_the_policy_and_its_end_are_in_the_trails_of_both_sites(tmp_path: Path) -> None:
    async with kept_pair(tmp_path, degrade_after_s=0.5) as pair:
        epoch = site(pair, "a").epoch
        pair.faults["a"].remote_down = True
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE")
        pair.faults["a"].remote_down = False
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        await pair.until(lambda: len(of_peer(pair, "b")) > 1 and of_peer(pair, "b")[-1][1] == "resynced")
        degraded, resynced = roles(pair, "a")[-2:]
        assert (degraded["kind"], degraded["from"], degraded["to"]) == ("downgrade_recorded", "ACTIVE", "DOWNGRADE_ACTIVE")
        assert (degraded["epoch"], degraded["mode"]) == (epoch, "async")
        assert degraded["why"].startswith("the policy available: nothing has proved for")
        assert (resynced["kind"], resynced["to"], resynced["mode"]) == ("resynced", "ACTIVE", "sync")
        assert {entry.who for entry in trail(pair, "a") if entry.event == ROLE} == {Who("site a", "site")}
        assert of_peer(pair, "b")[-2:] == [(ROLE, "downgrade_recorded", "DOWNGRADE_ACTIVE"), (ROLE, "resynced", "ACTIVE")]


async def test_a_fencing_is_in_the_trail_of_the_site_that_fences_and_of_the_one_that_is_fenced(tmp_path: Path) -> None:
    async with kept_pair(tmp_path) as pair:
        old = site(pair, "a").epoch
        pair.cut = True
        assert (await pair.operate("b", "failover", "b", reason="a is cut off")).state == "succeeded"
        await pair.until(lambda: any(what["kind"] == "met_higher_epoch" for what in roles(pair, "a")))
        [fences] = [entry for entry in trail(pair, "b") if entry.event == FENCES]
        assert fences.what["epoch"] == site(pair, "b").epoch > old
        assert "DFS of site b" in fences.what["logs"]
        assert fences.operation
        [fenced] = [what for what in roles(pair, "a") if what["kind"] == "met_higher_epoch"]
        assert (fenced["from"], fenced["to"], fenced["epoch"], fenced["mode"]) == ("ACTIVE", "FENCED", old, "sync")
        assert fenced["why"].startswith("fenced: ")
        pair.cut = False
        await pair.until(lambda: pair.role("a") == "STANDBY")
        await pair.until(lambda: (ENDED, "failover", "b") in of_peer(pair, "a"))
        await pair.until(lambda: (ROLE, "met_higher_epoch", "FENCED") in of_peer(pair, "b"))


async def test_a_failover_without_the_other_site_is_in_its_trail_once_it_follows(tmp_path: Path) -> None:
    async with kept_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        assert (await pair.operate("b", "failover", "b", reason="a is dead")).state == "succeeded"
        await pair.stop("b")  # and what b has to tell outlives it
        await pair.start("b")
        await pair.until(lambda: pair.role("b") in ("ACTIVE", "DOWNGRADE_ACTIVE"))
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY")
        await pair.until(lambda: (ENDED, "failover", "b") in of_peer(pair, "a"))
        assert of_peer(pair, "a").count((BEGUN, "failover", "b")) == 1
        [ended] = [entry for entry in trail(pair, "b") if entry.event == ENDED and entry.what["kind"] == "failover"]
        [told] = [entry for entry in trail(pair, "a") if entry.event == PEER_CHANGE and entry.what["number"] == ended.number]
        assert told.operation == ended.operation


async def test_an_epoch_that_ends_by_an_error_says_which(tmp_path: Path) -> None:
    async with kept_pair(tmp_path) as pair:
        old = site(pair, "a").epoch
        site(pair, "a")._epoch_ended(LeaseLost("the lease of the segment was recovered by somebody"))
        await pair.until(lambda: pair.role("a") == "ACTIVE" and site(pair, "a").epoch > old)
        [halted] = [what for what in roles(pair, "a") if what["kind"] == "halted"]
        assert (halted["from"], halted["to"], halted["epoch"]) == ("ACTIVE", "CLOSED", old)
        assert halted["why"] == "lease-lost: the lease of the segment was recovered by somebody"


async def test_a_start_that_resumes_a_plan_says_so_by_the_site_itself(tmp_path: Path) -> None:
    async with kept_pair(tmp_path) as pair:
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.fence.after")
        await pair.start("b")
        ended = await end_of_failover(pair, "b")
        lines = [entry for entry in trail(pair, "b") if entry.operation == ended.id]
        [resumed] = [entry for entry in lines if entry.event == RESUMED]
        assert (resumed.who, resumed.what["attempt"]) == (Who("site b", "site"), 2)
        last = [entry for entry in lines if entry.event == ENDED][-1]
        assert (last.outcome, last.of) == ("done", resumed.number)
        steps = [entry.what["to"] for entry in lines if entry.event == ROLE]
        assert steps[-2:] == ["SWITCHING", "DOWNGRADE_ACTIVE"]


async def test_an_order_of_a_monitor_is_known_by_its_options(tmp_path: Path) -> None:
    async with kept_pair(tmp_path) as pair:
        available(pair)
        watching, _ = watcher(PairProbe(pair))
        await rounds(watching, 5)
        await pair.crash("a")
        await rounds(watching)
        [begun] = [entry for entry in trail(pair, "b") if entry.event == BEGUN and entry.what["kind"] == "failover"]
        assert begun.what["options"]["automatic"] is True
        assert "site a" in begun.what["options"]["reason"]
        await pair.until(lambda: pair.running["b"].operations.running_id is None)
