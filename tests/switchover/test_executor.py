"""The executor: the way forward, the way back, and every interruption in between, with real journal files."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from storage.clock import SystemClock
from storage.errors import Conflict, InvalidInput, LogGap, NotFound, Refused, Unavailable
from switchover.executor import Executor, Plan, Step
from switchover.failpoints import ArmedFailpoints, Crash, Failpoints
from switchover.journal import Journal, MemoryJournal
from switchover.operations import HistoryEntry, Operation
from switchover.sql_journal import SqlJournal

Hook = Callable[[], Awaitable[Any]]
NAMES = ["preflight", "begin", "drain", "claim", "open"]
EVERY_POINT = ["created", *(f"{name}.{moment}" for name in NAMES for moment in ("before", "after", "journaled"))]

UNDO_POINTS = [f"{name}.undo.{moment}" for name in ("drain", "begin") for moment in ("before", "after", "journaled")]


class World:
    """What the steps of a small switchover do to the two sites. It outlives a crash, as the sites do."""

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.calls: list[str] = []
        self.hooks: dict[str, Hook] = {}  # step, or "undo step": runs after the effect, before the step's end
        self.plans_made = 0
        self.renamed = False

    async def effect(self, name: str) -> dict[str, Any]:
        self.calls.append(name)
        if name != "preflight":
            self.flags.add(name)
        if name in self.hooks:
            await self.hooks[name]()
        return {"did": name}

    async def undo(self, name: str) -> None:
        self.calls.append(f"undo {name}")
        self.flags.discard(name)
        if f"undo {name}" in self.hooks:
            await self.hooks[f"undo {name}"]()

    def plan(self, kind: str, to: str | None, options: dict[str, Any]) -> Plan:
        if kind != "switchover":
            raise InvalidInput(f"there is no operation {kind}")
        self.plans_made += 1

        def step(name: str, **more: Any) -> Step:
            return Step(name, lambda: self.effect(name), f"to {name}", **more)

        return Plan(kind, [
            step("preflight", abortable=True, dry=True),
            step("begin", abortable=True, undo=lambda: self.undo("begin")),
            step("drain", abortable=True, undo=lambda: self.undo("drain"), progress=lambda: {"left": 3}),
            step("sealed" if self.renamed else "claim"),
            step("open"),
        ])


class Gate:
    """A step waits here until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def executor(world: World) -> AsyncIterator[Executor]:
    one = Executor(MemoryJournal(), SystemClock(), world.plan, Failpoints())
    yield one
    await one.close()


def failing(error: Exception) -> Hook:
    async def fail() -> None:
        raise error

    return fail


async def start(executor: Executor, operation_id: str = "op-1", **more: Any) -> dict[str, Any]:
    return await executor.start(operation_id, "switchover", "b", {"reason": "test"}, "ann", **more)


def states(document: dict[str, Any]) -> list[str]:
    return [step["state"] for step in document["steps"]]


# ---- forward


async def test_a_plan_runs_to_its_end_in_order(executor: Executor, world: World) -> None:
    first = await start(executor)
    assert (first["state"], states(first)) == ("running", ["pending"] * 5)
    last = await executor.wait("op-1")
    assert (last["state"], states(last), last["error"]) == ("succeeded", ["done"] * 5, None)
    assert world.calls == NAMES
    assert last["steps"][2]["detail"] == {"did": "drain"}
    assert last["result"].keys() == {"took_ms", "steps_ms"}
    assert list(last["result"]["steps_ms"]) == NAMES
    assert last["finished_ms"] >= last["created_ms"]
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
    assert last["state"] == "succeeded"
    assert [step["name"] for step in last["result"]["would"]] == NAMES[1:]
    assert last["result"]["would"][2] == {"name": "claim", "what": "to claim", "abortable": False}
    world.hooks["preflight"] = failing(Refused("no"))
    await start(executor, "op-2", dry_run=True)
    assert (await executor.wait("op-2"))["error"]["message"] == "no"


async def test_one_operation_at_a_time(executor: Executor, world: World) -> None:
    gate = world.hooks["drain"] = Gate()
    await start(executor)
    await gate.reached.wait()
    assert executor.running is not None
    assert executor.running["id"] == "op-1"
    with pytest.raises(Conflict, match="op-1") as caught:
        await start(executor, "op-2", dry_run=True)
    assert caught.value.fields["running"] == "op-1"
    with pytest.raises(NotFound):
        await executor.operation("op-2")
    gate.open.set()
    assert (await executor.wait("op-1"))["state"] == "succeeded"
    await start(executor, "op-2")
    assert (await executor.wait("op-2"))["state"] == "succeeded"


async def test_of_two_at_the_same_moment_one_runs(executor: Executor) -> None:
    results = await asyncio.gather(start(executor, "op-1"), start(executor, "op-2"), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "dict"]


async def test_the_same_request_again_is_the_same_operation(executor: Executor, world: World) -> None:
    await start(executor)
    assert (await start(executor))["id"] == "op-1"
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
    assert (await executor.run("op-1", "switchover", "b", {}, "ann"))["state"] == "succeeded"
    world.hooks["claim"] = failing(LogGap("a frame is missing", held_seq=4))
    with pytest.raises(LogGap, match="missing"):
        await executor.run("op-2", "switchover", "b", {}, "ann")


async def test_a_step_whose_effect_is_there_is_skipped(world: World) -> None:
    async def there() -> bool:
        return True

    def plan(kind: str, to: str | None, options: dict[str, Any]) -> Plan:
        return Plan(kind, [Step("claim", lambda: world.effect("claim"), "to claim", check=there)])

    executor = Executor(MemoryJournal(), SystemClock(), plan, Failpoints())
    last = await executor.run("op-1", "switchover", "b", {}, "ann")
    assert (last["steps"][0]["state"], world.calls) == ("done", [])
    assert "skipped" in last["steps"][0]["detail"]


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
    assert [shown["state"] async for shown in executor.follow("op-1")] == ["succeeded"]


async def test_a_step_shows_its_progress(executor: Executor, world: World) -> None:
    gate = world.hooks["drain"] = Gate()
    await start(executor)
    async for shown in executor.follow("op-1"):
        if shown["steps"][2]["detail"] == {"left": 3}:
            assert shown["steps"][2]["state"] == "running"
            gate.open.set()
    assert shown["steps"][2]["detail"] == {"did": "drain"}


async def test_a_follower_that_leaves_stops_nothing(executor: Executor, world: World) -> None:
    gate = world.hooks["begin"] = Gate()
    await start(executor)
    follower = asyncio.ensure_future(executor.wait("op-1"))
    await gate.reached.wait()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    gate.open.set()
    assert (await executor.wait("op-1"))["state"] == "succeeded"


# ---- failing


async def test_a_failure_before_the_point_of_no_return_is_undone(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(Unavailable("the peer is away", waiting_for="peer"))
    await start(executor)
    last = await executor.wait("op-1")
    assert last["state"] == "failed"
    assert last["error"] == {
        "code": "unavailable", "message": "the peer is away", "fields": {"waiting_for": "peer"}, "step": "drain",
    }
    assert world.calls == ["preflight", "begin", "drain", "undo drain", "undo begin"]
    assert world.flags == set()
    assert states(last) == ["done", "undone", "undone", "pending", "pending"]
    assert (last["resumable"], last["abortable"]) == (True, True)


async def test_a_failure_after_it_stays_and_is_resumed_there(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(LogGap("a frame is missing", held_seq=4))
    await start(executor)
    last = await executor.wait("op-1")
    assert states(last) == ["done", "done", "done", "failed", "pending"]
    assert last["steps"][3]["detail"]["fields"] == {"held_seq": 4}
    assert (last["resumable"], last["abortable"]) == (True, False)
    assert world.flags == {"begin", "drain", "claim"}
    del world.hooks["claim"]
    world.calls.clear()
    resumed = await executor.resume("op-1", "bob")
    assert (resumed["state"], resumed["attempt"], resumed["error"]) == ("running", 2, None)
    assert (await executor.wait("op-1"))["state"] == "succeeded"
    assert world.calls == ["claim", "open"]
    assert [entry.actor for entry in await executor.history() if entry.event == "resumed"] == ["bob"]


async def test_an_undone_operation_is_resumed_from_its_checks_on(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(Unavailable("the peer is away"))
    await start(executor)
    await executor.wait("op-1")
    del world.hooks["drain"]
    world.calls.clear()
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1"))["state"] == "succeeded"
    assert world.calls == NAMES


async def test_an_error_that_is_not_ours_is_named_as_a_fault(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(ZeroDivisionError("by zero"))
    await start(executor)
    last = await executor.wait("op-1")
    assert last["error"]["code"] == "internal"
    assert "ZeroDivisionError" in last["error"]["message"]
    assert world.flags == set()


async def test_a_step_that_cancels_itself_has_failed(executor: Executor, world: World) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    world.hooks["drain"] = cancelled
    await start(executor)
    last = await executor.wait("op-1")
    assert (last["state"], last["error"]["code"]) == ("failed", "internal")


async def test_what_json_does_not_know_is_journaled_as_text(tmp_path: Path) -> None:
    async def odd() -> dict[str, Any]:
        return {"path": Path("/x"), "bytes": b"\x00", "set": {1}}

    executor = Executor(
        SqlJournal(f"sqlite:///{tmp_path}/j.db"), SystemClock(), lambda *_: Plan("x", [Step("odd", odd, "odd")]), Failpoints()
    )
    last = await executor.run("op-1", "x", None, {}, "ann")
    assert last["steps"][0]["detail"] == {"path": "/x", "bytes": "AA==", "set": [1]}
    await executor.close()


# ---- aborting


@pytest.mark.parametrize("at", ["preflight", "begin", "drain"])
async def test_an_abort_cancels_the_step_and_undoes_the_rest(executor: Executor, world: World, at: str) -> None:
    gate = world.hooks[at] = Gate()
    await start(executor)
    await gate.reached.wait()
    last = await executor.abort("op-1", "bob")
    assert (last["state"], world.flags) == ("aborted", set())
    reached = [name for name in NAMES[: NAMES.index(at) + 1] if name != "preflight"]
    assert world.calls[NAMES.index(at) + 1 :] == [f"undo {name}" for name in reversed(reached)]
    assert [entry.actor for entry in await executor.history() if entry.event == "abort asked"] == ["bob"]
    for again in (executor.abort, executor.resume):
        with pytest.raises(Refused, match="has aborted"):
            await again("op-1", "bob")


async def test_no_abort_past_the_point_of_no_return(executor: Executor, world: World) -> None:
    gate = world.hooks["claim"] = Gate()
    await start(executor)
    await gate.reached.wait()
    with pytest.raises(Refused, match="past the point of no return") as caught:
        await executor.abort("op-1", "bob")
    assert caught.value.fields["step"] == "claim"
    gate.open.set()
    assert (await executor.wait("op-1"))["state"] == "succeeded"
    with pytest.raises(Refused, match="has succeeded"):
        await executor.abort("op-1", "bob")


async def test_a_failed_operation_past_it_is_not_aborted_either(executor: Executor, world: World) -> None:
    world.hooks["open"] = failing(Unavailable("later"))
    await start(executor)
    await executor.wait("op-1")
    with pytest.raises(Refused, match="claim"):
        await executor.abort("op-1", "bob")


async def test_an_abort_in_any_moment_goes_back_or_is_refused(world: World) -> None:
    """The abort is asked for at each journal write in turn, the narrowest places there are."""
    for nth in range(1, 13):
        world = World()
        journal = Slow()
        executor = Executor(journal, SystemClock(), world.plan, Failpoints())
        journal.stop_at = nth
        starting = asyncio.ensure_future(start(executor))
        await journal.stopped.wait()
        aborting = asyncio.ensure_future(executor.abort("op-1", "bob"))
        for _ in range(5):
            await asyncio.sleep(0)
        journal.go_on.set()
        await starting
        try:
            last = await aborting
        except Refused:
            assert nth >= 8, nth
            assert (await executor.wait("op-1"))["state"] == "succeeded"
            assert world.flags == {"begin", "drain", "claim", "open"}
        else:
            assert nth < 8, nth
            assert last["state"] == "aborted"
            assert world.flags == set()


class Slow(MemoryJournal):
    """Stops in the middle of the n-th write until told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_at, self.writes = 0, 0
        self.stopped, self.go_on = asyncio.Event(), asyncio.Event()

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        self.writes += 1
        if self.writes == self.stop_at:
            self.stopped.set()
            await self.go_on.wait()
        await super().save(operation, entry)


async def test_what_could_not_be_undone_is_said_and_undone_later(executor: Executor, world: World) -> None:
    gate = world.hooks["drain"] = Gate()
    world.hooks["undo begin"] = failing(Unavailable("the coordinator is away"))
    await start(executor)
    await gate.reached.wait()
    last = await executor.abort("op-1", "bob")
    assert (last["state"], last["error"]["step"]) == ("failed", "begin")
    assert states(last)[1:3] == ["undo_failed", "undone"]
    with pytest.raises(Refused, match="abort it again"):
        await executor.resume("op-1", "bob")
    del world.hooks["undo begin"]
    world.calls.clear()
    assert (await executor.abort("op-1", "bob"))["state"] == "aborted"
    assert world.calls == ["undo begin"]


# ---- taking up again


async def test_only_the_last_operation_is_taken_up_again(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor, "op-1")
    await executor.wait("op-1")
    await start(executor, "dry", dry_run=True)
    await executor.wait("dry")
    del world.hooks["claim"]
    await start(executor, "op-2")
    await executor.wait("op-2")
    for again in (executor.resume, executor.abort):
        with pytest.raises(Refused):
            await again("op-1", "bob")
    assert (await executor.operation("op-1"))["state"] == "failed"


async def test_a_dry_run_does_not_bar_a_resume(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor, "op-1")
    await executor.wait("op-1")
    await start(executor, "dry", dry_run=True)
    await executor.wait("dry")
    del world.hooks["claim"]
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1"))["state"] == "succeeded"


async def test_a_plan_of_another_release_is_not_taken_up(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor)
    await executor.wait("op-1")
    world.renamed = True
    with pytest.raises(Refused, match="another release"):
        await executor.resume("op-1", "bob")


async def test_a_journal_that_fails_stops_the_operation_as_a_crash_would(world: World) -> None:
    class Full(MemoryJournal):
        full = False

        async def save(self, operation: Operation, entry: HistoryEntry) -> None:
            if self.full:
                raise Unavailable("the journal does not answer")
            await super().save(operation, entry)

    journal = Full()
    executor = Executor(journal, SystemClock(), world.plan, Failpoints())
    gate = world.hooks["drain"] = Gate()
    await start(executor)
    await gate.reached.wait()
    journal.full = True
    gate.open.set()
    assert (await executor.wait("op-1"))["state"] == "interrupted"
    assert world.calls == ["preflight", "begin", "drain"], "nothing runs that is not journaled"
    journal.full = False
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1"))["state"] == "succeeded"


async def test_closing_interrupts_and_lets_followers_go(world: World) -> None:
    journal = MemoryJournal()
    executor = Executor(journal, SystemClock(), world.plan, Failpoints())
    gate = world.hooks["claim"] = Gate()
    await start(executor)
    follower = asyncio.ensure_future(executor.wait("op-1"))
    await gate.reached.wait()
    await executor.close()
    assert (await follower)["state"] == "interrupted"
    again = Executor(journal, SystemClock(), world.plan, Failpoints())
    assert states(await again.operation("op-1")) == ["done", "done", "done", "interrupted", "pending"]


# ---- crashes, with real files


async def crash(folder: Path, world: World, point: str, act: Callable[[Executor], Awaitable[Any]]) -> None:
    """A process that dies at `point` while it does `act`; its journal stays as it was on the disk."""
    journal = SqlJournal(f"sqlite:///{folder}/journal.db")
    executor = Executor(journal, SystemClock(), world.plan, ArmedFailpoints(point))
    await act(executor)
    live = executor._live
    assert live is not None
    assert live.task is not None
    with pytest.raises(Crash):
        await live.task
    await journal.close()


def reopened(folder: Path, world: World) -> tuple[Executor, Journal]:
    journal = SqlJournal(f"sqlite:///{folder}/journal.db")
    return Executor(journal, SystemClock(), world.plan, Failpoints()), journal


async def test_the_points_are_all_of_them(world: World) -> None:
    seen = ArmedFailpoints()
    executor = Executor(MemoryJournal(), SystemClock(), world.plan, seen)
    await executor.run("op-1", "switchover", "b", {}, "ann")
    assert seen.seen == [f"plan.switchover.{point}" for point in EVERY_POINT]


@pytest.mark.parametrize("point", EVERY_POINT)
async def test_a_crash_anywhere_is_resumed(tmp_path: Path, world: World, point: str) -> None:
    await crash(tmp_path, world, f"plan.switchover.{point}", start)
    before = list(world.calls)
    executor, _ = reopened(tmp_path, world)
    assert (await executor.operation("op-1"))["state"] == "interrupted"
    await executor.resume("op-1", "bob")
    last = await executor.wait("op-1")
    assert (last["state"], states(last)) == ("succeeded", ["done"] * 5)
    assert world.flags == {"begin", "drain", "claim", "open"}
    again = world.calls[len(before) :]
    assert [name for name in again if name != "preflight"] == [name for name in NAMES[1:] if name in again], "in order"
    for name in before:
        finished = EVERY_POINT.index(point) >= EVERY_POINT.index(f"{name}.journaled")
        assert name == "preflight" or (name in again) != finished, "what is journaled as done is not done again"
    await executor.close()


@pytest.mark.parametrize("point", EVERY_POINT)
async def test_a_crash_anywhere_is_aborted_or_is_past_it(tmp_path: Path, world: World, point: str) -> None:
    await crash(tmp_path, world, f"plan.switchover.{point}", start)
    executor, _ = reopened(tmp_path, world)
    if EVERY_POINT.index(point) < EVERY_POINT.index("claim.before"):
        assert (await executor.abort("op-1", "bob"))["state"] == "aborted"
        assert world.flags == set()
    else:
        with pytest.raises(Refused, match="past the point of no return"):
            await executor.abort("op-1", "bob")
    await executor.close()


@pytest.mark.parametrize("point", UNDO_POINTS)
@pytest.mark.parametrize("why", ["failed", "aborted"])
async def test_a_crash_on_the_way_back_is_brought_to_an_end(tmp_path: Path, world: World, point: str, why: str) -> None:
    gate = world.hooks["drain"] = Gate()

    async def go_and_turn(executor: Executor) -> None:
        await start(executor)
        await gate.reached.wait()
        if why == "aborted":
            live = executor._live
            assert live is not None
            await executor._interrupt(live, "bob")

    if why == "failed":
        world.hooks["drain"] = failing(Unavailable("the peer is away"))
        await crash(tmp_path, world, f"plan.switchover.{point}", start)
    else:
        await crash(tmp_path, world, f"plan.switchover.{point}", go_and_turn)
    world.hooks.clear()
    executor, _ = reopened(tmp_path, world)
    if why == "aborted":
        with pytest.raises(Refused, match="being aborted"):
            await executor.resume("op-1", "bob")
        assert (await executor.abort("op-1", "bob"))["state"] == "aborted"
        assert world.flags == set()
    else:
        await executor.resume("op-1", "bob")
        assert (await executor.wait("op-1"))["state"] == "succeeded"
        assert world.flags == {"begin", "drain", "claim", "open"}
    await executor.close()


async def test_crash_after_crash_comes_to_an_end(tmp_path: Path, world: World) -> None:
    await crash(tmp_path, world, "plan.switchover.begin.after", start)
    for point in ("drain.after", "claim.before", "claim.journaled", "open.after"):
        await crash(tmp_path, world, f"plan.switchover.{point}", lambda executor: executor.resume("op-1", "bob"))
    executor, _ = reopened(tmp_path, world)
    await executor.resume("op-1", "bob")
    last = await executor.wait("op-1")
    assert (last["state"], last["attempt"]) == ("succeeded", 6)
    await executor.close()


KILLED = """
    import asyncio, os, pathlib, sys
    from storage.clock import SystemClock
    from switchover.executor import Executor, Plan, Step
    from switchover.failpoints import ArmedFailpoints
    from switchover.sql_journal import SqlJournal

    folder, point = pathlib.Path(sys.argv[1]), sys.argv[2]

    def step(name, **more):
        async def run():
            (folder / name).touch()
        return Step(name, run, name, **more)

    def plan(kind, to, options):
        return Plan(kind, [step("drain", abortable=True), step("claim"), step("open")])

    async def main():
        die = ArmedFailpoints(f"plan.failover.{point}", die=lambda name: os._exit(70))
        executor = Executor(SqlJournal(f"sqlite:///{folder}/journal.db"), SystemClock(), plan, die)
        found = await executor.operations()
        if found:
            print(found[0]["state"], [step["state"] for step in found[0]["steps"]])
            await executor.resume("op-1", "bob")
        else:
            await executor.start("op-1", "failover", "b", {}, "ann")
        print((await executor.wait("op-1"))["state"])
        await executor.close()

    asyncio.run(main())
"""


async def test_a_killed_process_leaves_a_journal_that_the_next_one_takes_up(tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent(KILLED))

    async def process(point: str) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        command = [sys.executable, str(script), str(tmp_path), point]
        done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, timeout=50)
        return done.returncode, done.stdout

    assert await process("claim.after") == (70, "")
    assert (tmp_path / "claim").exists()
    assert not (tmp_path / "open").exists()
    assert await process("open.before") == (70, "interrupted ['done', 'interrupted', 'pending']\n")
    assert await process("none") == (0, "interrupted ['done', 'done', 'interrupted']\nsucceeded\n")
    assert (tmp_path / "open").exists()
