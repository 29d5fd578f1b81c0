"""Checks every message of the other site before it has any effect, and every answer before it is believed.

A CRC says that bytes arrived as they were sent, and nothing about who made them. What always holds of what passes:
- frames continue the position that they name, link to one another, and count as many records as they hold; an epoch begins with
  its own start record, and only there; nothing claims to be committed that comes later;
- every record is of a known kind in its known form: rows and keys are canonical for the schema in force at that point, schemas
  pass the checks of the door, names are names and no paths, a request's mark stays inside its frame;
- no timestamp lies further ahead of this site's clock than SKEW_MAX_S (storage/log/frame.py), no sequence jumps by more than
  JUMP_MAX, and every number is in the bounds of messages.py.
What passes need not be true: whether a row is the one that was written, only the log at the active can say (shipper.py).
Source: protocol.md section 7 (what is checked before it has an effect).
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from remote_log.replication.messages import (
    EPOCH_MAX,
    SEQ_MAX,
    BaseDoneRequest,
    BaseProgress,
    BaseRequest,
    History,
    MergeRequest,
    OutcomeRow,
    ReplicateRequest,
    RowsReply,
    RowsRequest,
)
from storage.engine import EngineState
from storage.engines.meaning import schema_change
from storage.log.frame import SKEW_MAX_S, Flags, Frame, latest_timestamp, parse_frame
from storage.log.record import BARRIER_NAME, EPOCH_KINDS, EpochStart, Record, RecordKind, RequestMark
from storage.rows.schema import TableSchema, decode_schema
from storage.rows.stored import StoredTable, check_follows, stored_schema
from twinlog.decoding import UNDECODABLE, decoded
from twinlog.errors import InvalidInput, LogError, words

JUMP_MAX: Final = 1 << 32  # what may fail to be logged between two frames, or before a new epoch
KEY_LENGTH_MAX: Final = 128  # of an idempotency key, and of names
DIGEST_BYTES_MAX: Final = 64
CURSOR_BYTES_MAX: Final = 4096
MODES: Final = (b"sync", b"async")

_UPSERT, _UPDATE, _DELETE = int(RecordKind.UPSERT), int(RecordKind.UPDATE), int(RecordKind.DELETE)
_BARRIER = int(Flags.BARRIER)
_barrier_name = re.compile(BARRIER_NAME)
_decode_mark = msgspec.msgpack.Decoder(RequestMark).decode
_decode_start = msgspec.msgpack.Decoder(EpochStart).decode


class Verifier:
    """The checks of one site, for what comes from the other. Each raises InvalidInput that names what is wrong and where.

    `sites`: the names of the pair's sites.
    """

    def __init__(self, sites: Collection[str]) -> None:
        self._sites = frozenset(sites)
        self._known: dict[int, tuple[bytes, StoredTable]] = {}  # by table: its schema as it came, and its checks

    # ---- frames
    def frames(self, request: ReplicateRequest, state: EngineState, wall_ms: int) -> list[Frame]:
        """The frames in `request`, which continue `state`, what this site has applied. HOT."""
        frames: list[Frame] = []
        data, offset = request.frames, 0
        while offset < len(data):
            try:
                frame = parse_frame(data, offset)
            except LogError as error:
                raise InvalidInput(f"byte {offset} of the shipped frames begins none: {error.message}") from error
            frames.append(frame)
            offset += len(frame.data)
        if frames:
            walk = _Walk(self, request.epoch, state, latest_timestamp(wall_ms))
            for frame in frames:
                walk.take(frame)
        return frames

    def tables(self, schemas: Mapping[int, bytes]) -> dict[int, StoredTable]:
        """The checks of the tables of `schemas`, by id: what is stored here passed a door, perhaps of an earlier release."""
        if schemas.keys() != self._known.keys() or any(self._known[number][0] != data for number, data in schemas.items()):
            known = {}
            for number, data in schemas.items():
                before = self._known.get(number)
                known[number] = before if before is not None and before[0] == data else (data, StoredTable(decode_schema(data)))
            self._known = known
        return {number: table for number, (_, table) in self._known.items()}

    # ---- epochs
    def history(self, rows: History, epoch: int, where: str) -> None:
        """The epochs of a log whose last is `epoch`: ascending, each begun behind the end of the one before."""
        at_epoch = at_seq = 0
        for number, first_seq, previous, site, kind in rows:
            if number <= at_epoch or first_seq <= at_seq or previous >= first_seq:
                raise InvalidInput(f"{where}: its history of epochs is none: {number} begins at {first_seq} after {previous}")
            if site not in self._sites or kind not in EPOCH_KINDS:
                raise InvalidInput(f"{where}: epoch {number} is of site {site!r}, a {kind!r}: this pair has none such")
            at_epoch, at_seq = number, first_seq
        if at_epoch != epoch:
            raise InvalidInput(f"{where}: it names epoch {epoch}, and its history ends with epoch {at_epoch}")

    # ---- rows outside of the log
    def merge(self, request: MergeRequest, schemas: Mapping[int, bytes], wall_ms: int) -> None:
        """Quarantined changes, as far as their tables are here."""
        tables, latest = self.tables(schemas), latest_timestamp(wall_ms)
        for number, operation, key, value, version in request.rows:
            table = tables.get(number)
            if table is not None:
                _changed(table, operation, key, value)
            if not 0 < version <= latest:
                raise _no_time(version, "a row to merge")

    def rows(self, asked: RowsRequest, reply: RowsReply, schemas: Mapping[int, bytes], wall_ms: int) -> None:
        """The active's answer to what this site has asked for, row by row; it may hold the first of them only."""
        tables, latest = self.tables(schemas), latest_timestamp(wall_ms)
        if not 0 < len(reply.rows) <= len(asked.keys) or reply.last_timestamp > latest:
            raise InvalidInput(f"the active answers {len(reply.rows)} rows to {len(asked.keys)} keys, or as of no time")
        for (number, key), row in zip(asked.keys, reply.rows, strict=False):  # the first ones
            if row is not None and number in tables:
                tables[number].newer_row(key, row[0])
                if not 0 < row[1] <= reply.last_timestamp:
                    raise _no_time(row[1], "a row that was fetched")

    # ---- base data
    def base(self, request: BaseRequest, schemas: Mapping[int, bytes], wall_ms: int) -> None:
        """A part of base data; `schemas` are those that this site holds, for a part that brings none."""
        after, upto, latest = request.after, request.upto, latest_timestamp(wall_ms)
        where = f"part {upto.part} of base {upto.load} in epoch {upto.epoch}"
        if request.schemas is not None:
            tables = _distinct({number: stored_schema(data) for number, data in request.schemas.items()}, where)
            checks = {number: StoredTable(table) for number, table in tables.items()}
        elif after is None:
            raise InvalidInput(f"{where}: the first part of a base names every table's schema")
        else:
            checks = self.tables(schemas)
        self._progress(request, where)
        at = (after.table, after.key) if after is not None else None
        for table, key, value, version in request.rows:
            if at is not None and (table, key) <= at:
                raise InvalidInput(f"{where}: its rows do not ascend behind what is in already")
            at = (table, key)
            if table not in checks:
                raise InvalidInput(f"{where}: it has a row of table {table}, which has no schema", table=table)
            checks[table].row(key, value)
            if not 0 < version <= latest:
                raise _no_time(version, where)
        self._outcomes(request.outcomes, after.request if after is not None else None, upto, latest, where)

    def _progress(self, request: BaseRequest, where: str) -> None:
        """The progress that a part states is the one that its own content makes."""
        after, upto = request.after, request.upto
        if upto.epoch != request.epoch or upto.part != (after.part + 1 if after is not None else 1):
            raise InvalidInput(f"{where}: it does not come behind the part that it names, or is of another epoch")
        if after is not None and (upto.seq, upto.seq_epoch) != (after.seq, after.seq_epoch):
            raise InvalidInput(f"{where}: the log continues after {upto.seq}, and after {after.seq} by the part before")
        if not (upto.seq <= upto.floor and upto.seq_epoch <= upto.floor_epoch <= request.epoch):
            raise InvalidInput(f"{where}: its point {upto.seq} lies behind {upto.floor}, or in a later epoch than its sender's")
        before = (after.table, after.key, after.request) if after is not None else (0, b"", None)
        table, key = request.rows[-1][:2] if request.rows else before[:2]
        if (upto.table, upto.key) != (table, key):
            raise InvalidInput(f"{where}: it says that it ends elsewhere than its rows do")
        if upto.request != (request.outcomes[-1][0] if request.outcomes else before[2]):
            raise InvalidInput(f"{where}: it says that it ends elsewhere than its outcomes do")

    def _outcomes(self, rows: Sequence[OutcomeRow], after: str | None, upto: BaseProgress, latest: int, where: str) -> None:
        at = after
        for key, _, epoch, seq, version, count, _ in rows:
            if at is not None and key <= at:
                raise InvalidInput(f"{where}: its outcomes do not ascend behind what is in already")
            if epoch > upto.epoch or seq > upto.floor or not 1 <= count <= seq:
                raise InvalidInput(f"{where}: the outcome of request {key!r} lies outside the log of this base")
            if not 0 < version <= latest:
                raise _no_time(version, where)
            at = key

    def base_done(self, request: BaseDoneRequest, wall_ms: int) -> None:
        base = request.after
        where = f"the end of base {base.load} in epoch {base.epoch}"
        if base.epoch != request.epoch:
            raise InvalidInput(f"{where}: it is sent in epoch {request.epoch}")
        self.history(request.history, base.seq_epoch, where)
        if request.history and request.history[-1][1] > base.seq:
            raise InvalidInput(f"{where}: epoch {base.seq_epoch} begins at {request.history[-1][1]}, behind {base.seq}")
        if not 0 <= request.last_timestamp <= latest_timestamp(wall_ms):
            raise _no_time(request.last_timestamp, where)


class _Walk:
    """Walks along the frames of one message, with the tables as each frame leaves them."""

    def __init__(self, verifier: Verifier, epoch: int, state: EngineState, latest: int) -> None:
        self._sites, self._epoch, self._latest = verifier._sites, epoch, latest
        self._seq, self._at_epoch, self._timestamp = state.seq, state.epoch, 0
        self._tables = verifier.tables(state.schemas())

    def take(self, frame: Frame) -> None:
        """HOT."""
        try:
            self._header(frame)
            records = frame.records
            if len(records) != frame.count:
                raise InvalidInput(f"it counts {frame.count} records, and holds {len(records)}")
            if (frame.epoch != self._at_epoch) != (records[0].kind == RecordKind.EPOCH_START):
                raise InvalidInput(f"an epoch begins with its start record, and only there; before it was {self._at_epoch}")
            for index, record in enumerate(records):
                self._record(frame, index, record)
            if frame.flags & _BARRIER and records[-1].kind != RecordKind.BARRIER:
                raise InvalidInput("it is flagged as a barrier, and does not end with one")
        except (InvalidInput, LogError) as error:
            raise InvalidInput(f"{frame!r} is no frame of this pair's log: {error.message}", **error.fields) from error
        except UNDECODABLE as error:
            raise InvalidInput(f"{frame!r} is no frame of this pair's log: {words(error)}") from error
        self._seq, self._at_epoch, self._timestamp = frame.last_seq, frame.epoch, frame.timestamp + frame.count - 1

    def _header(self, frame: Frame) -> None:
        if frame.log != 0:
            raise InvalidInput(f"it is of log {frame.log}")
        if not self._at_epoch <= frame.epoch <= self._epoch:
            raise InvalidInput(f"its epoch lies outside {self._at_epoch} to {self._epoch}")
        if frame.previous != self._seq or not self._seq < frame.first_seq <= self._seq + JUMP_MAX:
            raise InvalidInput(f"it does not continue sequence {self._seq}")
        if frame.last_seq > SEQ_MAX or frame.committed > frame.previous:
            raise InvalidInput(f"it says that {frame.committed} was committed before {frame.first_seq} was logged")
        if not self._timestamp < frame.timestamp or frame.timestamp + frame.count - 1 > self._latest:
            raise _no_time(frame.timestamp, "its records")

    def _record(self, frame: Frame, index: int, record: Record) -> None:
        kind = record.kind
        if kind in (_UPSERT, _UPDATE, _DELETE):
            table = self._tables.get(record.table)
            if table is None:
                raise InvalidInput(f"it has a row of table {record.table}, which is not there", table=record.table)
            if kind == _UPSERT:
                table.row(record.key, record.value)
            else:
                _changed(table, "update" if kind == _UPDATE else "delete", record.key, record.value)
        else:
            sound = _MARKS.get(kind)
            if sound is None:
                raise InvalidInput(f"it has a record of kind {kind}, which this release does not know")
            if (record.table and kind != RecordKind.DDL) or not sound(self, frame, index, record):
                raise InvalidInput(f"its record {index} is no {RecordKind(kind).name}")
        if record.request:
            self._request(frame, index, record.request)

    def _request(self, frame: Frame, index: int, mark: bytes) -> None:
        request = decoded(_decode_mark, mark, InvalidInput)
        if not 1 <= len(request.key) <= KEY_LENGTH_MAX or len(request.digest) > DIGEST_BYTES_MAX:
            raise InvalidInput(f"its record {index} bears an idempotency key that no door lets in")
        if not 1 <= request.count <= frame.count - index:
            raise InvalidInput(f"the request of its record {index} counts {request.count} records, more than follow")

    # ---- marks: each returns False for a record that is not of its form
    def _ddl(self, frame: Frame, index: int, record: Record) -> bool:
        number, changed = schema_change(record.value)
        if number != record.table or record.key:
            return False
        tables = dict(self._tables)
        if changed is None:
            tables.pop(number, None)
        else:
            schema = stored_schema(changed.schema)
            if schema.id != number or schema.history_s != changed.history_s:
                return False
            before = tables.get(number)
            if before is not None:
                check_follows(before.schema, schema)
            tables[number] = StoredTable(schema)
        _distinct({number: table.schema for number, table in tables.items()}, "its change of a table")
        self._tables = tables
        return True

    def _start(self, frame: Frame, index: int, record: Record) -> bool:
        start = decoded(_decode_start, record.value, InvalidInput)
        if start.epoch > EPOCH_MAX or start.site not in self._sites or start.kind not in EPOCH_KINDS:
            return False
        return index == 0 and start.epoch == frame.epoch and len(start.plan) <= KEY_LENGTH_MAX and not record.key

    def _mode(self, frame: Frame, index: int, record: Record) -> bool:
        return record.value in MODES and not record.key

    def _barrier(self, frame: Frame, index: int, record: Record) -> bool:
        return _barrier_name.fullmatch(record.key.decode()) is not None and not record.value

    def _cursor(self, frame: Frame, index: int, record: Record) -> bool:
        return len(record.key) <= KEY_LENGTH_MAX and len(record.value) <= CURSOR_BYTES_MAX

    def _noop(self, frame: Frame, index: int, record: Record) -> bool:
        return not record.key and not record.value


_MARKS: Mapping[int, Callable[[_Walk, Frame, int, Record], bool]] = {
    RecordKind.DDL: _Walk._ddl, RecordKind.EPOCH_START: _Walk._start, RecordKind.MODE: _Walk._mode,
    RecordKind.BARRIER: _Walk._barrier, RecordKind.CURSOR: _Walk._cursor, RecordKind.NOOP: _Walk._noop,
}


def _changed(table: StoredTable, operation: str, key: bytes, value: bytes) -> None:
    if operation == "upsert":
        table.row(key, value)
    elif operation == "update":
        table.changes(key, value)
    else:
        table.key(key)
        if value:
            raise InvalidInput(f"a delete in table {table.schema.name!r} has a value", table=table.schema.name)


def _distinct(tables: Mapping[int, TableSchema], where: str) -> Mapping[int, TableSchema]:
    """`tables`, each under its own id and a name of its own."""
    if any(table.id != number for number, table in tables.items()):
        raise InvalidInput(f"{where}: a schema is not of the table under whose id it comes")
    if len({table.name for table in tables.values()}) < len(tables):
        raise InvalidInput(f"{where}: two tables would have one name")
    return tables


def _no_time(version: int, where: str) -> InvalidInput:
    return InvalidInput(
        f"{where}: the timestamp {version} lies before the one that it follows, or more than {SKEW_MAX_S} s ahead of this"
        " site's clock: set the clocks of both sites"
    )
