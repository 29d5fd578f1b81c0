"""The executor when a plan is aborted, or interrupted, and what may be taken up again."""

from __future__ import annotations

import asyncio

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations.document import HistoryEntry, Operation
from switchover.operations.executor import Executor
from tests.switchover.operations.plan_world import NAMES, Gate, World, failing, start, states
from twinlog.errors import Conflict, Refused, Unavailable

# ---- aborting


@pytest.mark.parametrize("at", ["preflight", "begin", "drain"])
async def test_an_abort_cancels_the_step_and_undoes_the_rest(executor: Executor, world: World, at: str) -> None:
    gate = world.hooks[at] = Gate()
    await start(executor)
    await gate.reached.wait()
    last = await executor.abort("op-1", "bob")
    assert (last.state, world.flags) == ("aborted", set())
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
    assert (await executor.wait("op-1")).state == "succeeded"
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
            assert (await executor.wait("op-1")).state == "succeeded"
            assert world.flags == {"begin", "drain", "claim", "open"}
        else:
            assert nth < 8, nth
            assert last.state == "aborted"
            assert world.flags == set()
            if nth % 2 == 0:
                assert NAMES[nth // 2 - 1] not in world.calls, "its start was only being journaled"


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
    assert (last.state, last.error.step) == ("failed", "begin")
    assert states(last)[1:3] == ["undo_failed", "undone"]
    with pytest.raises(Refused, match="abort it again"):
        await executor.resume("op-1", "bob")
    del world.hooks["undo begin"]
    world.calls.clear()
    assert (await executor.abort("op-1", "bob")).state == "aborted"
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
    assert (await executor.operation("op-1")).state == "failed"


async def test_a_dry_run_does_not_bar_a_resume(executor: Executor, world: World) -> None:
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor, "op-1")
    await executor.wait("op-1")
    await start(executor, "dry", dry_run=True)
    await executor.wait("dry")
    del world.hooks["claim"]
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1")).state == "succeeded"


async def test_an_operation_that_its_preflight_refused_does_not_bar_a_resume(executor: Executor, world: World) -> None:
    """Found by the simulator (seeds 331, 1155): the one that stopped half-way could not be taken up any more."""
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor, "op-1")
    await executor.wait("op-1")
    world.hooks["preflight"] = failing(Refused("not now"))
    await start(executor, "op-2")
    assert (await executor.wait("op-2")).never_began
    world.hooks.clear()
    await executor.resume("op-1", "bob")
    ended = await executor.wait("op-1")
    assert ended.state == "succeeded"
    assert not ended.never_began


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
    assert (await executor.wait("op-1")).state == "interrupted"
    assert world.calls == ["preflight", "begin", "drain"], "nothing runs that is not journaled"
    journal.full = False
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1")).state == "succeeded"


async def test_closing_interrupts_and_lets_followers_go(world: World) -> None:
    journal = MemoryJournal()
    executor = Executor(journal, SystemClock(), world.plan, Failpoints())
    gate = world.hooks["claim"] = Gate()
    await start(executor)
    follower = asyncio.ensure_future(executor.wait("op-1"))
    await gate.reached.wait()
    await executor.close()
    assert (await follower).state == "interrupted"
    again = Executor(journal, SystemClock(), world.plan, Failpoints())
    assert states(await again.operation("op-1")) == ["done", "done", "done", "interrupted", "pending"]


async def test_what_ended_before_an_operation_does_not_bar_its_resume(executor: Executor, world: World) -> None:
    await start(executor, "op-1")
    await executor.wait("op-1")
    world.hooks["claim"] = failing(Unavailable("later"))
    await start(executor, "op-2")
    await executor.wait("op-2")
    del world.hooks["claim"]
    await executor.resume("op-2", "bob")
    assert (await executor.wait("op-2")).state == "succeeded"


async def test_nothing_is_taken_up_beside_what_runs(executor: Executor, world: World) -> None:
    world.hooks["drain"] = failing(Unavailable("later"))
    world.hooks["undo drain"] = failing(Unavailable("later"))
    await start(executor, "op-1")
    await executor.wait("op-1")
    gate = world.hooks["preflight"] = Gate()
    await start(executor, "op-2")
    await gate.reached.wait()
    for again in (executor.resume, executor.abort):
        with pytest.raises(Conflict, match=r"op-2 .* is running"):
            await again("op-1", "bob")
    assert (await executor.operation("op-2")).state == "running"
    gate.open.set()
    await executor.wait("op-2")


async def test_nothing_begins_that_the_journal_did_not_take(world: World) -> None:
    executor = Executor(Full(), SystemClock(), world.plan, Failpoints())
    with pytest.raises(Unavailable, match="the journal is full"):
        await start(executor)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (world.calls, executor.running) == ([], None)
    await executor.close()


class Full(MemoryJournal):
    """Takes no operation, and says so after a while."""

    async def create(self, operation: Operation, entry: HistoryEntry) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        raise Unavailable("the journal is full")
