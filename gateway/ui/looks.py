"""The documents that a site shows to operators alone, at its own page and at that of the other site.

What always holds: they are for people, and nothing is decided by them; a figure that nobody knows is left out or null; a
histogram is its counts by the bounds of gateway/service/histogram.py, so that two looks give what fell between them.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.metrics.catalogue import Figures
from gateway.service.documents import ClusterDocument
from gateway.service.histogram import Histogram
from switchover.operations.document import OperationDocument
from twinlog.decoding import decoded
from twinlog.errors import PeerError

T = TypeVar("T")


class Counts(Struct, frozen=True):
    """A histogram of durations."""

    counts: tuple[int, ...]
    sum_s: float


class SiteLook(Struct, frozen=True):
    """One site at one moment, with the operation that runs there. `figures` and `durations` by Prometheus name."""

    cluster: ClusterDocument
    figures: dict[str, float]
    durations: dict[str, Counts]
    operation: OperationDocument | None = None


class OperationsShown(Struct, frozen=True):
    """The newest operations of a site, the newest first."""

    operations: list[OperationDocument]


class EpochShown(Struct, frozen=True):
    """The begin of an epoch, as the site's storage has it. `kind`: bootstrap, restart, takeover or switchover."""

    epoch: int
    first_seq: int
    site: str
    kind: str


class Epochs(Struct, frozen=True):
    """The newest epochs of a site, ascending, and the last sequence that it has applied."""

    epochs: list[EpochShown]
    applied_seq: int


class LogSegment(Struct, frozen=True):
    """A file of a log. `bytes` null: not known; `is_open`: it is written now; null: not known."""

    name: str
    epoch: int
    first_seq: int | None = None
    last_seq: int | None = None
    bytes: int | None = None
    is_open: bool | None = None


class LogClaim(Struct, frozen=True):
    """A claim: who locked every epoch below `epoch`, why, and when by its clock. Null: its file could not be read."""

    epoch: int
    site: str | None
    kind: str | None
    reason: str | None
    wall_ms: int | None


class LogHolder(Struct, frozen=True):
    """Whoever still needs the log: it is trimmed up to the lowest `durable_seq`. Null: not known, which counts as 0."""

    name: str
    durable_seq: int | None


class Logs(Struct, frozen=True):
    """The logs of a site. `remote`: what it writes on the other site's DFS, null where it is no active; `kept`: the other
    site's remote log on its own DFS, and the claims there, null with `kept_error` where that DFS does not answer."""

    site: str
    wal: list[LogSegment]
    wal_bytes: int
    first_previous: int | None
    holders: list[LogHolder]
    remote: list[LogSegment] | None
    kept: list[LogSegment] | None
    claims: list[LogClaim] | None
    kept_error: str | None


def split(figures: Figures) -> tuple[dict[str, float], dict[str, Counts]]:
    """Returns the plain figures, and the histograms as counts. Those that have labels are left out: the document has them."""
    plain = {name: float(value) for name, value in figures.items() if isinstance(value, float | int)}
    durations = {name: counted(value) for name, value in figures.items() if isinstance(value, Histogram)}
    return plain, durations


def counted(histogram: Histogram) -> Counts:
    return Counts(histogram.counts(), histogram.sum_s)


def read_document(kind: type[T], site: str, data: bytes) -> T:
    """The other site's document. Raises PeerError where it is of another form, as another release may have it."""
    found: T = decoded(partial(msgspec.json.decode, type=kind), data, lambda what: PeerError(
        f"site {site} does not show itself as this release does: {what}", site=site, sent=True
    ))
    return found
