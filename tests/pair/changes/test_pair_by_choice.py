"""A pair that is asynchronous by choice (policy performance): every answer says so, and every rule of that mode holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.service.documents import ReceiptDocument
from switchover.rejoin import ASYNC_EPOCH
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, coordinator_value, epoch, holds, put, site
from twinlog.errors import Refused


def choose(pair: Pair, policy: str) -> None:
    """Both sites have `policy` from their next start on."""
    for name in "ab":
        pair.settings[name] = {"policy": policy}


async def start_both(pair: Pair, role: str) -> None:
    for name in "ab":
        await pair.start(name)
    await pair.until(lambda: pair.role("a") == role and pair.role("b") == "STANDBY")
    await pair.until(lambda: all(one.operations.running_id is None for one in pair.running.values()))


@asynccontextmanager
async def pair_of(root: Path, policy: str, role: str, *, has_coordinator: bool = True) -> AsyncIterator[Pair]:
    pair = Pair(root, has_coordinator=has_coordinator)
    choose(pair, policy)
    try:
        await start_both(pair, role)
        await pair.running["a"].service.tables.create(TABLE)
        yield pair
    finally:
        await pair.stop_all()


async def outcome(pair: Pair, name: str, receipt: str) -> ReceiptDocument:
    return await pair.running[name].service.rows.receipt(receipt)


@pytest.mark.parametrize("has_coordinator", [True, False])
async def test_it_opens_asynchronously_and_says_so_everywhere(tmp_path: Path, has_coordinator: bool) -> None:
    async with pair_of(tmp_path, "performance", "DOWNGRADE_ACTIVE", has_coordinator=has_coordinator) as pair:
        written = await put(pair, "a", 1, "x")
        assert written.mode == "async"
        assert (await outcome(pair, "a", written.receipt)).mode == "async"
        assert (await coordinator_value(pair, "a")).mode == "async"
        assert site(pair, "a").parts.engine.meta(ASYNC_EPOCH) is None, "it has opened so: nothing was degraded"
        document = pair.running["a"].service.cluster.document()
        assert (document.mode, document.policy, document.resync) == ("async", "performance", None)
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert await holds(pair, "b", {1: "x"}), "it is shipped all the same"


async def test_it_never_becomes_synchronous_and_refuses_a_resync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = [0], ActiveEpoch._resync_when_well

    async def counted(epoch: ActiveEpoch) -> None:
        await look(epoch)
        looks[0] += 1

    monkeypatch.setattr(ActiveEpoch, "_resync_when_well", counted)
    async with pair_of(tmp_path, "performance", "DOWNGRADE_ACTIVE") as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        with pytest.raises(Refused, match="by choice"):
            await pair.operate("a", "resync")
        enough = looks[0] + 5
        await pair.until(lambda: looks[0] >= enough)  # all is well for longer than a resync would wait
        assert (pair.role("a"), (await coordinator_value(pair, "a")).mode) == ("DOWNGRADE_ACTIVE", "async")
        assert epoch(pair, "a").remote is None, "no remote log is written"


async def test_a_switchover_loses_nothing_and_opens_asynchronously(tmp_path: Path) -> None:
    async with pair_of(tmp_path, "performance", "DOWNGRADE_ACTIVE") as pair:
        await put(pair, "a", 1, "x")
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        assert (await put(pair, "b", 2, "y")).mode == "async"
        assert (pair.role("b"), (await coordinator_value(pair, "b")).mode) == ("DOWNGRADE_ACTIVE", "async")
        assert await holds(pair, "b", {1: "x", 2: "y"})
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))


async def test_a_failover_needs_the_loss_to_be_accepted_and_quarantines_it(tmp_path: Path) -> None:
    async with pair_of(tmp_path, "performance", "DOWNGRADE_ACTIVE") as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        pair.cut = True
        lost = await put(pair, "a", 1, "only at a")
        await pair.crash("a")
        pair.cut = False
        with pytest.raises(Refused, match="have not arrived here"):
            await pair.operate("b", "failover", "b")
        assert (await pair.force_failover("b")).state == "succeeded"
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        rejoined = [one for one in await pair.running["a"].operations.all() if one.kind == "rejoin"]
        assert "quarantine" in str(rejoined[0]), "what was acknowledged is never dropped silently"
        assert (await outcome(pair, "b", lost.receipt)).outcome == "lost"


async def test_another_choice_takes_effect_with_a_restart_in_both_directions(tmp_path: Path) -> None:
    async with pair_of(tmp_path, "protect", "ACTIVE") as pair:
        assert (await put(pair, "a", 1, "x")).mode == "sync"
        for policy, role, mode in (("performance", "DOWNGRADE_ACTIVE", "async"), ("protect", "ACTIVE", "sync")):
            await pair.stop_all()
            choose(pair, policy)
            await start_both(pair, role)
            assert (await put(pair, "a", 2, policy)).mode == mode
            assert (await coordinator_value(pair, "a")).mode == mode
        assert site(pair, "a").active_epoch is not None
