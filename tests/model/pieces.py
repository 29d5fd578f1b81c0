"""The pieces of the model: frames, segments, the two DFSs, the two sites, and the definition of what stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

LEASE = 1  # in ticks: so long an append that succeeds lets its site serve reads, from its start


class Broken(Exception):
    """A promise of the protocol does not hold."""


@dataclass(frozen=True, order=True)
class Frame:
    epoch: int
    seq: int
    previous: int
    name: str  # "w3", or "start"
    mode: str = "sync"  # in which it was made
    committed: int = 0  # what its writer knew as committed then


@dataclass
class Segment:
    epoch: int
    frames: list[Frame] = field(default_factory=list)
    closed: bool = False


@dataclass
class Dfs:
    claims: dict[int, int] = field(default_factory=dict)  # number -> site
    segments: list[Segment] = field(default_factory=list)

    def frames(self) -> list[Frame]:
        return [frame for segment in self.segments for frame in segment.frames]


@dataclass
class Pending:
    frame: Frame
    local: bool = False
    remote: bool = False


@dataclass(frozen=True)
class Plan:
    """The attempt that has the pair at the coordinator. A number belongs to one attempt."""

    site: int
    number: int
    kind: str  # restart takeover force switchover


@dataclass(frozen=True)
class Value:
    """The register's value; `home` and `forced` are of the two DFSs only (two_dfs.py), `anew` of went_back.py."""

    epoch: int = 1
    given: int = 1  # the highest epoch ever given away
    active: int = 0
    mode: str = "sync"
    switching: Plan | None = None
    home: int = 1  # on whose DFS the next value is decided
    forced: int = 0  # how often a command moved the home without the old one
    number: int = 1
    anew: int = 0  # the epoch with which a command began the pair anew: what was known of lower ones does not count any more


@dataclass
class Site:
    wal: list[Frame] = field(default_factory=list)  # durable
    storage: list[Frame] = field(default_factory=list)  # applied, in order
    durable: int = 0  # how many of `storage` survive a crash
    known_epoch: int = 0  # durable: highest epoch that the sink has accepted
    async_epoch: int = 0  # durable: in it, what was written while synchronous was acknowledged asynchronously
    quarantine: set[str] = field(default_factory=set)  # durable
    stopped_half_way: bool = False  # durable: the journal's last operation is a switchover past its point of no return
    # from here: lost at a crash
    state: str = "down"  # down closed standby plan active
    epoch: int = 0
    mode: str = "sync"  # sync async catching
    draining: bool = False
    lease: bool = False  # of an asynchronous active, kept at the coordinator
    lease_until: int = 0  # alone.py: or proved by a look at the register
    pending: list[Pending] = field(default_factory=list)
    next_seq: int = 1
    standing: int = 0  # last sequence that still stands
    segment: Segment | None = None  # open for append
    unchecked: Segment | None = None  # created, claims not yet listed
    sent: Frame | None = None  # an append that takes its time
    sent_at: int = 0
    reads_until: int = 0  # the read lease of a synchronous active
    looked_at: int | None = None  # when a plan looked first at what it fences
    looked: list[tuple[Segment, int]] = field(default_factory=list)  # and how much was there
    fenced_at: int | None = None  # after this no append was started that ever succeeds
    plan: Plan | None = None
    begun: Value | None = None  # the value that the plan follows
    mark: tuple[Value, bool] | None = None  # alone.py: the value that the plan began with, and whether both DFSs were seen
    last_look: tuple[int, bool, Value | None] | None = None  # alone.py: open not before, whether blind, what must still be
    steps: list[str] = field(default_factory=list)
    drained_seq: int | None = None
    caught_up: bool = False
    tail: list[Frame] = field(default_factory=list)  # read, and applied once the plan has the last word
    start: Frame | None = None
    old_durable: int | None = None  # the old active has stopped, with its storage durable up to here
    catch_target: int = 0

    @property
    def end(self) -> Frame | None:
        """The last frame that a plan's new epoch continues from."""
        return (self.tail or self.storage or [None])[-1]

    @property
    def applied_seq(self) -> int:
        return self.storage[-1].seq if self.storage else 0

    @property
    def applied_epoch(self) -> int:
        return self.storage[-1].epoch if self.storage else 0

    @property
    def durable_seq(self) -> int:
        return self.storage[self.durable - 1].seq if self.durable else 0

    def stop(self) -> None:
        """The process is gone, or gives up: what only it knew is lost."""
        del self.storage[self.durable :]
        self.state, self.epoch, self.draining, self.lease = "down", 0, False, False
        self.pending, self.segment, self.unchecked, self.sent, self.reads_until = [], None, None, None, 0
        self.give_up_plan()

    def give_up_plan(self) -> None:
        self.plan, self.begun, self.mark, self.last_look, self.steps = None, None, None, None, []
        self.looked_at, self.looked, self.fenced_at = None, [], None
        self.drained_seq, self.caught_up, self.old_durable, self.tail, self.start = None, False, None, [], None


def kept(frames: Iterable[Frame]) -> list[Frame]:
    """Frames in the order of (epoch, sequence), each cutting off those above its `previous`."""
    out: list[Frame] = []
    for frame in sorted(set(frames), key=lambda f: (f.epoch, f.seq, f.name)):
        while out and out[-1].seq > frame.previous:
            out.pop()
        out.append(frame)
    return out


def chain(frames: Iterable[Frame]) -> list[Frame]:
    """Returns the frames that stand. Broken where a link is missing."""
    out = kept(frames)
    for before, frame in pairwise(out):
        if frame.previous != before.seq:
            raise Broken(f"gap: {frame} after {before}")
    return out


def led(frames: Iterable[Frame], seq: int, epoch: int) -> tuple[list[Frame], bool]:
    """The frames that lead on from (epoch, seq) without a gap, and whether those are all that stand behind it.

    A link is a number without an epoch: a newer epoch is entered through its start only.
    """
    out: list[Frame] = []
    behind = kept(frame for frame in frames if frame.seq > seq and frame.epoch >= epoch)
    for frame in behind:
        if frame.previous != seq or (frame.epoch != epoch and frame.name != "start"):
            return out, False
        out.append(frame)
        seq, epoch = frame.seq, frame.epoch
    return out, True
