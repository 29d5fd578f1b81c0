"""One write of an engine, as rocks_changes.py and rocks_state.py collect it, done in the open transaction of an SQL database.

What always holds: ranges are deleted before anything is put, as everywhere; rows of one table go in one batch; the watermark is
changed only where it is what the engine believes it to be, so two processes on one database cannot both go on.
On PostgreSQL a batch is copied to a temporary table and upserted from there (the fastest of what was measured:
docs/performance.md); a small one, and SQLite, take a multiple INSERT ... ON CONFLICT. Blocking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Delete, bindparam, delete, select, tuple_, update
from sqlalchemy import Table as SqlTable

from storage.engines.applied import State
from storage.engines.entries import layout
from storage.engines.meaning import Table, Tables, horizon
from storage.engines.rocks.state import Replacement, Write
from storage.engines.sql import tables as own
from storage.engines.sql.column_types import KEY
from storage.engines.sql.opening import wait_for_disk
from storage.engines.sql.reading import KEYS_AT_ONCE, is_one_of
from storage.engines.sql.tables import TablePlace, change, create, driver_of, drop, quoted, run, signed, upsert_into
from twinlog.errors import EngineFailed

COPY_ROWS_MIN = 30
PURGE_ROWS = 5000

TablePlaces = Mapping[int, TablePlace]


def perform(connection: Connection, places: TablePlaces, before: State, write: Write) -> TablePlaces:
    """Do `write` on what holds `before`; where the tables are afterwards. Raises EngineFailed and the driver's errors."""
    mark(connection, before, write.state)
    found = _delete_ranges(connection, dict(places), write.ranges)
    sections: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for item in write.changes.items():
        sections[item[0][0]].append(item)
    _put_schemas(connection, found, sections[3])
    _put_rows(connection, found, sections[1])
    _put_history(connection, sections[2])
    _put_epochs(connection, sections[4])
    _put_requests(connection, sections[5])
    return found


def mark(connection: Connection, before: State, after: State) -> None:
    """The watermark. Raises EngineFailed when the database is not where `before` says."""
    moved = (
        update(own.state)
        .where((own.state.c.one == 1) & (own.state.c.seq == before.seq) & (own.state.c.timestamp == before.timestamp))
        .values(seq=after.seq, epoch=after.epoch, timestamp=after.timestamp, base=after.base)
    )
    if connection.execute(moved).rowcount != 1:
        raise EngineFailed(
            f"the database is not at sequence {before.seq} any more: another process writes to it; give each site a database "
            "of its own"
        )


def _delete_ranges(
    connection: Connection, places: dict[int, TablePlace], ranges: Sequence[layout.Range]
) -> dict[int, TablePlace]:
    for begin, end in ranges:
        if (begin, end) == layout.CONTENT:
            for place in places.values():
                drop(connection, place)
            places.clear()
            for table in (own.history, own.requests, own.epochs):
                connection.execute(delete(table))
            continue
        number = int.from_bytes(begin[1 : layout.PREFIX_BYTES], "big")
        if begin[0] == 1 and number in places:
            drop(connection, places.pop(number))
        elif begin[0] == 2:
            connection.execute(delete(own.history).where(own.history.c.table_id == signed(number)))
    return places


def _put_schemas(connection: Connection, places: dict[int, TablePlace], items: Sequence[tuple[bytes, bytes | None]]) -> None:
    for key, stored in items:
        if stored is None:
            continue  # its range is deleted already
        number, table = int.from_bytes(key[1:], "big"), layout.decode_table(stored)
        place = places.get(number)
        if place is None:
            places[number] = create(connection, number, table.schema)
        else:
            places[number] = change(
                connection, place, table.schema,
                lambda made, rows: put_rows(connection, made, rows, last=False),
            )
        _note(connection, places[number], table)


def _note(connection: Connection, place: TablePlace, table: Table) -> None:
    changed = update(own.tables).where(own.tables.c.id == signed(place.number))
    connection.execute(
        changed.values(name=place.name, schema=table.schema, history_s=table.history_s, since=table.since)
    )


def _put_rows(connection: Connection, places: dict[int, TablePlace], items: Sequence[tuple[bytes, bytes | None]]) -> None:
    by_table: dict[bytes, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for key, stored in items:
        by_table[key[1 : layout.PREFIX_BYTES]].append((key[layout.PREFIX_BYTES :], stored))
    for prefix, rows in by_table.items():
        number = int.from_bytes(prefix, "big")
        place = places.get(number)
        gone = [key for key, stored in rows if stored is None]
        if place is None:
            if len(gone) == len(rows):
                continue
            place = places[number] = create(connection, number, None)
        for at in range(0, len(gone), KEYS_AT_ONCE):
            connection.execute(delete(place.table).where(is_one_of(place, gone[at : at + KEYS_AT_ONCE])))
        put = [
            (key, int.from_bytes(stored[: layout.VERSION_BYTES], "big"), stored[layout.VERSION_BYTES :])
            for key, stored in rows if stored is not None
        ]
        put_rows(connection, place, put)


def put_rows(connection: Connection, place: TablePlace, rows: Sequence[tuple[bytes, int, bytes]], last: bool = True) -> None:
    """Upsert rows: key, version, value. `last`: of this transaction for this table."""
    if not rows:
        return
    if place.dialect == "sqlite" or len(rows) < COPY_ROWS_MIN:
        connection.execute(place.upsert, [dict(zip(place.names, place.row(*row), strict=True)) for row in rows])
        return
    names = ", ".join(quoted(connection, name) for name in place.names)
    stage = _stage(connection, place, names)
    with driver_of(connection).cursor() as cursor, cursor.copy(f"COPY {stage} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(place.row(*row))  # the server takes what came before meanwhile
    others = ", ".join(f"{quoted(connection, name)} = EXCLUDED.{quoted(connection, name)}" for name in place.names[1:])
    run(connection, (
        f"INSERT INTO {quoted(connection, place.name)} ({names}) SELECT {names} FROM {stage} "
        f"ON CONFLICT ({quoted(connection, KEY)}) DO UPDATE SET {others}"
    ))
    if not last:
        run(connection, f"TRUNCATE {stage}")


def _stage(connection: Connection, place: TablePlace, names: str) -> str:
    """The temporary table of this connection for `place`; it empties itself with each commit."""
    stages: dict[int, tuple[object, int]] = connection.info.setdefault("stages", {})
    shape = place.name, place.shown
    made = stages.get(place.number)
    if made is not None and made[0] == shape:
        return f"twinlog_stage_{made[1]}"
    if made is not None:
        run(connection, f"DROP TABLE pg_temp.twinlog_stage_{made[1]}")
    number = connection.info["stage"] = connection.info.get("stage", 0) + 1
    run(connection, (
        f"CREATE TEMPORARY TABLE twinlog_stage_{number} ON COMMIT DELETE ROWS AS "
        f"SELECT {names} FROM {quoted(connection, place.name)} WITH NO DATA"
    ))
    stages[place.number] = (shape, number)
    return f"twinlog_stage_{number}"


def _put_history(connection: Connection, items: Sequence[tuple[bytes, bytes | None]]) -> None:
    put = []
    for where, stored in items:
        number, key, until = layout.history_parts(where)
        assert stored is not None, "single versions go by purge and by key only"
        put.append({
            "table_id": signed(number), "key": key, "until": until, "version": layout.version_of(stored),
            "value": stored[layout.VERSION_BYTES :],
        })
    if put:
        connection.execute(upsert_into(own.history, connection.dialect.name), put)


def _put_epochs(connection: Connection, items: Sequence[tuple[bytes, bytes | None]]) -> None:
    for _, stored in items:
        assert stored is not None, "epochs go by a cut only"
        entry = layout.decode_epoch(stored)
        connection.execute(
            upsert_into(own.epochs, connection.dialect.name),
            {"epoch": entry.epoch, "first_seq": entry.first_seq, "previous": entry.previous, "site": entry.site,
             "kind": entry.kind},
        )


def _put_requests(connection: Connection, items: Sequence[tuple[bytes, bytes | None]]) -> None:
    put = []
    for where, stored in items:
        assert stored is not None, "outcomes go by purge and by a cut only"
        told = layout.decode_outcome(stored)
        put.append({
            "key": where[1:], "digest": told.digest, "epoch": told.epoch, "seq": told.seq, "version": told.version,
            "count": told.count, "was_async": told.was_async,
        })
    if put:
        connection.execute(upsert_into(own.requests, connection.dialect.name), put)


def cut(connection: Connection, places: TablePlaces, before: State, after: State, rows: Sequence[Replacement]) -> TablePlaces:
    """A rejoin: rows (None: gone) without their history; nothing above `after` is remembered."""
    if rows:
        one = (own.history.c.table_id == bindparam("of")) & (own.history.c.key == bindparam("row"))
        connection.execute(delete(own.history).where(one), [{"of": signed(table), "row": key} for table, key, _ in rows])
    connection.execute(delete(own.requests).where(own.requests.c.seq > after.seq))
    connection.execute(delete(own.epochs).where(own.epochs.c.epoch > after.epoch))
    changes = {
        layout.row_prefix(table) + key: None if row is None else layout.pack_row(row.version, row.value)
        for table, key, row in rows
    }
    found = perform(connection, places, before, Write((), changes, after))
    for number, table in after.tables.by_id.items():
        _note(connection, found[number], table)
    return found


def expired_deletes(tables: Tables, now_ms: int, request_ttl_s: int) -> Iterator[Delete]:
    """What to run, each until it finds less than PURGE_ROWS: versions and outcomes go whose time is over at `now_ms`."""
    of, asked = own.history.c, own.requests.c
    for number, table in tables.by_id.items():
        yield _some(own.history, (of.table_id == signed(number)) & (of.until <= horizon(now_ms, table.history_s)))
    yield _some(own.requests, asked.version <= horizon(now_ms, request_ttl_s))


def _some(table: SqlTable, gone: ColumnElement[bool]) -> Delete:
    key = list(table.primary_key.columns)
    return delete(table).where(tuple_(*key).in_(select(*key).where(gone).limit(PURGE_ROWS)))


def put_note(connection: Connection, name: str, value: bytes | None) -> None:
    """None: it goes. The commit waits for the disk."""
    wait_for_disk(connection)
    if value is None:
        connection.execute(delete(own.notes).where(own.notes.c.name == name))
    else:
        connection.execute(upsert_into(own.notes, connection.dialect.name), {"name": name, "value": value})
