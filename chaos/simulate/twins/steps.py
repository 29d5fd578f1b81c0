"""Faults at steps: a site is killed, stopped or misled right before or right after a named call of one of its ports.

A fault at a random time seldom falls between two steps of a role change, which take a millisecond of a run of seconds. Here a
plan names the step. What always holds: a step that nobody armed costs no virtual time and no randomness; each fault strikes
once; a process that is killed at a step takes no further one. Points are `<port>.<call>.before|after`, and the failpoints of
the product by their own names.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from storage.failpoints import Failpoints
from twinlog.errors import DfsError, PeerError, SyncFailed, TwinlogError, Unavailable


@runtime_checkable
class Abandonable(Protocol):
    """A thing that a port has opened. One that fails, or is given up, closes what nobody got."""

    def abandon(self) -> None: ...


Strike = Callable[[Process], None]  # done to the world at the step; the process may be killed or paused by it

REFUSALS: dict[str, Callable[[str], TwinlogError]] = {
    "own_dfs": lambda point: DfsError(f"injected: {point}"),
    "peer_dfs": lambda point: DfsError(f"injected: {point}"),
    "transport": lambda point: PeerError(f"injected: {point}", sent=True),
    "coordinator": lambda point: Unavailable(f"injected: {point}", waiting_for="coordinator", sent=True),
    "files": lambda point: SyncFailed(f"injected: {point}"),
}


class Trap:
    """A trap acts at the `nth` hit of `point` from now on: `strike`, then `delay_s` of waiting, then perhaps an error. It may
    be set at both sites, and strikes the first that comes there."""

    def __init__(self, point: str, nth: int, strike: Strike | None = None, delay_s: float = 0.0, fails: bool = False) -> None:
        self.point, self.nth, self.strike, self.delay_s, self.fails = point, nth, strike, delay_s, fails


class Steps:
    """The steps of one site. `census` counts the points that were passed. `note` gets each strike."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._traps: list[Trap] = []
        self.census: defaultdict[str, int] = defaultdict(int)
        self._awaited: dict[type, dict[str, bool]] = {}

    def awaited(self, kind: type) -> dict[str, bool]:
        """Returns what is known of the names of such a port: whether it is a call that is awaited. Kept for this run only: a
        planted bug may change the class."""
        return self._awaited.setdefault(kind, {})

    def arm(self, trap: Trap) -> None:
        self._traps.append(trap)

    def clear(self) -> None:
        self._traps.clear()

    def hit(self, point: str, process: Process) -> Trap | None:
        """Returns the trap that is for this point, and has yet to strike."""
        self.census[point] += 1
        for trap in self._traps:
            if trap.point == point and trap.nth > 0:
                trap.nth -= 1
                if trap.nth == 0:
                    self._note(f"at step {point} of {process.name}")
                    return trap
        return None

    async def strike(self, trap: Trap, process: Process) -> None:
        """Raises what the port raises when its call fails."""
        if trap.strike is not None:
            trap.strike(process)
        if process.killed:
            await asyncio.get_running_loop().create_future()
        if process.paused or trap.delay_s:
            await asyncio.sleep(trap.delay_s)
        if trap.fails:
            raise REFUSALS[trap.point.partition(".")[0]](trap.point)


class StepFailpoints(Failpoints):
    """The product's own failpoints, for one life of a process. What strikes at one does so once the code there waits: it
    cannot be stopped in the middle."""

    def __init__(self, steps: Steps, process: Process, loop: VirtualLoop) -> None:
        self._steps, self._process, self._loop = steps, process, loop

    def hit(self, name: str) -> None:
        trap = self._steps.hit(name, self._process)
        if trap is not None and trap.strike is not None:
            self._loop.outside(0.0, trap.strike, self._process)


class Stepped:
    """A port, for one life of a process: every call of it that is awaited has a point before and after it."""

    def __new__(cls, port: Any, *_: object) -> Stepped:
        values = tuple(name for name in vars(port) if not name.startswith("_")) if hasattr(port, "__dict__") else ()
        return object.__new__(_shows(port.__class__, values))

    def __init__(self, port: Any, name: str, steps: Steps, process: Process) -> None:
        self._port, self._name, self._steps, self._process = port, name, steps, process
        self._awaited = steps.awaited(type(port))

    def __getattr__(self, name: str) -> Any:
        value, awaited = getattr(self._port, name), self._awaited.get(name)
        if awaited is None:
            awaited = self._awaited[name] = inspect.iscoroutinefunction(getattr(type(self._port), name, None))
        if not awaited:
            return value
        stepped = self._around(f"{self._name}.{name}", value)
        self.__dict__[name] = stepped
        return stepped

    def _around(self, point: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        hit, process, steps = self._steps.hit, self._process, self._steps
        by_method, before, after = point == "transport.call", f"{point}.before", f"{point}.after"

        async def call(*args: Any, **named: Any) -> Any:
            trap = hit(f"transport.{args[0]}.before" if by_method else before, process)
            if trap is not None:
                await steps.strike(trap, process)
            result = await method(*args, **named)
            trap = hit(f"transport.{args[0]}.after" if by_method else after, process)
            if trap is None:
                return result
            try:
                await steps.strike(trap, process)
            except BaseException:
                if isinstance(result, Abandonable):
                    result.abandon()
                raise
            return result

        return call


@cache
def _shows(kind: type, values: tuple[str, ...]) -> type[Stepped]:
    """Returns a class that also shows what is not called at such a port, properties and `values`, by no call of ours."""
    shown = {name for name, value in inspect.getmembers_static(kind) if isinstance(value, property)}
    shown.update(name for name in values if not inspect.iscoroutinefunction(getattr(kind, name, None)))
    return type(Stepped.__name__, (Stepped,), {name: property(attrgetter(f"_port.{name}")) for name in sorted(shown)})
