"""Reads of an SQL engine: rows, rows as they were, outcomes, and the state at start. Blocking, on a connection that is given.

What always holds: rows come in the order of their encoded keys, from `twinlog_value`; what is read in one transaction at
REPEATABLE READ (PostgreSQL) or in one read transaction (SQLite) is of one moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, LargeBinary, Select, any_, bindparam, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from storage.engine import EngineState, EpochEntry, RequestOutcome, StoredRow, Table, TableSet
from storage.engines.entries.effects import ReadRow
from storage.engines.entries.write import Packed, pack_row
from storage.engines.sql import tables as own
from storage.engines.sql.names import KEY, ROW_VERSION, VALUE
from storage.engines.sql.tables import TablePlace, driver_of, place_of, signed, unsigned
from storage.log.frame import Frame
from storage.log.record import RecordKind

FETCHED_ROWS = 500
_UPDATE: Final = int(RecordKind.UPDATE)  # plain ints: see entries/effects.py
_REPLACES: Final = frozenset((int(RecordKind.UPSERT), int(RecordKind.DELETE)))
KEYS_AT_ONCE = 1000
_OUTCOME = select(own.requests).where(own.requests.c.key == bindparam("one"))  # made once: most writes look for theirs


def row(connection: Connection, place: TablePlace | None, key: bytes) -> StoredRow | None:
    if place is None:
        return None
    return next((StoredRow(key, value, version) for version, value in connection.execute(place.point, {"one": key})), None)


def stored_of_keys(connection: Connection, place: TablePlace | None, keys: list[bytes]) -> Iterable[tuple[bytes, int, bytes]]:
    """HOT. Key, version and value of those of the rows that there are."""
    if place is None:
        return
    if place.dialect == "postgresql":  # by the driver itself, in its binary form: a third of the time
        with driver_of(connection).cursor(binary=True) as cursor:
            yield from cursor.execute(place.of_keys, [keys]).fetchall()
        return
    for at in range(0, len(keys), KEYS_AT_ONCE):
        wanted = _columns(place).where(is_one_of(place, keys[at : at + KEYS_AT_ONCE]))
        yield from ((key, version, value) for key, version, value in connection.execute(wanted))


def is_one_of(place: TablePlace, keys: Sequence[bytes]) -> ColumnElement[bool]:
    """The condition that a row's key is among `keys`. PostgreSQL takes them as one array, several times as fast as a list."""
    column = place.table.c[KEY]
    if place.dialect == "sqlite":
        return column.in_(keys)
    return column == any_(bindparam("keys", list(keys), type_=ARRAY(LargeBinary)))


def rows(
    connection: Connection, place: TablePlace | None, start: bytes | None, end: bytes | None, reverse: bool, limit: int,
    bytes_max: int | None = None,
) -> list[StoredRow]:
    """At most `limit` rows of `[start, end)`, up to the one that brings keys and values to `bytes_max`."""
    if place is None or limit <= 0:
        return []
    wanted = _between(_columns(place), place.table.c[KEY], start, end, reverse).limit(limit)
    if bytes_max is None:
        return [StoredRow(key, value, version) for key, version, value in connection.execute(wanted)]
    found: list[StoredRow] = []
    size = 0
    with connection.execute(wanted, execution_options={"yield_per": FETCHED_ROWS}) as answer:
        for key, version, value in answer:
            found.append(StoredRow(key, value, version))
            size += len(key) + len(value)
            if size >= bytes_max:
                break
    return found


def current_rows(
    connection: Connection, places: Mapping[int, TablePlace], with_history: Collection[int], frames: Sequence[Frame]
) -> ReadRow:
    """The rows that the updates of `frames` build on and that histories keep, read at once; a row that nobody foresaw is read
    alone."""
    wanted: dict[int, dict[bytes, None]] = defaultdict(dict)
    for frame in frames:
        for record in frame.records:
            if record.kind == _UPDATE or (record.table in with_history and record.kind in _REPLACES):
                wanted[record.table][record.key] = None
    found: dict[tuple[int, bytes], Packed | None] = {}
    for number, keys in wanted.items():
        found.update(((number, key), None) for key in keys)
        for key, version, value in stored_of_keys(connection, places.get(number), list(keys)):
            found[number, key] = pack_row(version, value)

    def current(number: int, key: bytes) -> Packed | None:
        if (number, key) not in found:
            one = row(connection, places.get(number), key)
            found[number, key] = None if one is None else pack_row(one.version, one.value)
        return found[number, key]

    return current


def row_as_of(connection: Connection, place: TablePlace | None, number: int, key: bytes, as_of: int) -> StoredRow | None:
    """The row as it was at version `as_of`."""
    now = row(connection, place, key)
    if now is not None and now.version <= as_of:
        return now
    of = own.history.c
    later = (of.table_id == signed(number)) & (of.key == key) & (of.until > as_of)  # the first alone may have stood then
    first = select(of.key, of.value, of.version).where(later).order_by(of.until).limit(1)
    return next((StoredRow(*one) for one in connection.execute(first) if one.version <= as_of), None)


def rows_as_of(
    connection: Connection, place: TablePlace | None, number: int, start: bytes | None, end: bytes | None, reverse: bool,
    limit: int, as_of: int,
) -> list[StoredRow]:
    """At most `limit` rows of `[start, end)` as they were: a key's is its row of today or one of its history, never both."""
    if limit <= 0:
        return []
    found = []
    if place is not None:
        now = _columns(place).where(place.table.c[ROW_VERSION] <= as_of)
        now = _between(now, place.table.c[KEY], start, end, reverse).limit(limit)
        found = [StoredRow(key, value, version) for key, version, value in connection.execute(now)]
    old = _between(_replaced(number, as_of), own.history.c.key, start, end, reverse).limit(limit)
    both = chain(found, (StoredRow(*one) for one in connection.execute(old)))
    return sorted(both, key=lambda stored: stored.key, reverse=reverse)[:limit]


def _columns(place: TablePlace) -> Select[Any]:
    table = place.table
    return select(table.c[KEY], table.c[ROW_VERSION], table.c[VALUE])


def _replaced(number: int, as_of: int) -> Select[Any]:
    of = own.history.c
    there = (of.table_id == signed(number)) & (of.version <= as_of) & (of.until > as_of)
    return select(of.key, of.value, of.version).where(there)


def _between(
    wanted: Select[Any], key: Any, start: bytes | None, end: bytes | None, reverse: bool
) -> Select[Any]:
    if start is not None:
        wanted = wanted.where(key >= start)
    if end is not None:
        wanted = wanted.where(key < end)
    return wanted.order_by(key.desc() if reverse else key)


def outcome(connection: Connection, key: str) -> RequestOutcome | None:
    """Returns the answer of an idempotency key."""
    return next((_outcome(one) for one in connection.execute(_OUTCOME, {"one": key.encode()})), None)


def outcomes(connection: Connection, after: str | None, limit: int) -> list[tuple[str, RequestOutcome]]:
    """At most `limit` idempotency keys above `after`, in the order of their UTF-8."""
    wanted = select(own.requests).order_by(own.requests.c.key).limit(limit)
    if after is not None:
        wanted = wanted.where(own.requests.c.key > after.encode())
    return [(one.key.decode(), _outcome(one)) for one in connection.execute(wanted)]


def _outcome(one: Any) -> RequestOutcome:
    return RequestOutcome(one.digest, one.epoch, one.seq, one.version, one[5], one.was_async)


def applied_seq(connection: Connection) -> int:
    seq: int = connection.execute(select(own.state.c.seq)).scalar_one()
    return seq


def load(connection: Connection) -> tuple[EngineState, dict[int, TablePlace]]:
    """The state as the database has it, and where each table lies."""
    marked = connection.execute(select(own.state)).one()
    places, tables = {}, {}
    for one in connection.execute(select(own.tables)):
        number = unsigned(one.id)
        places[number] = place_of(connection, number, one.name, one.schema, one.shown)
        if one.schema is not None:
            tables[number] = Table(one.schema, one.history_s, one.since)
    epochs = tuple(
        EpochEntry(one.epoch, one.first_seq, one.previous, one.site, one.kind)
        for one in connection.execute(select(own.epochs).order_by(own.epochs.c.epoch))
    )
    return EngineState(marked.seq, marked.epoch, marked.timestamp, marked.base, TableSet(tables), epochs), places


def size(connection: Connection) -> int:
    """Bytes on disk of the whole database."""
    if connection.dialect.name == "sqlite":  # no table-valued function: a table of that name would be met instead
        pages, page_bytes = (connection.execute(text(f"PRAGMA main.{one}")).scalar_one() for one in ("page_count", "page_size"))
        return int(pages * page_bytes)
    told: int = connection.execute(text("SELECT pg_catalog.pg_database_size(pg_catalog.current_database())")).scalar_one()
    return told


def notes(connection: Connection) -> dict[str, bytes]:
    return {one.name: one.value for one in connection.execute(select(own.notes))}
