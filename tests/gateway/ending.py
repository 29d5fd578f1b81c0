"""A process that a gateway's fail-stop is to end, or not: `python -m tests.gateway.ending CASE`. It says `ready` first."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import uvloop

import gateway.fail_stop
from gateway.fail_stop import guarded
from storage.disk.workers import GroupWorker, Worker

TICK_S, TICKS_MAX = 0.05, 6
FOR_EVER = threading.Event()


def no_memory(*args: object) -> None:
    raise MemoryError


async def the_loop_stands() -> None:
    FOR_EVER.wait()


async def standard_error_is_full() -> None:
    """Nobody reads it: the process that started this one."""
    gateway.fail_stop.LAST_WORDS_S = 0.2
    os.set_blocking(2, False)
    try:
        while os.write(2, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(2, True)
    FOR_EVER.wait()


async def a_worker_cannot_say_what_came_of_it() -> None:
    worker = Worker("test")
    await worker.submit(lambda: 1)
    worker._finish = no_memory  # type: ignore[method-assign]
    await worker.submit(lambda: 2)


async def a_group_worker_cannot_say_what_came_of_it() -> None:
    worker = GroupWorker[int]("test", lambda items: None)
    await worker.put(1)
    worker._finish = no_memory  # type: ignore[method-assign]
    await worker.put(2)


async def a_thread_fails_at_its_birth() -> None:
    threading.Thread._set_ident = no_memory  # type: ignore[attr-defined]
    await Worker("test").submit(lambda: 1)


async def an_executor_cannot_say_what_came_of_it() -> None:
    await asyncio.to_thread(lambda: 1)
    Future.set_result = no_memory  # type: ignore[method-assign]
    await asyncio.to_thread(lambda: 2)


async def an_executor_cannot_wake_the_loop() -> None:
    class Short:
        is_closed = staticmethod(lambda: False)
        call_soon_threadsafe = staticmethod(no_memory)

    asyncio.futures._get_loop = lambda future: Short()  # type: ignore[attr-defined]
    await asyncio.to_thread(lambda: 1)


async def a_callback_gets_no_memory() -> None:
    asyncio.get_running_loop().call_soon(no_memory)
    await asyncio.Event().wait()


async def a_task_gets_no_memory() -> None:
    """It has ended with its error, and whoever waits for it is told."""
    async def work() -> None:
        raise MemoryError

    await asyncio.gather(asyncio.create_task(work()), return_exceptions=True)
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    del task  # nobody has asked for it: the loop's handler hears of it
    await it_turns_until_its_input_ends()


async def it_turns_until_its_input_ends() -> None:
    line = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(0, lambda: line.done() or line.set_result(sys.stdin.readline()))
    await line
    asyncio.get_running_loop().remove_reader(0)


CASES: dict[str, Callable[[], Awaitable[None]]] = {case.__name__: case for case in (
    the_loop_stands, standard_error_is_full, a_worker_cannot_say_what_came_of_it, a_group_worker_cannot_say_what_came_of_it,
    a_thread_fails_at_its_birth, an_executor_cannot_say_what_came_of_it, an_executor_cannot_wake_the_loop,
    a_callback_gets_no_memory, a_task_gets_no_memory, it_turns_until_its_input_ends,
)}


async def _main(case: str) -> None:
    print("ready", flush=True)  # noqa: T201
    await CASES[case]()
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    uvloop.run(guarded(_main(sys.argv[1]), "site test", tick_s=TICK_S, ticks_max=TICKS_MAX))
