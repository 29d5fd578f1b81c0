"""Requests that arrive as in life: at random moments (Poisson), whatever the server does with the ones before.

What always holds: a request that finds no idle connection waits for one, in order, and keeps the moment at which it was meant
to leave; so a server that halts is charged with all that it kept waiting, and nothing is omitted because it was slow.
Where the generator itself gets no core in time, its lateness is a part of every latency, and is measured beside it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Timer:
    """Calls `ring` at a moment, exact to some ten microseconds: the timers of the event loop know milliseconds only, and their
    rounding would be a part of what is measured. Needs Linux; raises OSError where it gets no timer."""

    _libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._descriptor: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        asyncio.get_running_loop().add_reader(self._descriptor, self._rung)

    def set(self, in_s: float) -> None:
        """Rings once, `in_s` from now."""
        seconds, rest = divmod(max(1, int(in_s * 1e9)), 10**9)
        self._libc.timerfd_settime(self._descriptor, 0, (ctypes.c_long * 4)(0, 0, seconds, rest), None)

    def _rung(self) -> None:
        os.read(self._descriptor, 8)
        self._ring()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)


class Arrivals(Generic[Connection]):
    """Gives each arrival to an idle connection: `send(connection, due_s)`. Times are those of time.perf_counter."""

    def __init__(self, per_second: float, seed: int, send: Callable[[Connection, float], None]) -> None:
        self._per_second, self._send = per_second, send
        self._random = random.Random(seed)
        self._idle: deque[Connection] = deque()
        self._due: deque[float] = deque()  # waiting for a connection; empty while one is idle
        self._timer = Timer(self._arrive)
        self._next_s = self._from_s = self._until_s = 0.0
        self.unanswered = 0  # of the arrivals that are measured
        self.late_s = array("d")  # of the same: from the moment that was meant until this process came to it
        self.all_answered = asyncio.Event()  # after the end
        self._ended = False

    def start(self, warm_up_s: float, seconds: float) -> None:
        """Begins. What arrives within `seconds` after the warm-up is measured."""
        self._next_s = time.perf_counter()
        self._from_s = self._next_s + warm_up_s
        self._until_s = self._from_s + seconds
        self._arrive()

    def idle(self, connection: Connection) -> None:
        """This connection takes the next request."""
        if self._due:
            self._send(connection, self._due.popleft())
        else:
            self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """This connection takes no more requests."""
        if connection in self._idle:
            self._idle.remove(connection)

    def is_measured(self, due_s: float) -> bool:
        return self._from_s <= due_s < self._until_s

    def answered(self, due_s: float) -> bool:
        """The request that was due then has ended, well or not. False: it is not measured."""
        measured = self.is_measured(due_s)
        self.unanswered -= measured
        self._look()
        return measured

    def end(self) -> None:
        """Nothing arrives any more."""
        self._ended = True
        self._timer.close()
        self._look()

    def _look(self) -> None:
        if self._ended and not self.unanswered:
            self.all_answered.set()

    def _arrive(self) -> None:
        now_s = time.perf_counter()
        while self._next_s <= now_s:
            if self.is_measured(self._next_s):
                self.unanswered += 1
                self.late_s.append(now_s - self._next_s)
            if self._idle:
                self._send(self._idle.popleft(), self._next_s)
            else:
                self._due.append(self._next_s)
            self._next_s += self._random.expovariate(self._per_second)
        self._timer.set(self._next_s - time.perf_counter())
