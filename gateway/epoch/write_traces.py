"""The spans of the sampled writes of one epoch: each log, the storage, and the way to the other site.

What always holds: it only looks: the commit log calls it where traces are on, and decides nothing by it; every span ends, with
the epoch at the latest; it holds at most `FRAMES_MAX` frames, so that a log or a site that is away for long costs no memory.
A frame may carry several sampled writes; each has its own spans, for each is a trace of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gateway.epoch.pending import Pending
from gateway.service.histogram import Histogram
from storage.clock import Clock
from storage.log.frame import Frame
from storage.tracing import Span, Tracer

FRAMES_MAX = 1024  # that are under way, and that wait to be shipped
WAL, REMOTE, APPLY, SHIP = "wal append and sync", "remote log append and sync", "apply", "ship to the other site"


class _TracedFrame:
    """One frame with sampled writes, by their contexts: the spans of what is under way for it."""

    __slots__ = ("begun_s", "is_applied", "last_seq", "open", "writes")

    def __init__(self, last_seq: int, writes: list[str]) -> None:
        self.last_seq, self.writes = last_seq, writes
        self.is_applied = False
        self.open: dict[str, list[Span]] = {}
        self.begun_s: dict[str, float] = {}


class WriteTraces:
    """The traces of one epoch's writes. A histogram that is given keeps the trace of a duration beside its count."""

    def __init__(self, tracer: Tracer, epoch: int, clock: Clock) -> None:
        self._tracer, self._epoch, self._clock = tracer, epoch, clock
        self._under_way: deque[_TracedFrame] = deque()  # in the order of sequence
        self._to_ship: deque[_TracedFrame] = deque(maxlen=FRAMES_MAX)

    def framed(self, frame: Frame, members: Sequence[Pending], logs: Sequence[str]) -> None:
        """These requests are in `frame`, which goes to `logs` now."""
        writes = [pending.trace_context for pending in members if pending.trace_context]
        if not writes:
            return
        if len(self._under_way) >= FRAMES_MAX:
            self._end(self._under_way.popleft(), "forgotten")
        work = _TracedFrame(frame.last_seq, writes)
        self._under_way.append(work)
        for log in logs:
            self._begin(work, log, seq=frame.last_seq, frame_bytes=len(frame.data), requests=len(members))

    def synced(self, log: str, seq: int, durations: Histogram) -> None:
        """A log holds everything up to `seq`."""
        for work in self._under_way:
            if work.last_seq > seq:
                return
            self._done(work, log, durations)

    def applying(self, frames: Sequence[Frame]) -> None:
        """The storage takes these frames now."""
        upto = frames[-1].last_seq
        for work in self._under_way:
            if work.last_seq > upto:
                return
            if work.is_applied:  # its remote append is still under way
                continue
            self._begin(work, APPLY, seq=work.last_seq, frames=len(frames))

    def applied(self, seq: int, durations: Histogram) -> None:
        """The storage has taken everything up to `seq`."""
        for work in self._under_way:
            if work.last_seq > seq:
                break
            self._done(work, APPLY, durations)
            if not work.is_applied:
                work.is_applied = True
                self._to_ship.append(work)
        while self._under_way and self._under_way[0].last_seq <= seq and not self._under_way[0].open:
            self._under_way.popleft()

    def ended(self, error: str, above: int = -1) -> None:
        """Nothing above `above` comes to its end any more."""
        while self._under_way and self._under_way[-1].last_seq > above:
            self._end(self._under_way.pop(), error)

    def shipped(self, after: int, upto: int, most: int) -> list[tuple[int, Span]]:
        """Begins a span for each write, of `most`, in the frames above `after`, up to `upto`, that are sent to the other site
        now: (the frame's last sequence, span)."""
        self.arrived(after)
        found: list[tuple[int, Span]] = []
        for work in self._to_ship:
            if work.last_seq > upto:
                break
            spans = self._spans(work.writes[: most - len(found)], SHIP, seq=work.last_seq)
            found += [(work.last_seq, span) for span in spans]
        return found

    def arrived(self, seq: int) -> None:
        """The other site holds everything up to `seq`."""
        while self._to_ship and self._to_ship[0].last_seq <= seq:
            self._to_ship.popleft()

    # ---- small parts
    def _begin(self, work: _TracedFrame, what: str, **attributes: int) -> None:
        work.open[what] = self._spans(work.writes, what, **attributes)
        work.begun_s[what] = self._clock.monotonic_s()

    def _spans(self, writes: Sequence[str], what: str, **attributes: int) -> list[Span]:
        begun = (self._tracer.continued(what, write, epoch=self._epoch, **attributes) for write in writes)
        return [span for span in begun if span is not None]

    def _done(self, work: _TracedFrame, what: str, durations: Histogram) -> None:
        spans = work.open.pop(what, None)
        if not spans:
            return
        durations.exemplify(self._clock.monotonic_s() - work.begun_s[what], spans[0].trace_id)
        _end_all(spans, "")

    def _end(self, work: _TracedFrame, error: str) -> None:
        for spans in work.open.values():
            _end_all(spans, error)
        work.open.clear()


def _end_all(spans: Iterable[Span], error: str) -> None:
    for span in spans:
        span.end(error)
