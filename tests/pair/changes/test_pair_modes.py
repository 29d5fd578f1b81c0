"""Changes of mode that fail half-way: a lost answer of the coordinator, a remote log that breaks then, a crash in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import PINNED
from remote_log.fencing.reading import segments_of
from switchover.plans import follow
from switchover.register.port import PairState, update
from switchover.register.transitions import begin_plan
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, coordinator_value, epoch, open_pair, put, rows, site
from twinlog.errors import OutcomeUnknown, Unavailable


def lose_answer(pair: Pair, name: str, mode: str) -> list[str]:
    """The next change of the coordinator's value to `mode` takes place, and the site hears that it does not answer."""
    coordinator: Any = site(pair, name).parts.coordinator
    while hasattr(coordinator, "_door"):  # the register itself, where commands and updates meet
        coordinator = coordinator._door
    compare_and_set, lost = coordinator.compare_and_set, list[str]()

    async def losing(expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        before = await coordinator.read()
        value: PairState = await compare_and_set(expected, new, blind=blind)
        if not lost and before.mode != mode and new.mode == mode:
            lost.append(mode)
            raise Unavailable("injected: the answer was lost", retry_after_s=0)
        return value

    coordinator.compare_and_set = losing
    return lost


async def test_a_resync_that_waits_for_a_site_which_is_gone_gives_up_and_the_pair_resyncs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "RESYNC_STALL_S", 0.5)
    async with open_pair(tmp_path) as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        await pair.operate("a", "degrade")
        await pair.stop("b")
        await put(pair, "a", 1, "alone")
        ended = await pair.operate("a", "resync")
        assert ended.error is not None
        assert (ended.state, ended.error.code) == ("failed", "refused"), ended
        assert "the other site's storage, and nothing has moved" in ended.error.message
        assert pair.role("a") == "DOWNGRADE_ACTIVE"
        await pair.start("b")
        await pair.until(lambda: pair.role("a") == "ACTIVE")


async def test_after_a_resync_with_a_lost_answer_nothing_is_acknowledged_by_the_local_log_alone(tmp_path: Path) -> None:
    """The coordinator says sync: a takeover would be allowed, and would not know of it."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        await put(pair, "a", 1, "async")
        lost = lose_answer(pair, "a", "sync")
        ended = await pair.operate("a", "resync")
        assert lost == ["sync"]
        if (await coordinator_value(pair, "a")).mode == "sync":
            pair.cut = pair.faults["a"].remote_down = True
            with pytest.raises(OutcomeUnknown):
                await put(pair, "a", 2, "not in both logs", deadline_s=0.3)
            pair.cut = pair.faults["a"].remote_down = False
        assert ended.state in ("failed", "succeeded")
        assert (await pair.operate("a", "resync")).state == "succeeded"
        assert (await put(pair, "a", 3, "sync")).mode == "sync"
        assert (await coordinator_value(pair, "a")).mode == "sync"
        assert pair.role("a") == "ACTIVE"


async def test_a_degrade_with_a_lost_answer_can_be_taken_back_by_a_resync(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        lost = lose_answer(pair, "a", "async")
        await pair.operate("a", "degrade")
        assert lost == ["async"]
        assert (await pair.operate("a", "resync")).state == "succeeded"
        assert (await put(pair, "a", 1, "x")).mode == "sync"
        assert (await coordinator_value(pair, "a")).mode == "sync"


async def test_a_resync_shows_what_it_waits_for(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        await put(pair, "a", 1, "alone")
        await pair.crash("b")
        operations = pair.running["a"].operations
        started = await operations.start("resync", None, {}, False, "test")
        async with asyncio.timeout(30):
            async for shown in operations.follow(started.id):
                if (shown.steps[0].detail or {}).get("waiting_for") == "the other site's storage":
                    break
        await operations.abort(started.id, "test")


async def tightening(pair: Pair) -> asyncio.Task[None]:
    """a is on its way back to sync and has tightened its rule, but the remote log hangs: writes wait for it."""
    await pair.operate("a", "degrade")
    pair.cut = True
    resyncing = asyncio.ensure_future(epoch(pair, "a").resync(by_command=True))
    await pair.until(lambda: epoch(pair, "a").core.mode is CommitMode.CATCHING)
    pair.faults["a"].hold_remote.clear()
    assert (await put(pair, "a", 1, "caught")).mode == "async"
    pair.cut = False
    await pair.until(lambda: epoch(pair, "a").core.mode is CommitMode.TIGHTENING)
    return resyncing


async def test_the_coordinator_is_told_that_a_degrade_with_a_lost_answer_has_not_taken_place(tmp_path: Path) -> None:
    """Found by the simulator (seed 716): else nobody may take over without force, though nothing could be lost."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        lost = lose_answer(pair, "a", "async")
        assert (await pair.operate("a", "degrade")).state == "failed"
        assert lost == ["async"]
        async with asyncio.timeout(120):
            while (await coordinator_value(pair, "a")).mode != "sync":  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a poll of observable state, bounded by the time-out
        assert (await put(pair, "a", 1, "both logs")).mode == "sync"
        assert pair.role("a") == "ACTIVE"


async def test_a_degrade_does_not_wait_for_a_resync_that_hangs(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        resyncing = await tightening(pair)
        writing = asyncio.ensure_future(put(pair, "a", 2, "waits"))
        degrading = asyncio.ensure_future(pair.operate("a", "degrade"))
        async with asyncio.timeout(120):
            await asyncio.gather(resyncing, return_exceptions=True)
        pair.faults["a"].hold_remote.set()  # what is on its way to the DFS is waited for
        async with asyncio.timeout(120):
            assert (await degrading).state == "succeeded"
        assert (await writing).mode == "async"
        assert (await coordinator_value(pair, "a")).mode == "async"


async def test_the_policy_degrades_also_while_a_resync_hangs(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None, degrade_after_s=1.0) as pair:
        resyncing = await tightening(pair)
        assert (await put(pair, "a", 2, "waits")).mode == "async"
        await asyncio.gather(resyncing, return_exceptions=True)
        assert (await coordinator_value(pair, "a")).mode == "async"


async def test_a_resync_ends_with_its_epoch_and_the_site_follows_the_next_one(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        pair.cut = True
        asked = await pair.running["a"].operations.start("resync", None, {}, False, "test")
        await pair.until(lambda: epoch(pair, "a").modes.waiting_for == "the other site's storage")
        ended = await pair.force_failover("b")
        assert ended.state == "succeeded", ended
        pair.cut = False
        await pair.until(lambda: pair.role("a") == "STANDBY")
        assert (await pair.running["a"].operations.get(asked.id)).state == "failed"


async def test_the_policy_degrades_when_the_remote_log_is_gone_and_says_so_at_once(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None, degrade_after_s=0.6) as pair:
        pair.faults["a"].remote_down = True
        assert (await put(pair, "a", 1, "x")).mode == "async"
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE")
        assert (await put(pair, "a", 2, "y")).mode == "async"


async def test_the_policy_does_not_degrade_for_what_is_over_when_its_turn_comes(tmp_path: Path) -> None:
    """Found by the simulator (seed 5044892): it had waited for another change of mode, and all was well again by then."""
    async with open_pair(tmp_path, resync_after_s=None, degrade_after_s=3.0) as pair:  # longer than a busy disk makes it wait
        active = epoch(pair, "a")
        async with active._mode_lock:
            pair.faults["a"].hold_remote.clear()
            await pair.until(lambda: active.modes.degrades_waiting == 1)
            pair.faults["a"].hold_remote.set()
            assert (await put(pair, "a", 1, "both logs")).mode == "sync"
        await pair.until(lambda: active.modes.degrades_waiting == 0)
        assert (pair.role("a"), active.core.mode) == ("ACTIVE", CommitMode.SYNC)


async def test_a_command_that_failed_does_not_keep_a_later_degrade_from_going_back_by_itself(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=0.1, degrade_after_s=0.6) as pair:
        lose_answer(pair, "a", "async")
        assert (await pair.operate("a", "degrade")).state == "failed"
        pair.faults["a"].hold_remote.clear()
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE")
        pair.faults["a"].hold_remote.set()
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        assert site(pair, "a").parts.engine.meta(PINNED) is None


async def test_a_degrade_that_is_refused_leaves_no_pin(tmp_path: Path) -> None:
    """A later degrade by the policy would wait for a command to resync: of the closed site, and of the open one."""
    async with open_pair(tmp_path) as pair:
        coordinator: Any = site(pair, "b").parts.coordinator
        await update(coordinator, lambda state: begin_plan(state, "other", "b", "takeover", 1))
        ended = await pair.operate("a", "degrade")
        assert (ended.error.code, site(pair, "a").parts.engine.meta(PINNED)) == ("plan-superseded", None)
        await pair.crash("a")
        await pair.start("a")
        await pair.until(lambda: site(pair, "a").pair_state is not None)
        ended = await pair.operate("a", "degrade")
        assert (ended.error.code, site(pair, "a").parts.engine.meta(PINNED)) == ("plan-superseded", None), ended.error


async def test_the_policy_does_not_unbind_what_a_person_has_degraded(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        assert (await pair.operate("a", "degrade")).state == "succeeded"
        await epoch(pair, "a").degrade(by_command=False)
        await epoch(pair, "a").resync(by_command=False)
        assert pair.role("a") == "DOWNGRADE_ACTIVE"
        assert (epoch(pair, "a").auto_resync, site(pair, "a").parts.engine.meta(PINNED)) == (False, b"1")


async def test_what_a_degrade_acknowledged_is_quarantined_even_if_the_site_dies_at_once(tmp_path: Path) -> None:
    """It was written while the mode was sync, and acknowledged before anything in the log said otherwise."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        pair.cut = pair.faults["a"].remote_down = True
        remote = epoch(pair, "a").remote
        assert remote is not None
        writing = asyncio.ensure_future(put(pair, "a", 1, "acknowledged"))
        await pair.until(lambda: epoch(pair, "a").core.local > epoch(pair, "a").core.committed)

        async def hangs() -> None:
            await asyncio.Event().wait()

        remote.close = hangs  # type: ignore[method-assign]
        pair.faults["a"].fail_local = 10**6  # no mark of the change reaches the log
        degrading = asyncio.ensure_future(epoch(pair, "a").degrade(by_command=True))
        assert (await writing).mode == "async"
        await pair.crash("a")
        degrading.cancel()
        await asyncio.gather(degrading, return_exceptions=True)
        ended = await pair.force_failover("b")
        assert ended.state == "succeeded", ended
        pair.cut = False
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        await pair.until(lambda: pair.running["a"].operations.running_id is None)
        assert await rows(pair, "a") == await rows(pair, "b") == {}
        manifests = [json.loads(path.read_text()) for path in (pair.root / "a" / "quarantine").glob("*.json")]
        assert [key["operation"] for manifest in manifests for key in manifest["keys"]] == ["UPSERT"]
        assert (await pair.operate("a", "rejoin", "a", merge=True, put_absent=True)).state == "succeeded"
        assert await rows(pair, "b") == {1: "acknowledged"}


async def test_nothing_waits_for_a_round_of_the_trimmer_whose_dfs_does_not_answer(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        pair.faults["a"].hold_deletes.clear()
        for key in range(12):
            await put(pair, "a", key, Random(key).randbytes(15_000).hex())  # what no compression makes small
        await pair.until(lambda: pair.faults["a"].waiting_deletes == 1)
        async with asyncio.timeout(120):
            assert (await pair.operate("a", "degrade")).state == "succeeded"
            assert (await pair.operate("a", "resync")).state == "succeeded"
            await site(pair, "a").parts.cursors.register("reader", "r1")
            assert (await put(pair, "a", 9, "both logs")).mode == "sync"
        assert pair.faults["a"].waiting_deletes == 1


async def test_the_trimmer_takes_no_segment_of_a_writer_that_is_being_made_for_one_left_behind(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None, trim_interval_s=3600.0) as pair:
        await pair.operate("a", "degrade")
        pair.faults["a"].hold_remote.clear()  # the header of the new segment
        resyncing = asyncio.ensure_future(epoch(pair, "a").resync(by_command=True))
        dfs, layout = site(pair, "a").parts.peer_dfs, site(pair, "a").layout
        mine = epoch(pair, "a").epoch
        async with asyncio.timeout(120):
            while all([await dfs.is_closed(path) for path in await segments_of(dfs, layout, mine)]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a poll of observable state, bounded by the time-out
        await epoch(pair, "a").trim()
        assert pair.faults["a"].recovered == []
        pair.faults["a"].hold_remote.set()
        await resyncing
        assert (await put(pair, "a", 1, "both logs")).mode == "sync"
