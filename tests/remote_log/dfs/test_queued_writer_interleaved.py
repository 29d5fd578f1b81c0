"""An open file of a DFS under every schedule: its thread, its caller, and the deadline, which may come at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from chaos.threads.explore import Explored, explore
from chaos.threads.schedule import Scheduler, scheduled
from remote_log.dfs import queued_writer
from storage.disk import workers
from tests.planting import planted
from tests.storage.disk.thread_rig import NOTHING, WATCHED, run_on_loop
from twinlog.errors import DfsError

DEADLINE_S = 1.0


def a_file(module: ModuleType, scheduler: Scheduler, *, fails: bool = False, hangs: Callable[[], bool] = lambda: False) -> Any:
    """A file whose first append fails, or takes as long as `hangs` says."""

    class File(module.QueuedWriter):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__("/f", "the test", DEADLINE_S, module.writer_thread("/f"))
            self.done: list[bytes] = []
            self.busy, self.finished, self.released = False, False, 0

        def _append(self, group: bytes) -> None:
            assert not self.busy
            assert not self.released, "it writes to what it has given back"
            self.busy = True
            scheduler.wait(lambda: not hangs())
            if fails and not self.done:
                self.done.append(b"")
                self.busy = False
                raise OSError("no")
            self.done.append(group)
            self.busy = False

        def _finish(self) -> None:
            self.finished = True

        def _release(self) -> None:
            assert not self.busy, "it gives back what is in use"
            self.released += 1

        def _mapped(self, error: Any) -> DfsError:
            return DfsError(str(error))

    return File()


async def outcome(append: Awaitable[None]) -> bool:
    try:
        await append
    except DfsError:
        return False
    return True


async def closed(file: Any) -> None:
    """Soon after the close, everything is given back, and the thread has ended."""
    thread = file._worker._thread
    await outcome(file.close())
    while not (file.released and thread._turn.ended):  # noqa: ASYNC110 - no end is found out by the number of steps
        await asyncio.sleep(DEADLINE_S)
    assert file.released == 1


async def in_order(module: ModuleType, scheduler: Scheduler) -> None:
    """An append that succeeds was written, and nothing is missing before it."""
    file = a_file(module, scheduler)
    appended = [asyncio.ensure_future(outcome(file.append(data))) for data in (b"a", b"b")]
    first = await appended[0]
    appended.append(asyncio.ensure_future(outcome(file.append(b"c"))))
    ended = [first, *(await asyncio.gather(*appended[1:]))]
    good = ended.index(False) if False in ended else len(ended)
    assert not any(ended[good:]), f"an append succeeds behind one that failed: {ended}"
    assert b"".join(file.done).startswith(b"abc"[:good])
    await closed(file)
    assert file.finished or not all(ended) or file._failure is not None


async def failed(module: ModuleType, scheduler: Scheduler) -> None:
    """After one failure nothing more is written, and everything fails."""
    file = a_file(module, scheduler, fails=True)
    appended = [asyncio.ensure_future(outcome(file.append(data))) for data in (b"a", b"b")]
    assert await asyncio.gather(*appended) == [False, False]
    assert not await outcome(file.append(b"c"))
    await closed(file)
    assert file.done in ([], [b""])  # or its deadline came before its thread
    assert not file.finished


async def late(module: ModuleType, scheduler: Scheduler) -> None:
    """An append is given up by its deadline, and answered late: what was behind it is neither written nor acknowledged."""
    hanging = True
    file = a_file(module, scheduler, hangs=lambda: hanging)
    first = asyncio.ensure_future(outcome(file.append(b"a")))
    await asyncio.sleep(DEADLINE_S / 2)  # by the clock: that of the schedule
    second = asyncio.ensure_future(outcome(file.append(b"b")))
    assert await asyncio.gather(first, second) == [False, False]
    hanging = False
    assert not await outcome(file.append(b"c"))
    await closed(file)
    assert file.done in ([], [b"a"], [b"ab"])
    assert not file.finished


Program = Callable[[ModuleType, Scheduler], Awaitable[None]]


def every_schedule(program: Program, mistake: tuple[str, str] = NOTHING, switches_max: int = 1) -> Explored:
    def run(scheduler: Scheduler) -> None:
        threads, module = planted(workers, *NOTHING), planted(queued_writer, *mistake)
        scheduled(threads, scheduler)
        module.GroupWorker = threads.GroupWorker
        run_on_loop(scheduler, lambda: program(module, scheduler))

    return explore(run, [*WATCHED, f"<planted in {queued_writer.__name__}>"], switches_max)


@pytest.mark.parametrize("program", [in_order, failed, late], ids=lambda program: program.__name__)
def test_every_schedule_ends_well(program: Program) -> None:
    found = every_schedule(program)
    assert found.fault is None, found
    assert found.schedules > 50


FAILED = "            if self._failure is not None and (data or _Order.FINISH in items):\n"
FAILS = "            if not done.done():\n                done.set_exception(self._failure)\n"
RELEASES = "            self._put_release()\n"
ENDS = """            with suppress(TimeoutError):  # the thread hangs, keeps what it holds until it is answered, and ends then
                async with asyncio.timeout(self._deadline_s):
"""
WAITS = """                    with suppress(DfsError):
                        await self._worker.put(_Order.RELEASE)
"""
NO_ANSWER = 'DfsError(f"no answer from'


@pytest.mark.parametrize(("program", "right", "wrong"), [
    pytest.param(
        failed, FAILED, "            if self._failure is not None and _Order.FINISH in items:\n",
        id="it writes on behind a failure",
    ),
    pytest.param(late, FAILS, "            pass\n", id="a deadline that fails nobody"),
    pytest.param(late, f"        self._failure = {NO_ANSWER}", f"        {NO_ANSWER}", id="a deadline is forgotten"),
    pytest.param(in_order, RELEASES + ENDS, ENDS, id="what is held is not given back"),
    pytest.param(late, RELEASES + ENDS, ENDS + WAITS, id="a thread that was given up never ends"),
])
def test_a_mistake_is_found(program: Program, right: str, wrong: str) -> None:
    found = every_schedule(program, (right, wrong))
    assert found.fault is not None, found
