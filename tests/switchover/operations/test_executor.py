"""The executor in one process: the way forward, the way back, what is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations import attempt
from switchover.operations.document import OperationError, PlannedStep
from switchover.operations.executor import Executor
from switchover.operations.plan import Plan, Progress, Step
from switchover.operations.sql_journal import SqlJournal
from tests.remote_log.writing.remote_rig import JumpingClock
from tests.switchover.operations.plan_world import NAMES, Gate, World, failing, start, states
from twinlog.errors import Conflict, InvalidInput, LogGap, NotFound, Refused, Unavailable

# ---- forward


async def test_a_plan_runs_to_its_end_in_order(executor: Executor, world: World) -> None:
    first = await start(executor)
    assert (first.state, states(first)) == ("running", ["pending"] * 5)
    last = await executor.wait("op-1")
    assert (last.state, states(last), last.error) == ("succeeded", ["done"] * 5, None)
    assert world.calls == NAMES
    assert last.steps[2].detail == {"did": "drain"}
    assert last.result.would is UNSET
    assert list(last.result.steps_ms) == NAMES
    assert last.finished_ms >= last.created_ms
    assert await executor.operation("op-1") == last
    assert await executor.operations() == [last]
    assert executor.running is None


async def test_the_history_says_who_and_what_in_order(executor: Executor) -> None:
    await start(executor)
    await executor.wait("op-1")
    entries = list(reversed(await executor.history()))
    expected = ["started", *["step started", "step done"] * 5, "succeeded"]
    assert [entry.event for entry in entries] == expected
    assert {entry.actor for entry in entries} == {"ann"}
    assert entries[0].detail == {"reason": "test"}
    assert [entry.step for entry in entries[1:-1:2]] == NAMES
    assert all((entry.took_ms is not None) == (entry.event == "step done") for entry in entries)


async def test_a_dry_run_takes_the_same_way_and_changes_nothing(executor: Executor, world: World) -> None:
    await start(executor, dry_run=True)
    last = await executor.wait("op-1")
    assert world.calls == ["preflight"]
    assert world.flags == set()
    assert states(last) == ["done", "pending", "pending", "pending", "pending"]
    assert last.state == "succeeded"
    assert [step.name for step in last.result.would] == NAMES[1:]
    assert last.result.would[2] == PlannedStep("claim", "to claim", False)
    world.hooks["preflight"] = failing(Refused("no"))
    await start(executor, "op-2", dry_run=True)
    assert (await executor.wait("op-2")).error.message == "no"


async def test_one_operation_at_a_time(executor: Executor, world: World) -> None:
    gate = world.hooks["drain"] = Gate()
    await start(executor)
    await gate.reached.wait()
    assert executor.running is not None
    assert executor.running.id == "op-1"
    with pytest.raises(Conflict, match="op-1") as caught:
        await start(executor, "op-2", dry_run=True)
    assert caught.value.fields["running"] == "op-1"
    with pytest.raises(NotFound):
        await executor.operation("op-2")
    gate.open.set()
    assert (await executor.wait("op-1")).state == "succeeded"
    await start(executor, "op-2")
    assert (await executor.wait("op-2")).state == "succeeded"


async def test_of_two_at_the_same_moment_one_runs(executor: Executor) -> None:
    results = await asyncio.gather(start(executor, "op-1"), start(executor, "op-2"), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "OperationDocument"]


async def test_the_same_request_again_is_the_same_operation(executor: Executor, world: World) -> None:
    await start(executor)
    assert (await start(executor)).id == "op-1"
    last = await executor.wait("op-1")
    assert await start(executor) == last
    assert world.plans_made == 1
    with pytest.raises(Conflict, match="another request"):
        await executor.start("op-1", "switchover", "b", {"reason": "other"}, "ann")


async def test_a_kind_that_there_is_not_leaves_no_trace(executor: Executor) -> None:
    with pytest.raises(InvalidInput):
        await executor.start("op-1", "promotion", "b", {}, "ann")
    assert await executor.operations() == []
    with pytest.raises(NotFound):
        await executor.wait("op-1")


async def test_run_raises_the_error_of_the_step(executor: Executor, world: World) -> None:
    assert (await executor.run("op-1", "switchover", "b", {}, "ann")).state == "succeeded"
    world.hooks["claim"] = failing(LogGap("a frame is missing", held_seq=4))
    with pytest.raises(LogGap, match="missing"):
        await executor.run("op-2", "switchover", "b", {}, "ann")


# ---- following


async def test_followers_see_every_state_once_and_then_the_end(executor: Executor, world: World) -> None:
    gate = world.hooks["begin"] = Gate()
    await start(executor)
    await gate.reached.wait()
    seen: list[list[str]] = []
    async for shown in executor.follow("op-1"):
        seen.append(states(shown))
        gate.open.set()
    assert seen[0] == ["done", "running", "pending", "pending", "pending"]
    assert seen[-1] == ["done"] * 5
    assert len(seen) == len({tuple(one) for one in seen[:-1]}) + 1
    assert [shown.state async for shown in executor.follow("op-1")] == ["succeeded"]


async def test_a_step_shows_its_progress(executor: Executor, world: World) -> None:
    gate = world.hooks["drain"] = Gate()
    await start(executor)
    async for shown in executor.follow("op-1"):
        if shown.steps[2].detail == {"left": 3}:
            assert shown.steps[2].state == "running"
            gate.open.set()
    assert shown.steps[2].detail == {"did": "drain"}


async def test_long_work_shows_how_far_it_is_its_rate_and_what_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PROGRESS_INTERVAL_S", 0.001)
    gate, clock = Gate(), JumpingClock()
    progress = Progress(clock)

    async def copy() -> None:
        progress.begin("frames applied", 4_000)
        clock.now_s += 2.0
        progress.reach(1_000)
        await gate()
        progress.clear()

    def plan(kind: str, to: str | None, options: dict[str, Any]) -> Plan:
        return Plan(kind, [Step("copy", copy, "to copy", progress=progress.document)])

    executor = Executor(MemoryJournal(), SystemClock(), plan, Failpoints())
    await executor.start("op-1", "switchover", "b", {}, "ann")
    details = []
    async for shown in executor.follow("op-1"):
        details.append(shown.steps[0].detail)
        if details[-1] is not None:
            gate.open.set()
    assert {"done": 1_000, "total": 4_000, "unit": "frames applied", "rate": 500.0, "eta_s": 6.0} in details
    assert details[-1] is None
    assert details.count(None) < 6, "what has not changed is not shown again"


async def test_a_follower_that_leaves_stops_nothing(executor: Executor, world: World) -> None:
    gate = world.hooks["begin"] = Gate()
    await start(executor)
    follower = asyncio.ensure_future(executor.wait("op-1"))
    await gate.reached.wait()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    gate.open.set()
    assert (await executor.wait("op-1")).state == "succeeded"


# ---- failing


async def test_a_failure_before_the_point_of_no_return_is_undone(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(Unavailable("the peer is away", waiting_for="peer"))
    await start(executor)
    last = await executor.wait("op-1")
    assert last.state == "failed"
    assert last.error == OperationError("unavailable", "the peer is away", {"waiting_for": "peer"}, "drain")
    assert world.calls == ["preflight", "begin", "drain", "undo drain", "undo begin"]
    assert world.flags == set()
    assert states(last) == ["done", "undone", "undone", "pending", "pending"]
    assert (last.resumable, last.abortable) == (True, True)


async def test_a_failure_after_it_stays_and_is_resumed_there(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(LogGap("a frame is missing", held_seq=4))
    await start(executor)
    last = await executor.wait("op-1")
    assert states(last) == ["done", "done", "done", "failed", "pending"]
    assert last.steps[3].detail["fields"] == {"held_seq": 4}
    assert (last.resumable, last.abortable) == (True, False)
    assert world.flags == {"begin", "drain", "claim"}
    del world.hooks["claim"]
    world.calls.clear()
    resumed = await executor.resume("op-1", "bob")
    assert (resumed.state, resumed.attempt, resumed.error) == ("running", 2, None)
    assert (await executor.wait("op-1")).state == "succeeded"
    assert world.calls == ["claim", "open"]
    assert [entry.actor for entry in await executor.history() if entry.event == "resumed"] == ["bob"]


async def test_an_undone_operation_is_resumed_from_its_checks_on(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(Unavailable("the peer is away"))
    await start(executor)
    await executor.wait("op-1")
    del world.hooks["drain"]
    world.calls.clear()
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1")).state == "succeeded"
    assert world.calls == NAMES


async def test_an_error_that_is_not_ours_is_named_as_a_fault(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(ZeroDivisionError("by zero"))
    await start(executor)
    last = await executor.wait("op-1")
    assert last.error.code == "internal"
    assert "ZeroDivisionError" in last.error.message
    assert world.flags == set()


async def test_a_step_that_cancels_itself_has_failed(executor: Executor, world: World) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    world.hooks["drain"] = cancelled
    await start(executor)
    last = await executor.wait("op-1")
    assert (last.state, last.error.code) == ("failed", "internal")


async def test_what_json_does_not_know_is_journaled_as_text(tmp_path: Path) -> None:
    async def odd() -> dict[str, Any]:
        return {"path": Path("/x"), "bytes": b"\x00", "set": {1}}

    executor = Executor(
        SqlJournal(f"sqlite:///{tmp_path}/j.db"), SystemClock(), lambda *_: Plan("x", [Step("odd", odd, "odd")]), Failpoints()
    )
    last = await executor.run("op-1", "x", None, {}, "ann")
    assert last.steps[0].detail == {"path": "/x", "bytes": "AA==", "set": [1]}
    await executor.close()
