"""The coordinator and the active are lost together: a way by command, its risk, and the way back to a coordinator for both."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.pair.pair import Pair
from tests.pair.pair_rig import holds, open_pair, put, site
from twinlog.cli.status import blockers
from twinlog.errors import Refused


async def lost_together(pair: Pair) -> None:
    for key in range(3):
        assert (await put(pair, "a", key, "x")).mode == "sync"
    await pair.crash("a")
    pair.faults["b"].coordinator_down = True


def troubles(pair: Pair) -> str:
    document = pair.running["b"].service.cluster.document()
    return " ".join(f"{one.seen}: {one.do}" for one in document.troubles)


async def test_a_forced_failover_goes_on_without_the_coordinator_and_comes_back_to_one(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await lost_together(pair)
        await pair.until(lambda: str(site(pair, "b").waiting_for).startswith("the register: "))
        checks = {one.id: one for one in (await pair.running["b"].operations.checks("failover")).checks}
        assert "--without-coordinator" in checks["coordinator.answers"].fix
        with pytest.raises(Refused, match="accepted as `unknown`"):
            await pair.operate("b", "failover", "b", without_coordinator=True)
        ended = await pair.operate("b", "failover", "b", without_coordinator=True, accept_data_loss="unknown")
        assert ended.state == "succeeded", ended
        assert pair.role("b") == "DOWNGRADE_ACTIVE"
        assert await holds(pair, "b", {0: "x", 1: "x", 2: "x"}), "nothing that was acknowledged synchronously is lost"
        assert (await put(pair, "b", 3, "y")).mode == "async"
        assert "keeps the register itself" in troubles(pair)
        # it is remembered: the old coordinator, back with its old word, is not asked any more
        await pair.stop("b")
        pair.faults["b"].coordinator_down = False
        await pair.start("b")
        await pair.until(lambda: pair.role("b") == "DOWNGRADE_ACTIVE")
        assert (await put(pair, "b", 4, "z")).mode == "async"
        # the old active, started with the old coordinator all the same, does not open beside it
        await pair.start("a")
        await pair.until(lambda: "went back" in str(site(pair, "a").waiting_for))
        assert pair.role("a") == "CLOSED"
        await pair.stop("a")
        # a new coordinator for both
        await pair.stop("b")
        pair.coordinator = "new.db"
        await pair.start("b")
        await pair.until(lambda: "no record of this pair" in str(site(pair, "b").waiting_for))
        ended = await pair.operate("b", "failover", "b", accept_data_loss="unknown")
        assert ended.state == "succeeded", ended
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY")
        await pair.until(lambda: holds(pair, "a", {0: "x", 1: "x", 2: "x", 3: "y", 4: "z"}))
        assert (await pair.operate("b", "resync")).state == "succeeded"
        await pair.until(lambda: blockers({"b": _shown(pair)}) == [])


def _shown(pair: Pair) -> dict[str, object]:
    shown: dict[str, object] = msgspec.to_builtins(pair.running["b"].service.cluster.document())
    return {**shown, "sites": {}}


async def test_a_coordinator_that_answers_is_not_given_up(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        with pytest.raises(Refused, match="the coordinator answers"):
            await pair.operate("b", "failover", "b", without_coordinator=True, accept_data_loss="unknown")
        assert (await pair.operate("b", "failover", "b")).state == "succeeded"
        with pytest.raises(Refused, match="nothing to take over"):
            await pair.operate("b", "failover", "b", without_coordinator=True, accept_data_loss="unknown")
