"""Role changes that stop half-way: whoever dies, is not heard or answers no, the pair opens again, by itself or by command."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from remote_log.dfs.port import Dfs, DfsWriter
from remote_log.fencing.reading import read_frames
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import REPLICATE
from storage.log.frame import Frame
from storage.log.segment import wal_name
from switchover.operations.document import OperationDocument
from switchover.plans.takeover import SwitchoverSettings
from switchover.register.port import PairState
from switchover.register.transitions import renew_lease
from tests.armed_failpoints import ArmedFailpoints
from tests.pair.faults import FaultyDfs, FaultyDfsWriter
from tests.pair.pair import DirectTransport
from tests.pair.pair_rig import Moments, caught_up, coordinator_value, epoch, holds, open_pair, put, rows, site
from twinlog.errors import DfsError, EngineFailed, TwinlogError, Unavailable


async def test_a_failover_to_the_active_itself_changes_nothing(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        ended = await pair.operate("a", "failover", "a")
        assert ended.state == "failed", ended
        assert ended.error.code == "refused"
        assert (await coordinator_value(pair, "a")).switching is None
        assert (await put(pair, "a", 1, "x")).mode == "sync"
        assert (await pair.operate("a", "degrade")).state == "succeeded"


async def test_a_takeover_closes_a_segment_that_the_old_active_made_behind_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old writer creates a segment and then lists the claims: the segment may appear after the last listing of the fence."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        made: list[DfsWriter] = []

        async def read_late(dfs: Dfs, layout: RemoteLayout, epoch: int, *rest: Any, **named: Any) -> list[Frame]:
            if not made:
                made.append(await site(pair, "b").parts.own_dfs.create(layout.segment(1, wal_name(1, 99), 0)))
            return await read_frames(dfs, layout, epoch, *rest, **named)

        monkeypatch.setattr("switchover.activation.activation.read_frames", read_late)
        ended = await pair.operate("b", "failover", "b")
        assert (ended.state, len(made)) == ("succeeded", 1), ended
        assert await holds(pair, "b", {1: "x"})
        with suppress(DfsError):
            await made[0].close()


async def test_a_switchover_comes_close_before_it_stops_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby is far behind: writes go on while it catches up, and stop for the rest only."""
    async with open_pair(tmp_path) as pair:
        object.__setattr__(site(pair, "b").settings, "switchover", SwitchoverSettings(lag_records_max=3))
        call, shipping = DirectTransport.call, asyncio.Event()

        async def held(self: DirectTransport, method: str, message: dict[str, Any], kind: Any, timeout_s: float) -> Any:
            if method == REPLICATE:
                await shipping.wait()
            return await call(self, method, message, kind, timeout_s)

        monkeypatch.setattr(DirectTransport, "call", held)
        for key in range(10):
            await put(pair, "a", key, "x")
        operations = pair.running["b"].operations
        started = await operations.start("switchover", "b", {}, False, "test")

        def states(document: OperationDocument) -> dict[str, str]:
            return {step.name: step.state for step in document.steps}

        async for shown in operations.follow(started.id):
            if states(shown).get("near") == "running" or states(shown)["drain"] != "pending":
                break
        assert (await put(pair, "a", 10, "y")).mode == "sync", "while it waits"
        assert pair.role("a") == "ACTIVE"
        shipping.set()
        async for shown in operations.follow(started.id):
            last = shown
        assert last.state == "succeeded", last
        assert await holds(pair, "b", {key: "x" for key in range(10)} | {10: "y"})


@pytest.mark.parametrize("step", ["drain", "catch_up"])
async def test_a_drained_active_whose_successor_died_opens_again_by_command(tmp_path: Path, step: str) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        dead = ArmedFailpoints(f"plan.switchover.{step}.journaled")
        pair.running["b"].operations._executor._failpoints = dead
        started = await pair.running["b"].operations.start("switchover", "b", {}, False, "test")
        await pair.until(lambda: pair.running["b"].operations.running_id is None)
        assert started.kind == "switchover"
        await pair.crash("b")
        assert pair.role("a") == "DRAINING"
        ended = await pair.operate("a", "failover", "a")
        assert ended.state == "succeeded", ended
        assert (await put(pair, "a", 2, "y")).mode == "sync"
        await pair.start("b")
        await pair.until(lambda: pair.role("b") == "STANDBY" and caught_up(pair, "a", "b"))
        assert await rows(pair, "b") == {1: "x", 2: "y"}


async def test_an_active_whose_undrain_was_lost_opens_again_by_itself(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        engine, reached = site(pair, "b").parts.engine, asyncio.Event()
        flush = engine.flush

        async def hangs() -> int:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        engine.flush = hangs  # type: ignore[method-assign]
        await reached.wait()  # the housekeeping hangs in it, and will not come in between
        reached.clear()
        started = await pair.running["b"].operations.start("switchover", "b", {}, False, "test")
        await reached.wait()
        assert pair.role("a") == "DRAINING"
        pair.cut = True
        ended = await pair.running["b"].operations.abort(started.id)
        assert ended.state == "aborted", ended
        engine.flush = flush  # type: ignore[method-assign]
        pair.cut = False
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        assert (await put(pair, "a", 1, "x")).mode == "sync"


async def test_the_coordinator_goes_away_right_after_it_named_the_active(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.stop("a")
        opened = []

        def lose_coordinator() -> None:
            opened.append(True)
            pair.faults["a"].coordinator_down = True

        pair.failpoints["a"] = Moments({"activation.open": lose_coordinator})
        await pair.start("a")
        await pair.until(lambda: opened)
        await pair.until(lambda: pair.running["a"].operations.running_id is None)
        pair.faults["a"].coordinator_down = False
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        assert (await put(pair, "a", 2, "y")).mode == "sync"


async def test_an_epoch_that_ends_while_the_storage_fails_does_not_leave_the_site_behind(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        engine = site(pair, "a").parts.engine
        flush, failures = engine.flush, list[str]()

        async def fails() -> int:
            if site(pair, "a").ending and not failures:
                failures.append("flush")
                raise EngineFailed("injected")
            return await flush()

        engine.flush = fails  # type: ignore[method-assign]
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        await pair.until(lambda: pair.role("a") == "STANDBY")
        assert failures == ["flush"]


async def test_a_fault_in_the_write_path_ends_the_epoch_and_the_site_opens_again(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        before, engine = epoch(pair, "a").epoch, site(pair, "a").parts.engine
        apply, failures = engine.apply, list[str]()

        async def fails(frames: Any) -> None:
            if not failures:
                failures.append("apply")
                raise RuntimeError("injected")
            await apply(frames)

        engine.apply = fails  # type: ignore[method-assign]
        with pytest.raises(TwinlogError):
            await put(pair, "a", 1, "x")
        await pair.until(lambda: pair.role("a") == "ACTIVE" and epoch(pair, "a").epoch > before)
        assert (await put(pair, "a", 2, "y")).mode == "sync"
        assert await rows(pair, "a") == {1: "x", 2: "y"}


async def test_a_fault_in_the_shipper_does_not_end_replication(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        wal = site(pair, "a").parts.wal
        read, failures = wal.read, list[str]()

        async def fails(*args: Any) -> Any:
            if not failures:
                failures.append("read")
                raise RuntimeError("injected")
            return await read(*args)

        wal.read = fails  # type: ignore[method-assign]
        await put(pair, "a", 1, "x")
        await pair.until(lambda: holds(pair, "b", {1: "x"}))
        assert failures == ["read"]


async def test_a_plan_begins_also_while_the_asynchronous_active_renews_its_lease(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        coordinator: Any = site(pair, "b").parts.coordinator
        compare_and_set, beats = coordinator.compare_and_set, list[int]()

        async def beaten(expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
            if len(beats) < 3:
                state = await coordinator.read()
                beats.append(state.state_id)
                await compare_and_set(state, renew_lease(state, "a", state.epoch))
            value: PairState = await compare_and_set(expected, new, blind=blind)
            return value

        coordinator.compare_and_set = beaten
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "succeeded", ended
        assert len(beats) == 3


async def test_a_takeover_without_the_remote_log_is_refused_and_can_be_forced(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        await pair.stop("b")
        before = epoch(pair, "a").epoch
        await pair.stop("a")
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "ACTIVE" and epoch(pair, "a").epoch > before)
        pair.cut = True
        await put(pair, "a", 1, "x")
        await pair.stop("a")
        folders = [path for path in (pair.root / "b" / "dfs" / "test" / "0").iterdir() if path.name.isdigit()]
        assert folders
        for folder in folders:
            shutil.rmtree(folder)
        await pair.start("b")
        await pair.until(lambda: pair.running["b"].operations.running_id is None)
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "failed", ended
        assert [check["id"] for check in ended.error.fields["checks"]] == ["remote-log.found"]
        ended = await pair.force_failover("b")
        assert ended.state == "succeeded", ended
        assert (await put(pair, "b", 2, "y")).mode == "async"


async def test_a_shipped_batch_under_way_is_finished_before_a_takeover_reads_where_the_storage_stands(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        engine = site(pair, "b").parts.engine
        apply, reached, go_on = engine.apply, asyncio.Event(), asyncio.Event()

        async def held(frames: Any) -> None:
            if not reached.is_set():
                reached.set()
                await go_on.wait()
            await apply(frames)

        engine.apply = held  # type: ignore[method-assign]
        await put(pair, "a", 1, "x")
        await reached.wait()
        replayed = []

        def release() -> None:
            replayed.append(engine.applied.seq)
            go_on.set()

        pair.running["b"].operations._executor._failpoints = Moments({"plan.failover.replay.after": release})
        failing_over = asyncio.ensure_future(pair.force_failover("b"))
        clock = site(pair, "b").parts.clock
        over_s = clock.monotonic_s() + 1.5
        await pair.until(lambda: replayed or clock.monotonic_s() > over_s)
        assert not replayed
        go_on.set()
        ended = await failing_over
        assert ended.state == "succeeded", ended
        assert await rows(pair, "b") == {1: "x"}
        assert (await put(pair, "b", 2, "y")).mode == "async"


async def test_plans_that_fail_again_and_again_are_tried_less_and_less_often(tmp_path: Path) -> None:
    """Each attempt is an operation in the journal, an epoch and a claim, for ever."""
    async with open_pair(tmp_path) as pair:
        supervisor, clock = pair.running["a"].supervisor, site(pair, "a").parts.clock
        await supervisor.stop()
        slept: list[float] = []

        async def fails(kind: str) -> OperationDocument:
            raise Unavailable("injected", retry_after_s=0)

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await asyncio.sleep(0)
            if len(slept) > 40:
                raise asyncio.CancelledError

        supervisor._run_plan = fails
        site(pair, "a")._epoch_ended(EngineFailed("injected"))
        await pair.until(lambda: not site(pair, "a").ending)
        monkey = pytest.MonkeyPatch()
        monkey.setattr(clock, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await supervisor._watch()
        monkey.undo()
        assert slept == sorted(slept)
        assert slept[-1] >= 50 * slept[0]
        assert slept[-1] <= 10


async def test_where_the_storage_is_is_told_to_operators_only(tmp_path: Path) -> None:
    """To nobody who writes or reads, also not to whose write was under way."""
    secret = "connection to 10.0.0.7, port 5432 failed for user tl"
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        pair.faults["a"].hold_remote.clear()
        under_way = asyncio.ensure_future(put(pair, "a", 2, "y"))
        site_a = site(pair, "a")
        await pair.until(lambda: site_a.active_epoch is not None and bool(site_a.active_epoch.commit._framed))
        await pair.running["a"].supervisor.stop()
        told = []
        with capture_logs() as logged:
            site_a._epoch_ended(EngineFailed(secret))
            with pytest.raises(TwinlogError) as unknown:
                await under_way
            pair.faults["a"].hold_remote.set()
            await pair.until(lambda: not site_a.ending)
        told.append(unknown.value)
        for serve in (site_a.serving.for_writes, site_a.serving.for_reads):
            with pytest.raises(TwinlogError) as refused:
                serve()
            told.append(refused.value)
        assert [error.code for error in told] == ["outcome-unknown", "unavailable", "unavailable"]
        assert not [error for error in told if "10.0.0.7" in f"{error.message} {error.fields}"]
        assert secret in (site_a.waiting_for or "")
        assert secret in str(logged)


async def test_a_plan_that_could_not_be_undone_is_undone_once_that_is_possible(tmp_path: Path) -> None:
    """It has the pair at the coordinator: an asynchronous active cannot prove its lease until it lets go."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")

        def cut_off() -> None:
            pair.cut = pair.faults["b"].coordinator_down = True

        pair.running["b"].operations._executor._failpoints = Moments({"plan.switchover.drain.before": cut_off})
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "failed", ended
        state = await coordinator_value(pair, "a")
        assert state.switching is not None
        pair.cut = pair.faults["b"].coordinator_down = False

        def let_go() -> bool:
            seen = site(pair, "a").pair_state
            return seen is not None and seen.state_id > state.state_id and seen.switching is None

        await pair.until(let_go)
        assert (await put(pair, "a", 1, "x")).mode == "async"
        assert pair.role("b") == "STANDBY"


async def test_an_unexpected_error_of_the_remote_log_is_a_failed_append_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client library that raises what nobody foresaw must not leave the writes waiting for ever."""
    append, create, failures = FaultyDfsWriter.append, FaultyDfs.create, ["create", "append"]

    def fails(self: FaultyDfsWriter, data: bytes) -> Awaitable[None]:
        if failures[-1:] == ["append"]:
            failures.pop()
            broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            broken.set_exception(RuntimeError("injected"))
            return broken
        return append(self, data)

    async def fails_too(self: FaultyDfs, path: str) -> FaultyDfsWriter:
        if failures == ["create"]:
            failures.pop()
            raise RuntimeError("injected")
        return await create(self, path)

    async with open_pair(tmp_path) as pair:
        monkeypatch.setattr(FaultyDfsWriter, "append", fails)
        monkeypatch.setattr(FaultyDfs, "create", fails_too)
        assert (await put(pair, "a", 1, "x")).mode == "sync"
        assert failures == []


async def test_a_takeover_makes_its_storage_durable_before_it_opens_on_it(tmp_path: Path) -> None:
    """No log here has what the asynchronous active shipped: the new epoch would continue from what a crash takes away."""
    async with open_pair(tmp_path, resync_after_s=None, flush_interval_s=3600.0) as pair:
        await pair.operate("a", "degrade")
        for key in range(3):
            await put(pair, "a", key, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        engine, seen = site(pair, "b").parts.engine, []

        def look() -> None:
            seen.append((engine.durable_seq, engine.applied.seq))

        look()
        site(pair, "b").parts.failpoints.hit = Moments({"activation.log_begins": look}).hit  # type: ignore[method-assign]
        await pair.crash("a")
        assert (await pair.force_failover("b")).state == "succeeded"
        before, then = seen
        assert before[0] < before[1], "the storage is behind, as it mostly is"
        assert then == (before[1], before[1])
