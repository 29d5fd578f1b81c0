"""Threads that take turns by a schedule: one runs at a time, and at each line of the watched code another one may continue.

What always holds: a run is a function of its choices; a thread that waits (for a queue, for the end of another thread, for the
event loop to be woken) runs again only when what it waits for is there; time passes only where the schedule says so, or when
nobody else can run; when nobody can run at all, the run ends with Deadlock. Real threads take the turns, so the watched code is
the product's own. A switch inside a line is not tried.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import Empty
from types import FrameType, ModuleType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
_STEPS_MAX = 20_000


class Deadlock(Exception):
    """Every thread waits, and nothing will wake one of them."""


class _Over(BaseException):
    """Ends a thread that the run has left behind."""


class _Turn:
    """One thread. `ready` None: it can run; else it can when that says so. `due_s`: or when this time has come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None
        self.due_s: float | None = None
        self.ended = False

    def runs(self) -> bool:
        return not self.ended and (self.ready is None or self.ready())


class Scheduler:
    """`choices`: which of those that can run continues, at each place where there are several; then always the first.
    `watched`: names of source files. `taken`: for each such place the choice, and what each one there costs: 1 where it takes
    the turn from a thread that could run, or lets time pass while somebody could."""

    def __init__(self, choices: Sequence[int], watched: Iterable[str]) -> None:
        self._choices, self._watched = choices, frozenset(watched)
        self.taken: list[tuple[int, tuple[int, ...]]] = []
        self.errors: list[BaseException] = []  # of threads that they ended
        self.now_s = 0.0
        self._turns: list[_Turn] = []
        self._of = threading.local()
        self._over = False
        self._steps = 0

    # ---- the program
    def run(self, main: Callable[[], Any]) -> None:
        """`main` in this thread, with all threads that it starts. Raises what it raises, and Deadlock."""
        self._turns.append(turn := _Turn("loop"))
        self._of.turn = turn
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            main()
        finally:
            sys.settrace(before)
            self._over, turn.ended = True, True
            for other in self._turns[1:]:
                other.gate.release()
        if self.errors:
            raise self.errors[0]

    def start(self, name: str, target: Callable[[], None]) -> _Turn:
        self._turns.append(turn := _Turn(name))

        def run() -> None:
            self._of.turn = turn
            turn.gate.acquire()
            sys.settrace(self._trace)
            try:
                if not self._over:
                    target()
            except _Over:
                pass
            except BaseException as error:
                self.errors.append(error)
            finally:
                sys.settrace(None)
                turn.ended = True
                if not self._over:
                    self._hand_over(turn)

        threading.Thread(target=run, name=name, daemon=True).start()
        return turn

    def wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> None:
        """The running thread waits until `ready`, or until so much time has passed."""
        turn: _Turn = self._of.turn
        turn.ready, turn.due_s = ready, None if timeout_s is None else self.now_s + timeout_s
        self._hand_over(turn)
        turn.ready = turn.due_s = None

    def point(self) -> None:
        """Another thread may continue here."""
        if not self._over:
            self._hand_over(self._of.turn)

    # ---- turns
    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._watched:
            return None
        if event == "line":
            self.point()
        return self._trace

    def _hand_over(self, turn: _Turn) -> None:
        if not self._over and (following := self._next(turn)) is not turn:
            following.gate.release()
            if turn.ended:
                return  # the others run from here on, and may be over before this thread is
            turn.gate.acquire()
        if self._over:
            raise _Over
        if turn is self._turns[0] and (self._steps > _STEPS_MAX or (not turn.runs() and turn.due_s is None)):
            waiting = [other.name for other in self._turns if not other.ended]
            raise Deadlock(f"after {self._steps} steps these wait: {waiting}")

    def _next(self, turn: _Turn) -> _Turn:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            return self._turns[0]
        free = [other for other in self._turns if other is not turn and other.runs()]
        sleeping = sorted((other for other in self._turns if other.due_s is not None and not other.runs()), key=_due_s)
        costs = [0, *(1 for _ in free)] if turn.runs() else [0 for _ in free]
        options = [turn, *free] if turn.runs() else free
        if sleeping:
            options, costs = [*options, sleeping[0]], [*costs, int(bool(options))]
        if not options:
            return self._turns[0]  # it finds that nobody can run
        chosen = options[self._choose(tuple(costs))]
        if not chosen.runs():
            self.now_s = max(self.now_s, _due_s(chosen))
        return chosen

    def _choose(self, costs: tuple[int, ...]) -> int:
        if len(costs) == 1:
            return 0
        at = len(self.taken)
        choice = self._choices[at] if at < len(self._choices) else 0
        self.taken.append((choice, costs))
        return choice


def _due_s(turn: _Turn) -> float:
    assert turn.due_s is not None
    return turn.due_s


class ScheduledQueue(Generic[Item]):
    """SimpleQueue under a schedule."""

    scheduler: Scheduler

    def __init__(self) -> None:
        self._items: deque[Item] = deque()

    def put(self, item: Item) -> None:
        self.scheduler.point()
        self._items.append(item)

    def get(self) -> Item:
        self.scheduler.wait(lambda: bool(self._items))
        return self._items.popleft()

    def get_nowait(self) -> Item:
        self.scheduler.point()
        if not self._items:
            raise Empty
        return self._items.popleft()


class ScheduledThread:
    """threading.Thread under a schedule."""

    scheduler: Scheduler

    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        assert daemon
        self._target, self._name = target, name

    def start(self) -> None:
        self._turn = self.scheduler.start(self._name, self._target)

    def join(self) -> None:
        self.scheduler.wait(lambda: self._turn.ended)


class ScheduledLoop(asyncio.BaseEventLoop):
    """An event loop whose sleep ends when another thread wakes it, or with time."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler, self._woken = scheduler, False
        self._selector = self

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._scheduler.wait(lambda: self._woken, timeout)
        self._woken = False
        return []

    def _write_to_self(self) -> None:
        self._scheduler.point()
        self._woken = True

    def _process_events(self, _: list[Any]) -> None:
        pass

    def time(self) -> float:
        return self._scheduler.now_s


def scheduled(module: ModuleType, scheduler: Scheduler) -> None:
    """`module` takes its threads and queues from `scheduler`: a copy of a module, never the one that others use."""
    parts: dict[str, Any] = {
        "SimpleQueue": type("Queue", (ScheduledQueue,), {"scheduler": scheduler}),
        "threading": ModuleType("threading"),
    }
    parts["threading"].__dict__["Thread"] = type("Thread", (ScheduledThread,), {"scheduler": scheduler})
    module.__dict__.update({name: part for name, part in parts.items() if name in module.__dict__})
