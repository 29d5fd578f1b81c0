"""Worker threads under every schedule with at most two switches that nobody had to make."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from chaos.threads.schedule import Scheduler
from tests.storage.disk.thread_rig import every_schedule


async def results(workers: Any, _: Scheduler) -> None:
    worker = workers.Worker("w")
    ran: list[int] = []

    def step(number: int) -> int:
        ran.append(number)
        return number

    first, second = worker.submit(partial(step, 1)), worker.submit(partial(step, 2))
    assert await first == 1
    third = worker.submit(partial(step, 3))
    second.cancel()
    assert await third == 3
    assert ran == [1, 2, 3]
    await worker.close()


async def two(workers: Any, _: Scheduler) -> None:
    worker = workers.Worker("w")
    assert await asyncio.gather(worker.submit(lambda: 1), worker.submit(lambda: 2)) == [1, 2]
    await worker.close()


async def groups(workers: Any, _: Scheduler) -> None:
    handled: list[int] = []
    worker = workers.GroupWorker("g", handled.extend)
    ended: list[int] = []

    async def put(number: int) -> None:
        await worker.put(number)
        assert number in handled, "it counts as done before it was"
        ended.append(number)

    puts = [asyncio.ensure_future(put(number)) for number in range(2)]
    await puts[0]
    puts.append(asyncio.ensure_future(put(2)))
    await asyncio.gather(*puts)
    assert handled == ended == [0, 1, 2]
    await worker.close()


async def closed(workers: Any, _: Scheduler) -> None:
    handled: list[int] = []
    worker = workers.GroupWorker("g", handled.extend)
    put = [worker.put(number) for number in range(2)]
    await asyncio.gather(worker.close(), worker.close())
    assert all(future.done() for future in put), "it was given before the end, and is not answered"
    assert handled == [0, 1]


async def pooled(workers: Any, scheduler: Scheduler) -> None:
    """A call is given up and answered late; its worker serves nobody else before."""
    pool = workers.HangTolerantPool("p", 2)
    running: list[str] = []
    names: list[str] = []
    answered = False

    def call(name: str, hangs: bool) -> str:
        assert len(running) < 2, "more calls than threads"
        running.append(name)
        scheduler.point()
        if hangs:
            scheduler.wait(lambda: answered)
        running.remove(name)
        names.append(name)
        return name

    hanging = await pool.start(lambda: call("hangs", True))
    assert await (await pool.start(partial(call, "one", False))) == "one"
    answered = True
    second = await pool.start(lambda: call("two", False))
    assert (await hanging, await second) == ("hangs", "two")
    assert sorted(names) == ["hangs", "one", "two"]
    await pool.close()


PROGRAMS = [results, two, groups, closed, pooled]


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_schedule_ends_well(program: Any) -> None:
    found = every_schedule(program, switches_max=1 if program is pooled else 2)
    assert found.fault is None, found
    assert found.schedules > 50


DELIVERS = """        ends = self._ends
        while ends:
            future, result, error = ends.popleft()
            if future.done():  # cancelled by its caller; the work was done all the same
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
"""
FALLS = "        self._waking = False\n"
MISTAKES = [
    pytest.param(
        two, FALLS + DELIVERS, DELIVERS + FALLS, id="a result between the last look and the fall of the flag wakes nobody",
    ),
    pytest.param(
        results, "        self._ends.extend(ends)\n        if not self._waking:\n            self._waking = True\n",
        "        if not self._waking:\n            self._waking = True\n            self._ends.extend(ends)\n",
        id="a result is not added while a wake-up is under way",
    ),
    pytest.param(
        results, "                self._loop.call_soon_threadsafe(self._deliver)\n",
        "                self._loop.call_soon(self._deliver)\n", id="the loop is not woken",
    ),
    pytest.param(
        results,
        "            if future.done():  # cancelled by its caller; the work was done all the same\n                continue\n",
        "", id="an answer comes late to a caller who gave up",
    ),
    pytest.param(
        groups, "            error: BaseException | None = None\n            if items:\n",
        "            error: BaseException | None = None\n"
        "            self._finish([(future, None, None) for future, _ in group])\n            if items:\n",
        id="it counts as done before it was handled",
    ),
    pytest.param(
        closed, "                    if more is None:\n                        stop = True\n",
        "                    if more is None:\n                        return\n", id="the end of the thread swallows a group",
    ),
    pytest.param(
        pooled, "            self._idle.append(worker)\n            self._free.release()\n\n        future",
        "            self._free.release()\n\n        self._idle.append(worker)\n        future",
        id="a worker that hangs counts as idle",
    ),
]


@pytest.mark.parametrize(("program", "right", "wrong"), MISTAKES)
def test_a_mistake_is_found(program: Any, right: str, wrong: str) -> None:
    found = every_schedule(program, mistake=(right, wrong))
    assert found.fault is not None, found
