"""The simulated network: messages between places that are late, lost, doubled or cut off, and connections that keep order.

Places: "a" and "b" (a data centre: its gateway and its DFS), "w" (the witness: the coordinator), "c" (clients, operators).
What always holds: a caller hears by its deadline, in its own process; what serves a call runs where it belongs (servers in
no process, a gateway's code in its process), and never at once: a message takes its time, also within a place. Messages of
different calls overtake one another; those of one `Connection` never do. What is on its way when its link is cut is lost;
a connection sends it again when a silent cut has healed. Source: remote_log/replication/messages.py, protocol.md 5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from chaos.simulate.twins.loop import Handle, VirtualLoop
from chaos.simulate.twins.process import CURRENT, Process

PLACES = ("a", "b", "w", "c")
REFUSED_MAX_S = 0.5  # by then a refused or reset connection is known to be one
LATE_S = 0.15  # well below any deadline
RESENT_S = 0.2  # a lost packet of a connection is sent again, so that what follows is late

HowCut = Literal["silent", "refused"]
Failed = Callable[[str, bool], Exception]  # why, and whether the request may have reached its server
Serve = Callable[["CallInFlight"], None]


@dataclass(slots=True)
class Link:
    """One direction between two places. `loss` and `repeat` are probabilities; `cuts` and `resets` count how often it was
    cut, and how often not silently; `stalled` connections wait for it to heal."""

    base_s: float = 0.0005
    jitter_s: float = 0.001
    loss: float = 0.0
    repeat: float = 0.0
    repeat_late_s: float = 2.0  # a repeated message comes so much later, at most
    cut: HowCut | None = None
    cuts: int = 0
    resets: int = 0
    stalled: list[Connection] = field(default_factory=list)


class Network:
    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.draw = random.random
        self._links = {(src, dst): Link() for src in PLACES for dst in PLACES}
        self._served: dict[CallInFlight, None] = {}  # calls that a process is at
        self.missed_s: dict[tuple[str, str], float] = {}  # by caller and called: when one was lost or late

    # ---- faults
    def link(self, src: str, dst: str) -> Link:
        """To turn its knobs; cut it with `cut`."""
        return self._links[src, dst]

    def between(self, one: str, other: str) -> tuple[Link, Link]:
        return self._links[one, other], self._links[other, one]

    def cut(self, src: str, dst: str, how: HowCut = "silent") -> None:
        """Nothing from `src` arrives at `dst`, also what is on its way. "silent": nobody hears so; "refused": callers do."""
        link = self._links[src, dst]
        link.cut = how
        link.cuts += 1
        if how == "refused":
            link.resets += 1
            self._resume(link)

    def isolate(self, place: str, how: HowCut = "silent") -> None:
        """Cut `place` off from every other one, both ways."""
        for other in PLACES:
            if other != place:
                self.cut(place, other, how)
                self.cut(other, place, how)

    def heal(self, src: str | None = None, dst: str | None = None) -> None:
        """Repair the link; all that leave `src`, come to `dst`, or all there are, where one is not given. Other knobs stay."""
        for (one, other), link in self._links.items():
            if src in (None, one) and dst in (None, other):
                link.cut = None
                self._resume(link)

    def reset(self, process: Process) -> None:
        """`process` was killed: who waits for its answers hears that the connection broke. (A lost machine says nothing.)"""
        for call in [call for call in self._served if call.server is process]:
            del self._served[call]
            call.break_off("the connection was reset", sent=True)

    def _resume(self, link: Link) -> None:
        stalled, link.stalled = link.stalled, []
        for connection in stalled:
            self.loop.outside(self.draw() * RESENT_S, connection.resume)

    # ---- calls
    def call(
        self, src: str, dst: str, serve: Serve, timeout_s: float, failed: Failed, *, may_repeat: bool = False
    ) -> asyncio.Future[Any]:
        """`serve` runs at `dst` when the request arrives there (again for a repeated one), outside any process.

        The future ends with what it gives to the call's `answer` or `fail`, or with what `failed` makes of a broken
        connection or a deadline.
        """
        call = CallInFlight(self, src, dst, timeout_s, failed)
        link = self._links[src, dst]
        call.send(link, serve, call.lost_request, call)
        if may_repeat and link.repeat and self.draw() < link.repeat:
            self.loop.outside(self.draw() * link.repeat_late_s, call.send, link, serve, call.lost_request, call)
        return call.future

    def miss(self, src: str, dst: str) -> None:
        """Notes that a call from `src` to `dst`, or its answer, does not arrive in time."""
        self.missed_s[src, dst] = self.loop.now_s

    def delay_s(self, link: Link) -> float:
        return link.base_s + link.jitter_s * self.draw()

    def loses(self, link: Link) -> bool:
        return link.loss > 0 and self.draw() < link.loss


class CallInFlight:
    """One call on its way. `server`: the process that serves it, once it is there."""

    __slots__ = ("_deadline", "_failed", "_network", "_process", "dst", "future", "server", "src")

    def __init__(self, network: Network, src: str, dst: str, timeout_s: float, failed: Failed) -> None:
        self._network, self._failed = network, failed
        self.src, self.dst = src, dst
        self.server: Process | None = None
        self._process = CURRENT.get()
        loop = network.loop
        self.future: asyncio.Future[Any] = loop.create_future()
        # in the caller's process: while that is paused, an answer overtakes the deadline
        self._deadline: Handle = loop.call_later(timeout_s, self._expire, timeout_s)

    # ---- for the server
    def answer(self, result: Any = None, after_s: float = 0.0) -> None:
        self._reply(result, None, after_s)

    def fail(self, error: Exception, after_s: float = 0.0) -> None:
        self._reply(None, error, after_s)

    def refuse(self) -> None:
        """Nobody listens here: the caller may be sure that nothing has happened."""
        self.fail(self._failed(f"nobody listens at {self.dst}", False))

    def run_in(self, process: Process | None, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Let `work` run in `process`, and answer with its end; killed meanwhile, nothing answers. None: nobody listens."""
        if process is None or process.killed:
            self.refuse()
            return
        self.server = process
        self._network._served[self] = None
        process.spawn(self._run(work), "call")

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            result = await work()
        except Exception as error:
            self.fail(error)
        else:
            self.answer(result)

    def _reply(self, result: Any, error: Exception | None, after_s: float) -> None:
        network = self._network
        network._served.pop(self, None)
        self.send(network._links[self.dst, self.src], self._end, self._lost_answer, result, error, after_s=after_s)

    # ---- on its way, in no process
    def send(
        self, link: Link, deliver: Callable[..., None], lost: Callable[[HowCut], None], *args: Any, after_s: float = 0.0
    ) -> None:
        network = self._network
        if link.cut is not None:
            network.miss(self.src, self.dst)
            lost(link.cut)
        elif link.loss and network.loses(link):
            network.miss(self.src, self.dst)
        else:
            delay_s = after_s + (link.base_s + link.jitter_s * network.draw())  # as `delay_s`, by no call of ours
            if delay_s > LATE_S:
                network.miss(self.src, self.dst)
            network.loop.outside(delay_s, self._deliver, link, link.cuts, deliver, lost, args)

    def _deliver(
        self, link: Link, cuts: int, deliver: Callable[..., None], lost: Callable[[HowCut], None], args: tuple[Any, ...]
    ) -> None:
        if link.cuts == cuts:
            deliver(*args)
        else:
            self._network.miss(self.src, self.dst)
            lost(link.cut or "silent")

    def lost_request(self, how: HowCut) -> None:
        if how == "refused":
            self.break_off(f"{self.dst} cannot be reached from {self.src}", sent=False)

    def _lost_answer(self, how: HowCut) -> None:
        if how == "refused":
            self.break_off("the connection broke before the answer", sent=True)

    def break_off(self, why: str, *, sent: bool) -> None:
        network = self._network
        network.loop.outside(network.random.random() * REFUSED_MAX_S, self._end, None, self._failed(why, sent))

    def _expire(self, timeout_s: float) -> None:
        self._network.miss(self.src, self.dst)
        self._end(None, self._failed(f"no answer from {self.dst} in {timeout_s} s", True))

    def _end(self, result: Any, error: Exception | None) -> None:
        self._deadline.cancel()
        end(self.future, self._process, result, error)


class Connection:
    """One direction of a connection: what is sent arrives in order, however late, until the connection is broken."""

    def __init__(self, network: Network, src: str, dst: str, on_broken: Callable[[str], None]) -> None:
        self._network, self._link = network, network.link(src, dst)
        self._on_broken = on_broken
        self._name = f"{src} to {dst}"
        self._last_s = 0.0
        self._on_way: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._due = 0  # of them should have arrived
        self._stalled = False
        self.broken = False

    def send(self, deliver: Callable[..., None], *args: Any, after_s: float = 0.0) -> None:
        """`deliver` is called in no process, `after_s` later than the way alone would take."""
        network, link = self._network, self._link
        if self.broken:
            return
        if link.cut == "refused":
            self._break()
            return
        loop = network.loop
        delay_s = after_s + network.delay_s(link)
        if network.loses(link):
            delay_s += RESENT_S * (1 + network.random.random())
        self._last_s = arrival_s = max(self._last_s, loop.now_s + delay_s)
        self._on_way.append((link.resets, deliver, args))
        loop.outside(arrival_s - loop.now_s, self._arrive)

    def _arrive(self) -> None:
        self._due += 1
        if not self._stalled:
            self._deliver()

    def resume(self) -> None:
        self._stalled = False
        self._deliver()

    def _deliver(self) -> None:
        link = self._link
        while self._due and not self.broken:
            if link.cut == "silent":
                self._stalled = True
                link.stalled.append(self)
                return
            self._due -= 1
            resets, deliver, args = self._on_way.popleft()
            if resets == link.resets:
                deliver(*args)
            else:
                self._break()

    def _break(self) -> None:
        self.broken = True
        self._on_way.clear()
        network = self._network
        network.loop.outside(
            network.random.random() * REFUSED_MAX_S, self._on_broken, f"the connection from {self._name} broke"
        )


def end(future: asyncio.Future[Any], process: Process | None, result: Any, error: BaseException | None) -> None:
    """End what `process` waits for, unless it was given up or is never looked at again."""
    if future.done() or (process is not None and process.killed):
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()  # who waits for it may be killed before it looks: that is no fault

