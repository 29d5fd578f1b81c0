"""An event loop on virtual time: no thread, no file descriptor, no waiting. What asyncio needs, and nothing else.

What always holds: callbacks run in the order in which they became due, ties in the order in which they were asked for, so a
run is a function of what it is given; time moves only when nothing else can run, straight to the next timer; what would
need a thread or a socket raises; a killed process takes no further step, a paused one takes its steps when it continues.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar, cast

import msgspec

from chaos.simulate.twins.process import CURRENT, Process

Result = TypeVar("Result")
LISTS = ("_all_tasks", "_scheduled_tasks")  # of asyncio.tasks: until Python 3.11, and from 3.12 on


class Stuck(Exception):
    """Nothing can run any more, and what is waited for has not happened."""


class Handle(msgspec.Struct, eq=False):
    """A callback that is due, or will be."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None


class _Task(asyncio.Task[Any]):
    """Its hash is a number and no address, so that a set of tasks has the same order in every run."""

    number = 0  # until its loop has made it

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.AbstractEventLoop):
    """`now_s` is seconds since the beginning of the run."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.errors: list[BaseException | str] = []  # exceptions that nobody took: faults of ours
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self.next_number = count(1).__next__  # of what was asked for
        self._halted: set[Process] = set()  # paused or killed: looked at for each step, so killed ones leave when they can
        self._held: dict[Process, list[Handle]] = {}
        self._outside = Context()
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]  # no call of ours, as above
        self._processes: list[Process] = []
        self._over = False

    # ---- what asyncio calls
    def time(self) -> float:
        return self.now_s

    get_debug = staticmethod(bool)  # False, by no call of ours: every future asks

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, copy_context() if context is None else context)
        if when > self.now_s:
            heappush(self._timers, (when, self.next_number(), handle))
        else:
            self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, copy_context() if context is None else context)
        now_s = self.now_s
        if (when_s := now_s + delay) > now_s:
            heappush(self._timers, (when_s, self.next_number(), handle))
        else:
            self._ready.append(handle)
        return handle

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Result], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Result]:
        if self._over:  # a `finally` block wants one: it would never run
            coro.close()
            ended = self.create_future()
            ended.cancel()
            return cast("asyncio.Task[Result]", ended)
        context = copy_context() if context is None else context
        task = _Task(coro, loop=self, name=name or "task", context=context)
        task.number = self.next_number()
        process = context.get(CURRENT)
        if process is not None:
            if not process.tasks:
                self._processes.append(process)
            process.keep(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or context["message"])

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # ---- processes
    def outside(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Call back after `delay_s`, in no process: what disks, networks and servers do, whatever became of who asked."""
        handle = Handle(callback, args, self._outside)
        now_s = self.now_s
        if (when_s := now_s + delay_s) > now_s:
            heappush(self._timers, (when_s, self.next_number(), handle))
        else:
            self._ready.append(handle)
        return handle

    def alarm(self, delay_s: float) -> tuple[asyncio.Future[None], Handle]:
        """A future that ends after `delay_s`, in the caller's process, and the timer that ends it: what a sleep is made of."""
        future: asyncio.Future[None] = self.create_future()
        return future, self.call_later(delay_s, _end, future)

    def pause(self, process: Process) -> None:
        """SIGSTOP: it takes no step until `go_on`. Its timers run out meanwhile."""
        if not process.paused:
            process.stopped_s = self.now_s
        process.paused = True
        self._halted.add(process)
        self._held.setdefault(process, [])

    def go_on(self, process: Process) -> None:
        process.paused, process.resumed_s = False, self.now_s
        held = self._held.pop(process, [])
        if not process.killed:
            self._halted.discard(process)
            self._ready.extend(held)

    def kill(self, process: Process) -> None:
        """SIGKILL, between two steps."""
        process.killed = True
        self._held.pop(process, None)
        self._halted.add(process)

    # ---- running
    def run(self, work: Coroutine[Any, Any, Result], *, steps_max: int) -> Result:
        """`work` to its end. Raises what it raises, and Stuck when it cannot end, or not within `steps_max` steps."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            with _unlisted():
                main = self.create_task(work, name="main", context=Context())
                self._run_until(main, steps_max)
            return main.result()
        finally:
            events._set_running_loop(before)

    def let_go(self) -> None:
        """The run is over: close what still waits, here and now and not when the collector comes by. Its `finally` blocks run,
        to no effect, for nothing is run any more; what they raise is of no interest."""
        self._over = True
        self._ready.clear()
        self._timers.clear()
        self._held.clear()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._close_all()
        finally:
            events._set_running_loop(before)
        self._ready.clear()
        self._timers.clear()

    def _close_all(self) -> None:
        for process in self._processes:
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(BaseException):
                        task.get_coro().close()
            process.tasks.clear()

    def _run_until(self, main: asyncio.Task[Any], steps_max: int) -> None:
        """One step after the other. Every step of a run passes here: what it needs is at hand."""
        ready, halted, held, outside = self._ready, self._halted, self._held, self._outside
        next_step, is_done = ready.popleft, main.done
        for _ in range(steps_max):
            if is_done():
                return
            handle = next_step() if ready else self._next_moment()
            callback, context = handle.callback, handle.context
            if callback is None:
                continue
            if halted and context is not outside and (process := context.get(CURRENT)) in halted:
                if not process.killed:
                    held[process].append(handle)
                continue
            try:
                context.run(callback, *handle.args)
            except Exception as error:
                self.errors.append(error)
        raise Stuck(f"not done after {steps_max} steps, at {self.now_s:.3f} s")

    def _next_moment(self) -> Handle:
        """Nothing is left to do now: on to the next timer. What is due with it is ready behind it."""
        timers = self._timers
        handle: Handle | None = None
        while handle is None or handle.callback is None:
            if not timers:
                raise Stuck(f"nothing can run any more, at {self.now_s:.3f} s")
            now_s, _, handle = heappop(timers)
        self.now_s = now_s
        while timers and timers[0][0] == now_s:
            self._ready.append(heappop(timers)[2])
        return handle


@contextmanager
def _unlisted() -> Iterator[None]:
    """asyncio lists each task in a set of weak references, where `all_tasks` looks. Nobody asks for that here, and it costs a
    fortieth of a run."""
    listed = [tasks for name in LISTS if (tasks := getattr(asyncio.tasks, name, None)) is not None]
    for tasks in listed:
        tasks.add = bool  # a call in C without effect
    try:
        yield
    finally:
        for tasks in listed:
            del tasks.add


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
