"""A pair shows what is away, and no longer than it is away: health, status, metrics and facts say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.site.facts import own_facts
from gateway.site.supervisor import Supervisor
from storage.log.segment import HEADER_BYTES
from switchover.roles.table import Role
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from twinlog.cli.status import blockers
from twinlog.errors import TwinlogError


def shown(pair: Pair) -> dict[str, Any]:
    """The cluster documents of both sites, as an operator's machine gets them."""
    return {name: msgspec.to_builtins(one.service.cluster.document()) for name, one in pair.running.items()}


def says_well(pair: Pair) -> bool:
    return blockers(shown(pair)) == []


def why(line: Any) -> str:
    """Says why a site serves less, as its log line does; empty for other lines."""
    return str(line["why"] or "") if line["event"] == "serves" else ""


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """All that is logged from before the pair opens: a site logs what it serves only when that changes."""
    with capture_logs() as captured:
        yield captured


async def test_a_disk_that_hangs_holds_up_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room on it is unknown then: the preflight of a takeover would have waited for it for ever."""
    async def never() -> int:
        await asyncio.Event().wait()
        raise AssertionError

    async with open_pair(tmp_path) as pair:
        monkeypatch.setattr("gateway.site.facts.LOOK_TIMEOUT_S", 0.5)
        b = site(pair, "b")
        monkeypatch.setattr(b, "parts", replace(b.parts, free_bytes=never))
        async with asyncio.timeout(60):
            assert (await own_facts(b)).free_bytes is None


async def test_a_standbys_dfs_that_is_gone_is_seen_everywhere_and_is_over_when_it_is_back(
    tmp_path: Path, logs: list[Any]
) -> None:
    async with open_pair(tmp_path, deadline_s=3.0) as pair:
        await put(pair, "a", 1, "x")
        a = pair.running["a"].service.cluster
        await pair.until(lambda: a.serving().writes and a.figures().get("mode_sync") == 1)
        pair.faults["a"].remote_down = True
        opened = len(logs)
        with pytest.raises(TwinlogError):
            await put(pair, "a", 2, "y")
        await pair.until(lambda: not a.serving().reads)
        await pair.until(lambda: any("nothing reaches its remote log" in why(line) for line in logs[opened:]))
        serving, document, figures, facts = a.serving(), shown(pair)["a"], a.figures(), await own_facts(site(pair, "a"))
        assert (serving.reads, serving.writes) == (False, False)
        assert "injected" in str(serving.why)
        assert "`twinlog degrade`" in str(serving.do)
        assert document["serving"]["why"] == serving.why
        assert document["at_risk"] == {"records": 0, "exact": False}, "the other site has applied it; the log may be gone"
        assert (figures["serves_writes"], figures["serves_reads"], figures.get("mode_sync")) == (0, 0, None)
        assert (facts.serves_writes, facts.serves_not) == (False, serving.why)
        line = next(line for line in logs[opened:] if "nothing reaches its remote log" in why(line))
        assert (line["log_level"], line["writes"]) == ("warning", False)
        assert any("nothing reaches its remote log" in said and "`twinlog degrade`" in said for said in blockers(shown(pair)))
        before = len(logs)
        pair.faults["a"].remote_down = False
        await pair.until(lambda: a.serving().writes and says_well(pair))
        await pair.until(lambda: any(line["event"] == "serves" and line["writes"] for line in logs[before:]))
        assert a.figures()["mode_sync"] == 1


@pytest.mark.parametrize("has_looked", [False, True], ids=["before its first look", "between two looks"])
async def test_an_active_that_stops_serving_before_its_log_said_that_it_serves_warns(
    tmp_path: Path, logs: list[Any], has_looked: bool
) -> None:
    """On a busy machine the first look at itself came after the lease had run out, and was logged as that of a boot."""
    async with open_pair(tmp_path, deadline_s=3.0) as pair:
        running = pair.running["a"]
        looking = Supervisor(
            running.site, run_plan=running.operations.run_own, undo_again=running.operations.undo_again,
            go_on=running.operations.go_on, is_busy=lambda: False,
        )
        if has_looked:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(running.site, "active_epoch", None)
                patch.setattr(running.site, "role", Role.CLOSED)
                await looking._tell_changes()
            assert [line["log_level"] for line in logs if "is CLOSED" in why(line)][-1] == "info"
        pair.faults["a"].remote_down = True
        await pair.until(lambda: not running.service.cluster.serving().reads)
        begun = len(logs)
        await looking._tell_changes()
        said = [line["log_level"] for line in logs[begun:] if "nothing reaches its remote log" in why(line)]
        assert said == ["warning"]
        await looking._tell_changes()
        assert [line["event"] for line in logs[begun:]].count("serves") == 1


async def test_what_cannot_be_trimmed_or_renewed_is_said_no_longer_than_it_is_so(tmp_path: Path) -> None:
    """An error of the background stays until that work succeeds: minutes later it was still on the screen."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        pair.faults["a"].coordinator_down = True
        await pair.until(lambda: any("does not reach the coordinator" in said for said in blockers(shown(pair))))
        assert pair.running["a"].service.cluster.serving().writes, "a synchronous active needs none"
        pair.faults["a"].coordinator_down = False
        await pair.until(lambda: says_well(pair))
        pair.faults["a"].remote_down = True
        await pair.until(lambda: not pair.running["a"].service.cluster.serving().writes)
        await pair.until(lambda: any(one["about"] == "trimming" for one in shown(pair)["a"]["troubles"]))
        pair.faults["a"].remote_down = False
        await pair.until(lambda: says_well(pair))


async def test_a_damaged_segment_is_a_finding_of_its_own_and_a_restart_ends_it(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        pair.cut = True  # so that nothing is trimmed yet
        for key in range(5):
            await put(pair, "a", key, "x")
        await pair.operate("a", "degrade")
        left = next(path for path in (tmp_path / "b" / "dfs" / "test" / "0").glob("0*/*") if not path.name.startswith("."))
        data = bytearray(left.read_bytes())
        data[HEADER_BYTES + 40] ^= 0xFF
        left.write_bytes(bytes(data))
        pair.cut = False

        def said() -> list[str]:
            return [text for text in blockers(shown(pair)) if "is damaged, and cannot be trimmed" in text]

        await pair.until(lambda: said())
        assert "restart the gateway of site a" in said()[0]
        assert left.name in said()[0]
        await pair.until(lambda: pair.running["a"].service.cluster.serving().writes)
        await pair.stop("a")
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE" and not said() and not left.exists())
        await pair.until(lambda: pair.running["a"].operations.running_id is None)
        assert (await pair.operate("a", "resync")).state == "succeeded"
        await pair.until(lambda: says_well(pair))


async def test_a_disk_that_hangs_is_no_healthy_active(tmp_path: Path) -> None:
    async with open_pair(tmp_path, deadline_s=0.5) as pair:
        pair.faults["a"].fail_local = 1_000
        pair.faults["a"].hold_local.clear()
        with pytest.raises(TwinlogError):
            await put(pair, "a", 1, "x")
        a = pair.running["a"].service.cluster
        await pair.until(lambda: not a.serving().writes)
        pair.faults["a"].fail_local = 0
        pair.faults["a"].hold_local.set()
        await pair.until(lambda: a.serving().writes and says_well(pair))


async def test_a_pair_whose_coordinator_has_lost_it_is_not_shown_as_whole(tmp_path: Path) -> None:
    """It serves, and the other site could not take over: `twinlog status` ended with 0, and `twinlog advise` with 1."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: says_well(pair))
        await pair.lose_register()
        for known in ("that site a has open", "that site b follows"):  # the active may be lost with it: then b alone says so
            said = f"the register has no record of the pair {known}, so site b could not take over"
            await pair.until(lambda said=said: any(said in one for one in blockers(shown(pair))))
        assert (await put(pair, "a", 2, "y")).mode == "sync"
