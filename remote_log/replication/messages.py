"""The Transport port, one site's calls of the other, and the messages that go over it: msgpack maps, one struct each.

The real transport is HTTP (gateway/http/peer_transport.py); the simulated one delays, drops and repeats messages.

What always holds, and the contract suite (tests/remote_log/replication/transport_contract.py) checks on every one: a call ends
by its `timeout_s`; an answer is bounded, and of the kind that was asked for; an error that the peer raised arrives as the same
class of twinlog/errors.py; everything else (unreachable, timed out, nonsense) is a PeerError, whose outcome is unknown. Every
message of the replication stream names the epoch of its sender; each call names the version of the protocol in which it and its
answer are; an unknown field is ignored, a missing one is an error (understanding.py: two releases during an upgrade).
Source: protocol.md sections 7 and 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

from storage.engine import EpochEntry, RequestOutcome
from storage.log.frame import TIMESTAMP_MAX
from twinlog.decoding import decoded
from twinlog.errors import MalformedBody, PeerError

FOLLOW, REPLICATE, BASE, BASE_DONE = "follow", "replicate", "base", "base_done"
STATUS, EPOCHS, ROWS, PREPARE = "status", "epochs", "rows", "prepare"
DRAIN, UNDRAIN, STEP_DOWN, MERGE = "drain", "undrain", "step_down", "merge"
TRAIL, LOOK = "trail", "look"
PROTOCOL = 1  # the version of the calls below: another one where an older release would understand a call otherwise

SEQ_MAX = 1 << 62
EPOCH_MAX = 1 << 39  # a claim's name has twelve digits (layout.py)
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
Version = Annotated[int, Meta(ge=0, le=TIMESTAMP_MAX)]  # a hybrid timestamp
TableId = Annotated[int, Meta(ge=0, lt=1 << 60)]
Crc = Annotated[int, Meta(ge=0, lt=1 << 32)]
Name = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=1 << 16)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
KeyBytes = Annotated[bytes, Meta(max_length=64 << 10)]
Digest = Annotated[bytes, Meta(max_length=64)]
FormatVersion = Annotated[int, Meta(ge=0, lt=1 << 16)]
Bounds = tuple[FormatVersion, FormatVersion]  # the lowest and the highest version of a format that a release reads
FORMATS_MAX = 64
Formats = Annotated[dict[Name, Bounds], Meta(max_length=FORMATS_MAX)]
TRAIL_CHANGES_MAX = 20
TRACES_MAX = 64  # spans of sampled writes that one call names
ROWS_MAX = 10_000  # that one call asks for or brings
TABLES_MAX = EPOCHS_MAX = 100_000  # that one call names
History = Annotated[list[tuple[Epoch, Seq, Seq, Name, Name]], Meta(max_length=EPOCHS_MAX)]  # EpochEntry as a tuple, ascending
OutcomeRow = tuple[Name, Digest, Epoch, Seq, Version, Seq, bool]  # idempotency key, then RequestOutcome as a tuple


ROWS_BYTES = 16 << 20  # an answer with rows ends with the one that reaches it
ROWS_REPLY_BYTES_MAX = 64 << 20
LOOK_BYTES_MAX = 4 << 20
REPLY_BYTES_MAX = 8 << 20  # of any other answer: EPOCHS_MAX epochs are the longest
_T = TypeVar("_T")


class Transport(Protocol):
    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        """The peer's answer, a `kind`, to one of the methods above. Raises what the peer raised, or PeerError."""


class Addressed(msgspec.Struct):
    """The fields that every call has besides those of its method: the identity of the caller's pair; "": it knows none yet. And
    the version of the protocol; a release that does not name it has version 1."""

    pair: Name
    protocol: FormatVersion = 1


class Says(msgspec.Struct, frozen=True):
    """A site's word on itself: its release, and which versions of each format it reads. Every release keeps both fields."""

    release: Name
    formats: Formats


class LogPoint(msgspec.Struct, frozen=True):
    """The end of a frame in a log, by its numbers and by the CRC of its bytes: None where only the numbers are known."""

    seq: Seq
    epoch: Epoch
    crc: Crc | None = None


class Stamp(msgspec.Struct, frozen=True):
    """The moment at which a follower answered, by its own monotonic clock: of no meaning to anybody but that very process."""

    life: Name
    at_s: Annotated[float, Meta(ge=0)]


class Vouched(msgspec.Struct, frozen=True):
    """The active's word: `held_s` after it had the answer of `stamp`, nothing above `upto` had been acknowledged."""

    stamp: Stamp
    held_s: Annotated[float, Meta(ge=0)]
    upto: Seq


class FollowRequest(msgspec.Struct):
    """The active asks the other site to follow `epoch`, and shows where each epoch began.

    `begins_after`: what its log continues from at the earliest. `not_held`: a position of the other site that its log does not
    hold.
    """

    epoch: Epoch
    site: Name
    history: History
    begins_after: Seq = 0
    not_held: LogPoint | None = None
    says: Says | None = None


class BaseProgress(msgspec.Struct, frozen=True):
    """The progress of a follower's base data. It is stored with the rows, so no two states of a base have the same one.

    `epoch`, `load`, `part`: `part` parts of the sender's base number `load` in `epoch` are in, on top of what `load` began
    with. The log continues after (`seq_epoch`, `seq`), the point of the first snapshot; at (`floor_epoch`, `floor`), that of
    the latest, the storage is a prefix again. Rows up to (`table`, `key`) are in, then the outcomes up to `request`.
    """

    epoch: Epoch
    load: Seq
    part: Seq
    seq: Seq
    seq_epoch: Epoch
    floor: Seq
    floor_epoch: Epoch
    table: TableId = 0
    key: KeyBytes = b""
    request: Name | None = None


class Position(msgspec.Struct):
    """A follower's position. `state`: following | diverged | loading | busy (not a standby now; `why` says).

    `applied_crc`: of the last frame that it applied, where it knows. `base`: how far an unfinished base has come; None: there
    is none that could be gone on with. `nonce`: loading, what each part of the base must bear. `says`: in the answer to FOLLOW.
    """

    state: Literal["following", "diverged", "loading", "busy"]
    applied_seq: Seq
    applied_epoch: Epoch
    durable_seq: Seq
    why: Text = ""
    base: BaseProgress | None = None
    nonce: Name = ""
    applied_crc: Crc | None = None
    stamp: Stamp | None = None
    says: Says | None = None

    @property
    def at(self) -> LogPoint:
        return LogPoint(self.applied_seq, self.applied_epoch, self.applied_crc)


class ReplicateRequest(msgspec.Struct):
    """Frames in order, their bytes one after another; empty: only the position is asked for. They continue `after`: a follower
    that stands anywhere else applies nothing, and says where it stands.

    `flush`: make everything durable before answering. `traces`: (last sequence of a frame, traceparent) of the sampled writes
    among these, and `trace_states` their tracestates in the same order, where there is one; they say nothing that a follower
    acts on.
    """

    epoch: Epoch
    after: LogPoint
    frames: bytes
    flush: bool = False
    vouched: Vouched | None = None
    traces: Annotated[list[tuple[Seq, Name]], Meta(max_length=TRACES_MAX)] = []
    trace_states: Annotated[list[Annotated[str, Meta(max_length=512)]], Meta(max_length=TRACES_MAX)] = []


class BaseRequest(msgspec.Struct):
    """A part of base data, taken only by a follower that asked for it under this `nonce` and whose progress is exactly `after`
    (None: by any, which it empties), and which brings it to `upto`.

    `schemas` of every table, in the first part of each load, before any of its rows: an engine that keeps rows in typed columns
    needs them there. None: as before. `rows` in key order: (table, key, value, version). `outcomes` in key order: what
    idempotency keys answered.
    """

    epoch: Epoch
    nonce: Name
    after: BaseProgress | None
    upto: BaseProgress
    schemas: Annotated[dict[TableId, bytes], Meta(max_length=TABLES_MAX)] | None
    rows: Annotated[list[tuple[TableId, KeyBytes, bytes, Version]], Meta(max_length=ROWS_MAX)]
    outcomes: Annotated[list[OutcomeRow], Meta(max_length=ROWS_MAX)]


class BaseDoneRequest(msgspec.Struct):
    """The base that has come to exactly `after` is complete; none of its rows is later than `last_timestamp`."""

    epoch: Epoch
    nonce: Name
    after: BaseProgress
    last_timestamp: Version
    history: History


class EpochsRequest(msgspec.Struct):
    """`at`: where the storage of the site that asks stands."""

    at: LogPoint


class EpochsReply(msgspec.Struct):
    """The epochs of the active. `holds`: False when its log does not hold the position asked about, as far as it reaches back;
    `begins_after`: what its log continues from at the earliest."""

    epoch: Epoch
    applied_seq: Seq
    history: History
    holds: bool
    begins_after: Seq


class RowsRequest(msgspec.Struct):
    keys: Annotated[list[tuple[TableId, KeyBytes]], Meta(max_length=ROWS_MAX)]


class RowsReply(msgspec.Struct):
    """The first of the rows that were asked for, at least one: None where absent, read at `seq`, when `last_timestamp` was the
    largest applied."""

    seq: Seq
    last_timestamp: Version
    rows: Annotated[list[tuple[bytes, Version] | None], Meta(max_length=ROWS_MAX)]  # (value, version)


class PrepareRequest(msgspec.Struct):
    """The active asks whether the other site's storage would take this change of `table`. `schema` None: its drop."""

    table: TableId
    schema: bytes | None


class PrepareReply(msgspec.Struct):
    """The database's words, where it would refuse the change; empty: it would not."""

    refused: Text


class NoRequest(msgspec.Struct):
    """Holds nothing: the method says all."""


class PlanRequest(msgspec.Struct):
    """A step that the plan `plan_id`, which has the pair at the coordinator, asks of the other site."""

    plan_id: Name


class StatusReply(msgspec.Struct):
    site: Name
    role: Name
    epoch: Epoch
    mode: Name
    applied_seq: Seq
    durable_seq: Seq
    committed_seq: Seq
    waiting_for: Text
    log_key: Name = ""  # the id of the key that its remote log is encrypted with; "": it is plain
    says: Says | None = None


class MergeRequest(msgspec.Struct):
    """Quarantined rows: (table, operation, key, value, version). `put_absent`: also those that the active does not have."""

    rows: Annotated[
        list[tuple[TableId, Literal["upsert", "update", "delete"], KeyBytes, bytes, Version]], Meta(max_length=ROWS_MAX)
    ]
    put_absent: bool = False


class MergeReply(msgspec.Struct):
    """`skipped`: the active has a newer version, or not the table. `absent`: (table, key) of rows that the active does not have
    and that were not put: deleted there, or never there."""

    merged: Seq
    skipped: Seq
    absent: list[tuple[TableId, KeyBytes]] = []


class DrainReply(msgspec.Struct):
    last_seq: Seq
    epoch: Epoch


class StoppedReply(msgspec.Struct):
    """The old active has stopped for good in `epoch`: its storage is durable up to `durable_seq`."""

    epoch: Epoch
    durable_seq: Seq


class TrailChange(msgspec.Struct, frozen=True):
    """A line of one site's audit trail about a role change, for the trail of the other one: `number`, and who asked for it."""

    number: Seq
    sha256: Sha256
    at_ms: Seq
    event: Name
    outcome: Name
    operation: Name
    kind: Name
    to: Name
    who: Name
    who_kind: Name
    address: Name
    says: Name


class TrailNote(msgspec.Struct, frozen=True):
    """Says how far the audit trail of `site` has come, call and answer alike: its newest line that is not about the other
    site, up to which line it has seen the other site's trail, and the role changes that the other site has not seen."""

    site: Name
    number: Seq
    sha256: Sha256
    seen: Seq
    changes: Annotated[list[TrailChange], Meta(max_length=TRAIL_CHANGES_MAX)] = []
    has_more: bool = False  # changes behind these, which the next note has


class LookRequest(msgspec.Struct):
    """Asks what the other site shows of itself to its operators. `what`: a name of gateway/ui/looks.py; `kind`: of the
    checks; of tables, the id of one."""

    what: Name
    kind: Name = ""


class LookReply(msgspec.Struct):
    """`document`: what was asked for, as JSON."""

    site: Name
    document: Annotated[bytes, Meta(max_length=LOOK_BYTES_MAX)]


def addressed(struct: msgspec.Struct, pair: str, protocol: int) -> dict[str, Any]:
    """The call, as a msgpack-ready map that names the pair, and the version of the protocol."""
    return {**to_message(struct), "pair": pair, "protocol": protocol}


def to_message(struct: msgspec.Struct) -> dict[str, Any]:
    """The struct as a msgpack-ready map."""
    return msgspec.structs.asdict(struct)


def decode_request(kind: type[_T], method: str, data: bytes) -> _T:
    """The call as the struct. It becomes little more than its bytes: nothing is made of what the struct does not name, and a
    list that is too long is refused before any of it is made. Raises MalformedBody.
    """
    found: _T = decoded(
        partial(msgspec.msgpack.decode, type=kind), data,
        lambda what: MalformedBody(f"the body of {method} is not msgpack: {what}"),
        shape=lambda what: MalformedBody(f"the body of {method} is no {kind.__name__}: {what}"),
    )
    return found


def not_understood(method: str, error: MalformedBody) -> str:
    """Says at the caller that the other site cannot read its call. It is no fault of whoever asked this site for something."""
    return f"the other site does not understand {method} of this one: {error.message}; `twinlog status` shows both releases"


def reply_bytes_max(method: str) -> int:
    """Returns the length that no answer to `method` has: several calls are under way, and a false site answers all of them."""
    return ROWS_REPLY_BYTES_MAX if method == ROWS else REPLY_BYTES_MAX


def decode_reply(kind: type[_T], method: str, data: bytes) -> _T:
    """The peer's answer to `method` as the struct. As for a request, nothing is made of what the struct does not name. Raises
    PeerError."""
    most = reply_bytes_max(method)
    if len(data) > most:
        raise PeerError(f"the other site's answer to {method} is longer than {most >> 20} MiB")
    found: _T = decoded(
        partial(msgspec.msgpack.decode, type=kind), data,
        lambda what: PeerError(f"the other site's answer to {method} is no {kind.__name__}: {what}"),
    )
    return found


def pack_history(entries: Sequence[EpochEntry]) -> History:
    return [(e.epoch, e.first_seq, e.previous, e.site, e.kind) for e in entries]


def unpack_history(rows: History) -> list[EpochEntry]:
    return [EpochEntry(*row) for row in rows]


def pack_outcomes(outcomes: list[tuple[str, RequestOutcome]]) -> list[OutcomeRow]:
    return [(key, o.digest, o.epoch, o.seq, o.version, o.count, o.was_async) for key, o in outcomes]


def unpack_outcomes(rows: list[OutcomeRow]) -> list[tuple[str, RequestOutcome]]:
    return [(row[0], RequestOutcome(*row[1:])) for row in rows]
