"""The meaning of frames for an engine, whatever database is behind it: order, marks and schema changes.

What always holds: `admit` is the only place where an engine decides what it skips and what it refuses, so every engine
skips and refuses the same frames. Source: storage/engine.py (the contract), protocol.md 3 and 4 (chain, idempotency keys).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.engine import EpochEntry, KeptSnapshot, RequestOutcome, Table
from storage.log.frame import Flags, Frame
from storage.log.record import decode_epoch_start, decode_request_mark, decode_schema_change
from storage.rows.schema import decode_schema
from twinlog.errors import EngineFailed, InvalidInput, LogError, LogGap, Refused


def by_age(kept: KeptSnapshot) -> tuple[int, int]:
    """The order in which kept snapshots are listed."""
    return kept.taken_ms, kept.seq


def admit(frames: Sequence[Frame], applied_seq: int, applied_epoch: int) -> list[Frame]:
    """The frames that are new, in order. Raises LogGap when one does not follow what is applied, LogError for an old epoch."""
    new: list[Frame] = []
    for frame in frames:
        if frame.last_seq <= applied_seq:
            continue
        if frame.previous != applied_seq or frame.first_seq <= applied_seq:
            raise LogGap(
                f"{frame!r} does not follow what is applied ({applied_seq}): offer the frames from {applied_seq + 1} on",
                held_seq=applied_seq, offered_previous=frame.previous,
            )
        if frame.epoch < applied_epoch:
            raise LogError(f"{frame!r} is of an older epoch than what is applied ({applied_epoch}): its writer was fenced")
        new.append(frame)
        applied_seq, applied_epoch = frame.last_seq, frame.epoch
    return new


def refuse_when_failed(failure: str | None) -> None:
    """A write or flush that failed is the last before `reopen`. Raises EngineFailed."""
    if failure is not None:
        raise EngineFailed(f"the storage failed, and must be opened anew: {failure}")


def refuse_while_loading(loading: bool) -> None:
    """Frames must not meet half of a base. Raises Refused."""
    if loading:
        raise Refused("the engine holds an unfinished base: load it anew from its first part, then finish it")


def refuse_unless_loading(loading: bool) -> None:
    """A part of a base needs its first part. Raises Refused."""
    if not loading:
        raise Refused("no base is being loaded: begin with its first part")


def snapshot_ended() -> EngineFailed:
    """Returns the error that a reader of a snapshot gets once its engine was opened anew."""
    return EngineFailed("the storage was opened anew, and the snapshot ended with it: begin the read again")


def request_outcome(frame: Frame, index: int, mark: bytes) -> tuple[str, RequestOutcome]:
    """The idempotency key and the outcome of the request whose first record is number `index` of `frame`."""
    request = decode_request_mark(mark)
    last = index + request.count - 1
    outcome = RequestOutcome(
        digest=request.digest, epoch=frame.epoch, seq=frame.first_seq + last, version=frame.timestamp + last,
        count=request.count, was_async=bool(frame.flags & Flags.ASYNC),
    )
    return request.key, outcome


def epoch_entry(frame: Frame, index: int, value: bytes) -> EpochEntry:
    """The epoch that record `index` of `frame`, an EPOCH_START with `value`, begins."""
    start = decode_epoch_start(value)
    return EpochEntry(start.epoch, frame.first_seq + index, frame.previous, start.site, start.kind)


def schema_change(value: bytes) -> tuple[int, Table | None]:
    """Table id and what it is from now on; None: dropped. Raises LogError for a change that this release does not know."""
    change = decode_schema_change(value)
    if change.kind == "put":
        return change.table, Table(change.schema, change.history_s)
    if change.kind == "drop":
        return change.table, None
    raise LogError(f"a schema change of kind {change.kind!r} is not known to this release")


def check_schema(schema: bytes | None) -> None:
    """Checks what every engine asks of a change: that it can be read. Raises InvalidInput."""
    try:
        if schema is not None:
            decode_schema(schema)
    except LogError as error:
        raise InvalidInput(f"the schema cannot be read: {error.message}") from error
