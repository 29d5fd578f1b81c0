"""Watches the pair for everybody who looks at the page: one look a second at each site, however many pages are open.

What always holds: nobody looks while no page needs it; a look at the other site never holds up one at this site; what could not
be seen has its reason, and what is shown of the other site has its age; the advice is the availability monitor's own, and
nothing is ordered here.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from gateway.service.port import SiteService
from gateway.ui.looks import SiteLook
from gateway.ui.rates import SiteRates, rates
from storage.clock import Clock
from switchover.monitor.findings import OTHER, Thresholds
from switchover.monitor.judgement import Advice
from switchover.monitor.views import SiteView
from switchover.monitor.watcher import Watcher
from switchover.operations.document import OperationDocument
from twinlog.errors import PeerError, TwinlogError, words

TICK_S = 1.0
TICK_RUNNING_S = 0.25  # while an operation runs
ADVICE_S = 2.0
NEEDED_S = 15.0  # after the last page
OLD_S = 3.0  # a look that is older is not shown to a page that is loaded
FIRST_S = 0.7  # how long a page waits for the first look at everything; its stream shows the rest
RATES_S = 5.0  # rates are of so long
OPERATIONS_SHOWN = 20
HELD = 150  # points of the curves: two minutes and a half
log = structlog.get_logger("twinlog.ui")


@dataclass(frozen=True, slots=True)
class Side:
    """One site as it was seen last. `look` None: it does not answer, as `error` says; `seen_s`: when it last did."""

    look: SiteLook | None = None
    error: str = ""
    is_refusal: bool = False  # it answered, and said no
    seen_s: float | None = None
    last: SiteLook | None = None  # as it last answered
    rates: SiteRates | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of the curves. None: not known."""

    at_s: float
    writes: float | None
    is_taken: bool | None  # some site took writes


@dataclass(frozen=True, slots=True)
class PairSeen:
    """The pair at one moment, by site `site`. `unwritten_s`: for how long no site that answers has taken writes; 0: one
    does, or the other site was not asked yet. `curve`: since somebody looks."""

    number: int
    site: str
    other: str
    at_s: float
    sides: Mapping[str, Side]
    advice: Advice | None
    unwritten_s: float
    curve: tuple[Point, ...] = ()
    operations: tuple[tuple[str, OperationDocument], ...] = ()  # the newest of both sites, each with its site, newest first
    faults: tuple[str, ...] = ()

    @property
    def own(self) -> SiteLook:
        look = self.sides[self.site].look
        assert look is not None, "a site sees itself"
        return look

    @property
    def silence(self) -> str:
        """Returns why the other site is silent, as it was seen a moment ago; empty: it answers."""
        side = self.sides[self.other]
        return side.error if side.look is None else ""

    @property
    def operation(self) -> tuple[str, OperationDocument] | None:
        """The operation that runs, and the site where it does."""
        for site, side in self.sides.items():
            if side.look is not None and side.look.operation is not None:
                return site, side.look.operation
        return None


@dataclass(slots=True)
class _Sampled:
    """The looks at one site that rates are made of, the oldest first."""

    looks: deque[tuple[float, SiteLook]] = field(default_factory=deque)

    def add(self, at_s: float, look: SiteLook) -> SiteRates | None:
        while self.looks and (at_s - self.looks[0][0] > RATES_S and len(self.looks) > 1):
            self.looks.popleft()
        first = self.looks[0] if self.looks else None
        self.looks.append((at_s, look))
        return rates(first[1], look, at_s - first[0]) if first is not None and at_s > first[0] else None


class PairWatch:
    """`clock` is the site's; `closing` is set when the door closes."""

    def __init__(self, service: SiteService, clock: Clock, closing: asyncio.Event) -> None:
        self._service, self._clock, self._closing = service, clock, closing
        self._site, self._other = service.site, OTHER[service.site]
        self._sides = {self._site: Side(), self._other: Side()}
        self._sampled = {self._site: _Sampled(), self._other: _Sampled()}
        self._advice: Advice | None = None
        self._written_s = clock.monotonic_s()
        self._operations: dict[str, list[OperationDocument]] = {}
        self._ran: dict[str, OperationDocument] = {}  # as it was seen last: it ends a moment before the journal is read again
        self._unread = {self._site, self._other}  # the sites whose operations may have changed since they were read
        self._followed: asyncio.Task[None] | None = None  # the operation that runs here
        self._curve: deque[Point] = deque(maxlen=HELD)
        self._faults: dict[str, str] = {}
        self._needed_s = 0.0
        self._pages = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: PairSeen | None = None
        self._number = 0
        self._changed = asyncio.Event()  # of the next look: each look has its own
        self._whole = asyncio.Event()  # both sites and the advice were looked at
        self._is_other_asked = False  # since somebody looks
        self._watcher = Watcher(
            (self._site, self._other), _Probe(self), clock, Thresholds(), act=False, report=lambda advice, became: None
        )

    # ---- for pages
    async def seen(self) -> PairSeen:
        """The pair now. A page that comes first waits for the first look, for FIRST_S at most."""
        self._need()
        if self._seen is None or self._clock.monotonic_s() - self._seen.at_s > OLD_S:
            try:
                async with asyncio.timeout(FIRST_S):
                    await self._whole.wait()
            except TimeoutError:  # what there is, is shown
                pass
            self._publish()
        assert self._seen is not None
        return self._seen

    async def follow(self) -> AsyncIterator[PairSeen]:
        """Yields the pair at each look, for as long as a page is open."""
        self._pages += 1
        number = 0
        try:
            while not self._closing.is_set():
                self._need()
                while self._number <= number and not self._closing.is_set():
                    await self._changed.wait()
                if self._seen is not None and self._number > number:
                    number = self._number
                    yield self._seen
        finally:
            self._pages -= 1

    def ask_again(self) -> None:
        """A change was asked for here: look at once."""
        self._unread.add(self._site)
        self._publish_own()

    # ---- looking
    def _need(self) -> None:
        self._needed_s = self._clock.monotonic_s()
        self._tasks = [task for task in self._tasks if not task.done()]
        if not self._tasks and not self._closing.is_set():
            self._whole.clear()
            self._forget_unseen()
            before = self._sides[self._other]
            self._sides[self._other] = Side(
                error=f"site {self._other} has not answered yet", seen_s=before.seen_s, last=before.last
            )
            self._advice = None
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._repeated(work, pause_s), name=f"page: {work.__name__}")
                for work, pause_s in (
                    (self._look_here, lambda: self._pace_s / 2), (self._look_there, lambda: self._pace_s),
                    (self._judge, lambda: ADVICE_S), (self._read_operations, lambda: self._pace_s),
                )
            ]

    def _forget_unseen(self) -> None:
        """Nobody looked meanwhile: whether writes were taken in that time, and how many, is not known."""
        self._written_s = max(self._written_s, self._needed_s)
        self._is_other_asked = False
        self._curve.clear()
        for sampled in self._sampled.values():
            sampled.looks.clear()

    @property
    def _is_needed(self) -> bool:
        return self._pages > 0 or self._clock.monotonic_s() - self._needed_s < NEEDED_S

    async def _repeated(self, work: Callable[[], Awaitable[None]], pause_s: Callable[[], float]) -> None:
        """A fault of the program ends no watch: it stands in the log and on the page."""
        while self._is_needed and not self._closing.is_set():
            try:
                await work()
                self._faults.pop(work.__name__, None)
            except Exception as error:
                log.error("the page cannot look", traceback=traceback.format_exc())
                self._faults[work.__name__] = f"a fault of this gateway, which is in its log: {words(error)}"
            await self._pause(pause_s())
        self._tell()

    @property
    def _pace_s(self) -> float:
        return TICK_RUNNING_S if self._seen is not None and self._seen.operation is not None else TICK_S

    def _tell(self) -> None:
        """Wakes every page that waits. None of them waits for another one, as they would for the lock of a condition."""
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    async def _pause(self, pause_s: float) -> None:
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait((closing,), timeout=pause_s)
        closing.cancel()

    async def _look_here(self) -> None:
        """A look at the other site shows this one, too: this is for the time in which that one does not answer."""
        if self._seen is None or self._clock.monotonic_s() - self._seen.at_s >= self._pace_s * 1.3:
            self._publish_own()
            self._tell()
        running = self.own.operation
        if running is not None and (self._followed is None or self._followed.done()):
            self._followed = asyncio.get_running_loop().create_task(self._follow(running.id), name="page: operation")

    async def _follow(self, operation_id: str) -> None:
        """Each step of an operation here is shown when it changes, and not at the next look."""
        with suppress(TwinlogError):  # the next look says why
            async for _ in self._service.operations.follow(operation_id):
                self._publish_own()
                self._tell()

    async def _read_operations(self) -> None:
        looks = self._service.looks
        for site in sorted(self._unread):
            if site == self._other and self._sides[site].look is None:
                continue  # when it answers again
            self._unread.discard(site)
            try:
                found = await (looks.operations() if site == self._site else looks.other_operations())
            except TwinlogError:
                self._unread.add(site)
            else:
                self._operations[site] = found.operations[:OPERATIONS_SHOWN]

    async def _look_there(self) -> None:
        try:
            look = await self._service.looks.other_now()
        except TwinlogError as error:
            before = self._sides[self._other]
            self._sides[self._other] = Side(
                error=error.message, is_refusal=not isinstance(error, PeerError), seen_s=before.seen_s, last=before.last
            )
        else:
            self._note(self._other, look)
        self._is_other_asked = True
        self._publish_own()  # both sites as they are at the same moment
        self._tell()

    def _note(self, site: str, look: SiteLook) -> None:
        now_s, before = self._clock.monotonic_s(), self._sides[site].look
        if before is None or _marks(before) != _marks(look):
            self._unread.add(site)
        found = self._sampled[site].add(now_s, look)
        self._sides[site] = Side(look, seen_s=now_s, last=look, rates=found)

    async def _judge(self) -> None:
        self._advice = await self._watcher.round()
        self._whole.set()

    @property
    def own(self) -> SiteLook:
        look = self._sides[self._site].look
        assert look is not None, "a site sees itself"
        return look

    def _publish_own(self) -> None:
        self._note(self._site, self._service.looks.now())
        self._publish()

    def _publish(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._sides[self._site].look is None:
            self._note(self._site, self._service.looks.now())
        is_taken = self._is_taken()
        if is_taken is not False:
            self._written_s = now_s
        self._number += 1
        if not self._curve or now_s - self._curve[-1].at_s >= TICK_S * 0.9:
            self._curve.append(Point(now_s, self._writes(), is_taken))
        self._seen = PairSeen(
            self._number, self._site, self._other, now_s, dict(self._sides), self._advice, now_s - self._written_s,
            tuple(self._curve), self._newest(), tuple(self._faults.values()),
        )

    def _is_taken(self) -> bool | None:
        if any(side.look is not None and side.look.cluster.serving.writes for side in self._sides.values()):
            return True
        return False if self._is_other_asked else None

    def _newest(self) -> tuple[tuple[str, OperationDocument], ...]:
        running = {
            side.look.operation.id: side.look.operation for side in self._sides.values()
            if side.look is not None and side.look.operation is not None
        }
        found = [(site, running.get(one.id, one)) for site, read in self._operations.items() for one in read]
        known = {one.id for _, one in found}
        for site, side in self._sides.items():
            if side.look is not None and side.look.operation is not None:
                self._ran[site] = side.look.operation
        found += [(site, one) for site, one in self._ran.items() if one.id not in known]
        return tuple(sorted(found, key=lambda one: -one[1].created_ms)[:OPERATIONS_SHOWN])

    def _writes(self) -> float | None:
        """Writes a second at both sites, since the look before: the rates of the page are of several seconds."""
        writes: float | None = None
        for site, sampled in self._sampled.items():
            if self._sides[site].look is None or len(sampled.looks) < 2:
                continue
            (before_s, before), (last_s, last) = sampled.looks[-2], sampled.looks[-1]
            if last_s <= before_s:
                continue
            found = rates(before, last, last_s - before_s)
            writes = (writes or 0.0) + (found.writes or 0.0)
        return writes

    # ---- for the judgement
    def side(self, site: str) -> Side:
        return self._sides[site]

    @property
    def service(self) -> SiteService:
        return self._service


def _marks(look: SiteLook) -> tuple[object, ...]:
    """Returns what differs where an operation has begun or ended."""
    return look.operation.id if look.operation is not None else None, look.cluster.epoch, look.cluster.role


class _Probe:
    """The availability monitor's SiteProbe from inside of one site: it looks, and orders nothing."""

    def __init__(self, watch: PairWatch) -> None:
        self._watch = watch

    async def alive(self, site: str) -> None:
        looks = self._watch.service.looks
        if site != self._watch.service.site:
            await looks.other_now()

    async def view(self, site: str) -> SiteView:
        looks = self._watch.service.looks
        return await (looks.view() if site == self._watch.service.site else looks.other_view())

    async def checks(self, site: str) -> Mapping[str, Any]:
        service = self._watch.service
        own = site == service.site
        found = await (service.operations.checks("failover") if own else service.looks.other_checks("failover"))
        built: Mapping[str, Any] = msgspec.to_builtins(found)
        return built

    async def order(self, site: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        raise PeerError("the page orders nothing by itself", site=site, sent=False)
