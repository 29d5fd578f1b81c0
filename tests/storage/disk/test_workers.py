"""Worker threads: order, results, errors, grouping, one wake-up for many results, a clean end."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from storage.disk.workers import IDLE_MAX, GroupWorker, HangTolerantPool, Worker


async def test_results_come_back_in_the_order_of_the_calls() -> None:
    worker = Worker("test")
    seen: list[int] = []

    def note(n: int) -> int:
        seen.append(n)
        return n

    futures = [worker.submit(partial(note, n)) for n in range(200)]
    assert await asyncio.gather(*futures) == list(range(200))
    assert seen == list(range(200))
    await worker.close()


async def test_an_exception_belongs_to_its_own_call() -> None:
    worker = Worker("test")

    def fail() -> None:
        raise OSError("no")

    bad, good = worker.submit(fail), worker.submit(lambda: 7)
    with pytest.raises(OSError, match="no"):
        await bad
    assert await good == 7
    await worker.close()


async def test_functions_run_off_the_event_loop_on_one_thread() -> None:
    worker = Worker("test-name")
    names = {await worker.submit(lambda: threading.current_thread().name) for _ in range(3)}
    assert names == {"test-name"}
    await worker.close()


async def test_results_that_gather_while_the_loop_is_busy_need_one_wake_up() -> None:
    worker = Worker("test")
    await worker.submit(lambda: None)
    loop = asyncio.get_running_loop()
    wakes = 0
    real = loop.call_soon_threadsafe

    def counted(*args: object, **kwargs: object) -> asyncio.Handle:
        nonlocal wakes
        wakes += 1
        return real(*args, **kwargs)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
    ended = threading.Event()
    futures = [worker.submit(lambda: None) for _ in range(50)]
    futures.append(worker.submit(ended.set))
    assert ended.wait(120)  # the loop is held here on purpose until all are done
    await asyncio.gather(*futures)
    assert wakes == 1
    await worker.close()


async def test_a_cancelled_call_disturbs_nobody() -> None:
    worker = Worker("test")
    gate = threading.Event()
    first, second = worker.submit(lambda: gate.wait(120)), worker.submit(lambda: 2)
    first.cancel()
    gate.set()
    assert await second == 2
    await worker.close()


async def test_a_close_that_was_given_up_is_finished_by_the_next_one() -> None:
    worker, gate = Worker("test-given-up"), threading.Event()
    running = worker.submit(gate.wait)
    first = asyncio.ensure_future(worker.close())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(worker.close())
    await asyncio.sleep(0)
    assert not second.done()  # its thread may still write to the descriptor that is closed next
    gate.set()
    await second
    assert running.done()
    assert not [thread for thread in threading.enumerate() if thread.name == "test-given-up"]


async def test_close_ends_the_thread_after_the_work_and_refuses_more() -> None:
    worker = Worker("test-close")
    seen: list[int] = []
    for n in range(10):
        worker.submit(partial(seen.append, n))
    await worker.close()
    await worker.close()
    assert seen == list(range(10))
    assert not [thread for thread in threading.enumerate() if thread.name == "test-close"]
    with pytest.raises(RuntimeError, match="closed"):
        worker.submit(lambda: None)


async def test_a_group_takes_everything_that_waits() -> None:
    entered, gate = threading.Event(), threading.Event()
    groups: list[list[int]] = []

    def handle(items: list[int]) -> None:
        groups.append(items)
        if items == [0]:
            entered.set()
            assert gate.wait(120)

    worker = GroupWorker("test", handle)
    first = worker.put(0)
    assert entered.wait(120)
    rest = [worker.put(n) for n in range(1, 30)]
    gate.set()
    await asyncio.gather(first, *rest)
    assert groups == [[0], list(range(1, 30))]
    await worker.close()


async def test_a_failed_group_fails_all_of_its_items_and_no_later_one() -> None:
    entered, gate = threading.Event(), threading.Event()

    def handle(items: list[str]) -> None:
        if items == ["hold"]:
            entered.set()
            assert gate.wait(120)
        if "bad" in items:
            raise OSError("broken")

    worker = GroupWorker("test", handle)
    hold = worker.put("hold")
    assert entered.wait(120)
    pair = [worker.put("good"), worker.put("bad")]
    gate.set()
    await hold
    ends = await asyncio.gather(*pair, return_exceptions=True)
    assert [type(end) for end in ends] == [OSError, OSError]
    await worker.put("good")
    last = worker.put("good")
    await worker.close()
    assert last.done()
    assert last.exception() is None


async def test_a_pool_keeps_few_of_the_threads_that_hung_together() -> None:
    left: list[str] = []
    pool = HangTolerantPool("test", 16, lambda: left.append(threading.current_thread().name))
    hangs, arrived = threading.Event(), threading.Barrier(17)

    def hang() -> threading.Thread:
        arrived.wait(10)
        hangs.wait(10)
        return threading.current_thread()

    running = [await pool.start(hang) for _ in range(16)]
    await asyncio.to_thread(arrived.wait, 10)  # each has a thread of its own
    hangs.set()
    threads = await asyncio.gather(*running)
    assert len(set(threads)) == 16
    idle = await names_of_idle(pool)
    ends = [thread for thread in threads if thread.name not in idle]
    assert len(ends) == 16 - IDLE_MAX
    for thread in ends:
        thread.join(10)
        assert not thread.is_alive()
    assert {thread.name for thread in ends} == set(left), "and each did its last thing"
    await pool.close()
    assert not any(thread.is_alive() for thread in threads)
    assert len(left) == 16


async def names_of_idle(pool: HangTolerantPool) -> set[str]:
    """The names of the threads that the next calls get."""
    waits, names = threading.Event(), []
    running = []
    for _ in range(IDLE_MAX):
        def named() -> None:
            names.append(threading.current_thread().name)
            waits.wait(10)
        running.append(await pool.start(named))
    waits.set()
    await asyncio.gather(*running)
    return set(names)


@pytest.mark.parametrize("kind", ["alone", "in groups"])
async def test_the_last_thing_of_a_thread_is_done_on_it(kind: str) -> None:
    left: list[threading.Thread] = []

    def at_end() -> None:
        left.append(threading.current_thread())

    worker: Worker | GroupWorker[int] = Worker("test", at_end)
    if kind == "in groups":
        worker = GroupWorker("test", lambda _: None, at_end)
    await (worker.submit(lambda: 1) if isinstance(worker, Worker) else worker.put(1))
    await worker.close()
    assert [thread.name for thread in left] == ["test"]
