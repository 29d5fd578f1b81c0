"""The Transport port, one site's calls of the other, and the messages that go over it: msgpack maps, one struct each.

The real transport is HTTP (gateway/http/peer_transport.py); the simulated one delays, drops and repeats messages.

What always holds, and the contract suite (tests/remote_log/replication/transport_contract.py) checks on every one: a call ends
by its `timeout_s`; an error that the peer raised arrives as the same class of twinlog/errors.py; everything else (unreachable,
timed out, nonsense) is a PeerError, whose outcome is unknown. Every message of the replication stream names the epoch of its
sender; an unknown field is ignored, a missing one is an error, so that two releases can talk during an upgrade.
Source: protocol.md sections 7 and 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from storage.engine import EpochEntry, RequestOutcome
from twinlog.decoding import decoded
from twinlog.errors import PeerError

FOLLOW, REPLICATE, BASE, BASE_DONE = "follow", "replicate", "base", "base_done"
STATUS, EPOCHS, ROWS, PREPARE = "status", "epochs", "rows", "prepare"
DRAIN, UNDRAIN, STEP_DOWN, MERGE = "drain", "undrain", "step_down", "merge"

OutcomeRow = tuple[str, bytes, int, int, int, int, bool]  # idempotency key, then RequestOutcome as a tuple


class Transport(Protocol):
    async def call(self, method: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The peer's answer to one of the methods above. Raises what the peer raised, or PeerError."""


class FollowRequest(msgspec.Struct):
    """The active asks the other site to follow `epoch`, and shows where each epoch began."""

    epoch: int
    site: str
    history: list[tuple[int, int, int, str, str]]  # EpochEntry as a tuple, ascending


class BaseProgress(msgspec.Struct, frozen=True):
    """The progress of a follower's base data. It is stored with the rows, so no two states of a base have the same one.

    `epoch`, `load`, `part`: `part` parts of the sender's base number `load` in `epoch` are in, on top of what `load` went on
    from. The log goes on after (`seq_epoch`, `seq`), the point of the first snapshot; at (`floor_epoch`, `floor`), that of
    the latest, the storage is a prefix again. Rows up to (`table`, `key`) are in, then the outcomes up to `request`.
    """

    epoch: int
    load: int
    part: int
    seq: int
    seq_epoch: int
    floor: int
    floor_epoch: int
    table: int = 0
    key: bytes = b""
    request: str | None = None


class Position(msgspec.Struct):
    """A follower's position. `state`: following | diverged | loading | busy (not a standby now; `why` says).

    `base`: how far an unfinished base has come; None: there is none that could be gone on with.
    """

    state: str
    applied_seq: int
    applied_epoch: int
    durable_seq: int
    why: str = ""
    base: BaseProgress | None = None


class ReplicateRequest(msgspec.Struct):
    """Frames in order, their bytes one after another; empty: only the position is asked for.

    `flush`: make everything durable before answering.
    """

    epoch: int
    frames: bytes
    flush: bool = False


class BaseRequest(msgspec.Struct):
    """A part of base data, taken only by a follower whose progress is exactly `after` (None: by any, which it empties), and
    which brings it to `upto`.

    `schemas` of every table, in the first part of each load, before any of its rows: an engine that keeps rows in typed columns
    needs them there. None: as before. `rows` in key order: (table, key, value, version). `outcomes` in key order: what
    idempotency keys answered.
    """

    epoch: int
    after: BaseProgress | None
    upto: BaseProgress
    schemas: dict[int, bytes] | None
    rows: list[tuple[int, bytes, bytes, int]]
    outcomes: list[OutcomeRow]


class BaseDoneRequest(msgspec.Struct):
    """The base that has come to exactly `after` is complete; none of its rows is later than `last_timestamp`."""

    epoch: int
    after: BaseProgress
    last_timestamp: int
    history: list[tuple[int, int, int, str, str]]


class EpochsReply(msgspec.Struct):
    epoch: int
    applied_seq: int
    history: list[tuple[int, int, int, str, str]]


class RowsRequest(msgspec.Struct):
    keys: list[tuple[int, bytes]]


class RowsReply(msgspec.Struct):
    """Rows as asked, None where absent, read at `seq`, when `last_timestamp` was the largest applied."""

    seq: int
    last_timestamp: int
    rows: list[tuple[bytes, int] | None]  # (value, version)


class PrepareRequest(msgspec.Struct):
    """The active asks whether the other site's storage would take this change of `table`. `schema` None: its drop."""

    table: int
    schema: bytes | None


class PrepareReply(msgspec.Struct):
    """The database's words, where it would refuse the change; empty: it would not."""

    refused: str


class PlanRequest(msgspec.Struct):
    """A step that the plan `plan_id`, which has the pair at the coordinator, asks of the other site."""

    plan_id: str


class StatusReply(msgspec.Struct):
    site: str
    role: str
    epoch: int
    mode: str
    applied_seq: int
    durable_seq: int
    committed_seq: int
    waiting_for: str


class MergeRequest(msgspec.Struct):
    """Quarantined rows: (table, operation, key, value, version). `put_absent`: also those that the active does not have."""

    rows: list[tuple[int, str, bytes, bytes, int]]
    put_absent: bool = False


class MergeReply(msgspec.Struct):
    """`skipped`: the active has a newer version, or not the table. `absent`: (table, key) of rows that the active does not have
    and that were not put: deleted there, or never there."""

    merged: int
    skipped: int
    absent: list[tuple[int, bytes]] = []


class DrainReply(msgspec.Struct):
    last_seq: int
    epoch: int


class StoppedReply(msgspec.Struct):
    """The old active has stopped for good in `epoch`: its storage is durable up to `durable_seq`."""

    epoch: int
    durable_seq: int


_T = TypeVar("_T")


def to_message(struct: msgspec.Struct) -> dict[str, Any]:
    """The struct as a msgpack-ready map."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def from_message(kind: type[_T], message: dict[str, Any]) -> _T:
    """The map as the struct. Raises PeerError when fields are missing or of the wrong type."""
    found: _T = decoded(
        partial(msgspec.convert, type=kind), message,
        lambda what: PeerError(f"the other site's message is not a {kind.__name__}: {what}"),
    )
    return found


def decode_reply(method: str, data: bytes) -> dict[str, Any]:
    """The map that the peer answered to `method`. Raises PeerError."""
    reply = decoded(
        msgspec.msgpack.decode, data, lambda what: PeerError(f"the other site answered nonsense to {method}: {what}")
    )
    if not isinstance(reply, dict):
        raise PeerError(f"the other site answered no map to {method}")
    return reply


def pack_history(entries: Sequence[EpochEntry]) -> list[tuple[int, int, int, str, str]]:
    return [(e.epoch, e.first_seq, e.previous, e.site, e.kind) for e in entries]


def unpack_history(rows: list[tuple[int, int, int, str, str]]) -> list[EpochEntry]:
    return [EpochEntry(*row) for row in rows]


def pack_outcomes(outcomes: list[tuple[str, RequestOutcome]]) -> list[OutcomeRow]:
    return [(key, o.digest, o.epoch, o.seq, o.version, o.count, o.was_async) for key, o in outcomes]


def unpack_outcomes(rows: list[OutcomeRow]) -> list[tuple[str, RequestOutcome]]:
    return [(row[0], RequestOutcome(*row[1:])) for row in rows]
