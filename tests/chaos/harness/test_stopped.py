"""A signal stops a run whatever runs in its loop, in order, and is heard as Stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from chaos.harness.stopped import until_stopped
from gateway.stopping import Stopped, stopping


async def forgiving(ended: list[str]) -> None:
    """Work whose tasks and callbacks pass over any error, as those of a run may."""
    async def client() -> None:
        while True:
            with suppress(Exception):
                await asyncio.sleep(0)

    clients = [asyncio.create_task(client()) for _ in range(3)]
    try:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        for each in clients:
            each.cancel()
        os.kill(os.getpid(), signal.SIGTERM)  # somebody is impatient
        for _ in range(10):  # turns of the loop, which hears of it in one of them
            await asyncio.sleep(0)
        ended.append("in order")


def test_a_run_is_stopped_in_order_and_the_handlers_are_put_back() -> None:
    ended: list[str] = []
    with stopping():
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(Stopped):
            asyncio.run(until_stopped(forgiving(ended)))
        assert ended == ["in order"]
        assert signal.getsignal(signal.SIGINT) is before


def test_a_run_that_nobody_stops_gives_its_result() -> None:
    async def work() -> int:
        return 7

    assert asyncio.run(until_stopped(work())) == 7


def test_a_cancellation_that_is_no_signal_stays_one() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(until_stopped(work()))
