"""A request that expires: before the point of no return nothing of it begins any more, and what was begun is undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations.document import HistoryEntry, Operation
from switchover.operations.executor import Executor
from tests.switchover.operations.plan_world import NAMES, World, failing, start
from twinlog.errors import Unavailable

VALID_MS = 60_000


class Clocks(SystemClock):
    """Both clocks go on by themselves, and by what a test adds: a process that was stopped, a clock that was set."""

    def __init__(self) -> None:
        self.stopped_s = self.set_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.stopped_s

    def wall_ms(self) -> int:
        return super().wall_ms() + round((self.stopped_s + self.set_s) * 1000)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def executor(clocks: Clocks, world: World) -> Executor:
    return Executor(MemoryJournal(), clocks, world.plan, Failpoints())


@pytest.mark.parametrize("which", ["stopped_s", "set_s"])
@pytest.mark.parametrize("at", NAMES)
async def test_before_the_point_of_no_return_no_step_begins_after_it(
    executor: Executor, world: World, clocks: Clocks, at: str, which: str
) -> None:
    async def sleeps() -> None:
        setattr(clocks, which, 240.0)

    world.hooks[at] = sleeps
    await start(executor, expires_ms=clocks.wall_ms() + VALID_MS)
    last = await executor.wait("op-1")
    if at in ("claim", "open"):
        assert (last.state, world.flags) == ("succeeded", {"begin", "drain", "claim", "open"})
        return
    assert (last.state, world.flags) == ("failed", set())
    assert "claim" not in world.calls
    assert last.error is not None
    assert "the request expired 180 s before" in last.error.message
    assert last.resumable


class SlowJournal(MemoryJournal):
    """The disk hangs, or the process is stopped, while the journal notes that a step begins: `meanwhile` has what happens."""

    def __init__(self, at: str, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._at, self._meanwhile = at, meanwhile

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        await super().save(operation, entry)
        if (entry.event, entry.step) == ("step started", self._at):
            self._meanwhile()


@pytest.mark.parametrize("which", ["stopped_s", "set_s"])
@pytest.mark.parametrize("at", NAMES)
async def test_no_step_begins_after_it_while_the_journal_notes_that_the_step_begins(
    world: World, clocks: Clocks, at: str, which: str
) -> None:
    """The step of no return, too: it was journaled as begun, nothing of it was done, and there is a way back again."""
    executor = Executor(SlowJournal(at, lambda: setattr(clocks, which, 240.0)), clocks, world.plan, Failpoints())
    await start(executor, expires_ms=clocks.wall_ms() + VALID_MS)
    last = await executor.wait("op-1")
    if at == "open":
        assert (last.state, world.flags) == ("succeeded", {"begin", "drain", "claim", "open"})
        return
    assert (last.state, world.flags) == ("failed", set())
    assert at not in world.calls
    assert last.error is not None
    assert (last.error.step, "the request expired 180 s before" in last.error.message) == (at, True)
    assert (last.abortable, last.resumable) == (True, True)
    await executor.resume("op-1", "ann", expires_ms=clocks.wall_ms() + VALID_MS)
    assert ((await executor.wait("op-1")).state, world.calls.count("claim")) == ("succeeded", 1)


async def test_a_resume_is_a_request_of_its_own(executor: Executor, world: World, clocks: Clocks) -> None:
    world.hooks["drain"] = failing(Unavailable("later"))
    await start(executor, expires_ms=clocks.wall_ms() + VALID_MS)
    await executor.wait("op-1")
    world.hooks.clear()
    clocks.stopped_s = 3600.0
    await executor.resume("op-1", "ann")
    assert "expired" in str((await executor.wait("op-1")).error)
    await executor.resume("op-1", "ann", expires_ms=clocks.wall_ms() + VALID_MS)
    assert (await executor.wait("op-1")).state == "succeeded"
