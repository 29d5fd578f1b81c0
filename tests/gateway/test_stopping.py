"""A signal ends what runs, wherever it arrives: also inside of a callback, a write or another task of an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gateway.stopping import Stopped, run_until_stopped, stopping


def signal_us() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Signalled(asyncio.Protocol):
    """A connection in the middle of whose bytes the signal arrives."""

    def data_received(self, data: bytes) -> None:
        signal_us()


async def in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(signal_us)


async def in_another_task() -> None:
    async def other() -> None:
        signal_us()

    asyncio.create_task(other()).add_done_callback(lambda done: done.exception())


async def in_a_connection() -> None:
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(Signalled, sock=ours)
    with theirs:
        theirs.send(b"x")


async def before_it_waits() -> None:
    signal_us()


@pytest.mark.parametrize("arrives", [in_a_callback, in_another_task, in_a_connection, before_it_waits])
def test_the_work_is_ended_and_puts_its_things_in_order(arrives: Callable[[], Coroutine[Any, Any, None]]) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await arrives()
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()
        finally:
            signal_us()  # a second one changes nothing
            await asyncio.sleep(0)
            done.append("in order")

    before = signal.getsignal(signal.SIGTERM)
    with stopping(), pytest.raises(Stopped):
        run_until_stopped(work())
    assert done == ["in order"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_comes_when_the_work_is_done_is_heard_as_well() -> None:
    async def work() -> str:
        signal_us()
        return "done"

    with pytest.raises(Stopped):
        run_until_stopped(work())


def test_an_error_on_the_way_out_is_the_cause() -> None:
    async def work() -> None:
        try:
            signal_us()
            await asyncio.Event().wait()
        finally:
            raise ValueError("not in order")

    with pytest.raises(Stopped) as ended:
        run_until_stopped(work())
    assert isinstance(ended.value.__cause__, ValueError)


def test_what_nobody_stops_returns_and_raises_as_it_does() -> None:
    async def work(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "done"

    assert run_until_stopped(work(None)) == "done"
    with pytest.raises(LookupError):
        run_until_stopped(work(LookupError()))
