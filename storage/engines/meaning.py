"""What frames mean to an engine, whatever database is behind it: order, marks and schema changes.

What always holds: `admit` is the only place where an engine decides what it skips and what it refuses, so every engine
skips and refuses the same frames. Source: storage/engine.py (the contract), protocol.md 3 and 4 (chain, idempotency keys).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from storage.engine import EpochEntry, KeptSnapshot, RequestOutcome
from storage.log.frame import COUNTER_BITS, Flags, Frame
from storage.log.record import EpochStart, RequestMark, SchemaChange
from storage.rows.schema import decode_schema
from twinlog.errors import EngineFailed, LogError, LogGap, Refused

_decode_request = msgspec.msgpack.Decoder(RequestMark).decode
_decode_change = msgspec.msgpack.Decoder(SchemaChange).decode
_decode_epoch = msgspec.msgpack.Decoder(EpochStart).decode


def by_age(kept: KeptSnapshot) -> tuple[int, int]:
    """The order in which kept snapshots are told."""
    return kept.taken_ms, kept.seq


class Table(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an engine keeps of a table: its schema as it came, for how long old versions stay readable, and the version before
    which they were not kept here."""

    schema: bytes
    history_s: int
    since: int = 0

    def following(self, before: Table | None, version: int) -> Table:
        """This table as a record of `version` made it of what was there `before`."""
        if before is None:
            return self
        since = before.since if before.history_s > 0 else max(before.since, version)
        return Table(self.schema, self.history_s, since)


class Tables:
    """Every table by its id. Never changed in place: readers on other threads hold it."""

    __slots__ = ("by_id", "with_history")

    def __init__(self, by_id: Mapping[int, Table]) -> None:
        self.by_id = by_id
        self.with_history = frozenset(number for number, table in by_id.items() if table.history_s > 0)

    @classmethod
    def of_base(cls, schemas: Mapping[int, bytes], version: int) -> Tables:
        """Tables that came with a base: their schemas say themselves how long their history is kept, from `version` on."""
        return cls({number: Table(schema, decode_schema(schema).history_s, version) for number, schema in schemas.items()})

    def changed(self, number: int, table: Table | None) -> Tables:
        """With `table` put, or dropped where None."""
        by_id = {**self.by_id, number: table}
        return Tables({number: table for number, table in by_id.items() if table is not None})

    def without_history(self, numbers: Collection[int], version: int) -> Tables:
        """The versions of some rows of the tables `numbers` were forgotten as far as they lie before `version`."""
        return Tables({
            number: Table(table.schema, table.history_s, max(table.since, version)) if number in numbers else table
            for number, table in self.by_id.items()
        })

    def schemas(self) -> dict[int, bytes]:
        return {number: table.schema for number, table in self.by_id.items()}

    def history_from(self, number: int, last_timestamp: int, now_ms: int) -> int:
        """The oldest version that an as-of read of table `number` answers truly, with `last_timestamp` applied."""
        table = self.by_id.get(number)
        if table is None:
            return 0
        return max(table.since, horizon(now_ms, table.history_s) if table.history_s > 0 else last_timestamp)


def horizon(now_ms: int, kept_s: int) -> int:
    """The hybrid timestamp `kept_s` before `now_ms`; what ended at or before it may go."""
    return max(now_ms - kept_s * 1000, 0) << COUNTER_BITS


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


def refuse_while_loading(loading: bool) -> None:
    """Frames must not meet half of a base. Raises Refused."""
    if loading:
        raise Refused("the engine holds an unfinished base: load it anew from its first part, then finish it")


def refuse_unless_loading(loading: bool) -> None:
    """A part of a base needs its first part. Raises Refused."""
    if not loading:
        raise Refused("no base is being loaded: begin with its first part")


def snapshot_ended() -> EngineFailed:
    """What a reader of a snapshot gets once the engine that it is of was opened anew."""
    return EngineFailed("the storage was opened anew, and the snapshot ended with it: begin the read again")


def request_outcome(frame: Frame, index: int, mark: bytes) -> tuple[str, RequestOutcome]:
    """The idempotency key and the outcome of the request whose first record is number `index` of `frame`."""
    request = _decode_request(mark)
    last = index + request.count - 1
    outcome = RequestOutcome(
        digest=request.digest, epoch=frame.epoch, seq=frame.first_seq + last, version=frame.timestamp + last,
        count=request.count, was_async=bool(frame.flags & Flags.ASYNC),
    )
    return request.key, outcome


def epoch_entry(frame: Frame, index: int, value: bytes) -> EpochEntry:
    """The epoch that record `index` of `frame`, an EPOCH_START with `value`, begins."""
    start = _decode_epoch(value)
    return EpochEntry(start.epoch, frame.first_seq + index, frame.previous, start.site, start.kind)


def schema_change(value: bytes) -> tuple[int, Table | None]:
    """Table id and what it is from now on; None: dropped. Raises LogError for a change that this release does not know."""
    change = _decode_change(value)
    if change.kind == "put":
        return change.table, Table(change.schema, change.history_s)
    if change.kind == "drop":
        return change.table, None
    raise LogError(f"a schema change of kind {change.kind!r} is not known to this release")
