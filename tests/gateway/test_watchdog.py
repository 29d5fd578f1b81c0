"""The watchdog counts ticks without an answer of the event loop, and no time: who was stopped and woken has missed one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.watchdog import TICK_S, TICKS_MAX, Ticks, watched
from tests.processes import wait_for
from twinlog.errors import NoThread


class Loop:
    """An event loop that answers when it is told to."""

    def __init__(self, ticks_max: int) -> None:
        self.asked = self.ended = 0
        self.ticks = Ticks(self._ask, self._end, ticks_max)

    def _ask(self) -> None:
        self.asked += 1

    def _end(self) -> None:
        self.ended += 1

    def pass_ticks(self, number: int) -> None:
        for _ in range(number):
            self.ticks.tick()


def test_a_loop_that_answers_each_time_is_never_ended() -> None:
    loop = Loop(3)
    for _ in range(100):
        loop.ticks.tick()
        loop.ticks.answer()
    assert (loop.asked, loop.ended) == (100, 0)


def test_a_loop_that_stands_is_ended_at_the_bound_and_is_asked_once() -> None:
    loop = Loop(3)
    loop.pass_ticks(3)  # the first one asks
    assert loop.ended == 0
    loop.pass_ticks(1)
    assert (loop.asked, loop.ended) == (1, 1)


def test_a_loop_that_answers_right_before_the_bound_has_all_ticks_again() -> None:
    loop = Loop(3)
    for _ in range(10):
        loop.pass_ticks(3)
        loop.ticks.answer()
    assert (loop.asked, loop.ended) == (10, 0)
    loop.pass_ticks(4)
    assert loop.ended == 1


def test_a_stop_of_any_length_is_one_tick() -> None:
    """The tick during which the process was stopped is as long as that, and the next one comes after the loop has answered."""
    loop = Loop(2)
    for _ in range(50):
        loop.pass_ticks(1)  # a question; stopped, and woken: two ticks at most until the loop runs, too
        loop.pass_ticks(1)
        loop.ticks.answer()
    assert loop.ended == 0


async def test_it_watches_the_loop_that_runs_and_no_longer_than_the_block() -> None:
    stood = threading.Event()
    with watched(stood.set, tick_s=0.001, ticks_max=10_000):
        assert "watchdog" in {thread.name for thread in threading.enumerate()}
        for _ in range(20):
            await asyncio.sleep(0.001)
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}
    assert not stood.is_set()


async def test_it_finds_a_loop_that_stands() -> None:
    stood = threading.Event()
    with watched(stood.set, tick_s=0.001, ticks_max=3):
        assert wait_for(stood.is_set), "the loop stands in this very call"


async def test_where_no_thread_can_be_started_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(NoThread, match="cannot start another thread"), watched(lambda: None):
        raise AssertionError("it was started")


def test_the_bound_is_above_what_anybody_waits_for_and_below_the_patience_of_people() -> None:
    assert 20.0 <= TICK_S * TICKS_MAX <= 60.0
