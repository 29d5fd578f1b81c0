"""One write of an engine (entries/write.py), done in the open transaction of an SQL database.

What always holds: what goes goes before anything is put, as everywhere; rows of one table go in one batch; the watermark is
changed only where it is what the engine believes it to be, so two processes on one database cannot both continue.
On PostgreSQL a batch is copied to a temporary table and upserted from there (the fastest of what was measured:
docs/performance.md); a small one, and SQLite, take a multiple INSERT ... ON CONFLICT. Blocking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from sqlalchemy import ColumnElement, Connection, Delete, bindparam, delete, select, tuple_, update
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import DBAPIError

from storage.engine import EngineState, EpochEntry, RequestOutcome, Table, TableSet, horizon
from storage.engines.entries.write import VERSION_BYTES, EngineWrite, Rows, version_of
from storage.engines.sql import tables as own
from storage.engines.sql.names import KEY
from storage.engines.sql.opening import is_refusal, problem_of, wait_for_disk
from storage.engines.sql.reading import KEYS_AT_ONCE, is_one_of
from storage.engines.sql.tables import (
    TablePlace,
    address,
    change,
    create,
    driver_of,
    drop,
    forget,
    leave_as_it_is,
    quoted,
    run,
    signed,
    upsert_into,
)
from storage.rows.schema import decode_schema
from twinlog.errors import EngineFailed

COPY_ROWS_MIN = 30
PURGE_ROWS = 5000
ATTEMPT_LOCK_MS = 1000
EMPTY = b"\x80"  # a stored value without columns

TablePlaces = Mapping[int, TablePlace]

_MARK = own.state.c
_MOVE_MARK = (  # made once, as SQLAlchemy keeps its own work with a statement: every write has it
    update(own.state)
    .where((_MARK.one == 1) & (_MARK.seq == bindparam("had_seq")) & (_MARK.timestamp == bindparam("had_timestamp")))
    .values(
        seq=bindparam("to_seq"), epoch=bindparam("to_epoch"), timestamp=bindparam("to_timestamp"), base=bindparam("to_base")
    )
)


class ChangeRefused(Exception):
    """The database refuses the change of a schema that the log has. It becomes an EngineFailed where the record is known."""

    def __init__(self, table: int, problem: str) -> None:
        super().__init__(problem)
        self.table, self.problem = table, problem


def perform(
    connection: Connection, places: TablePlaces, before: EngineState, write: EngineWrite, unshown: Collection[int]
) -> TablePlaces:
    """Do `write` on what holds `before`; where the tables are afterwards. Changes of the tables `unshown` leave the database's
    tables as they are. Raises ChangeRefused, EngineFailed and the driver's errors."""
    mark(connection, before, write.state)
    found = dict(places)
    _delete(connection, found, write, unshown)
    _put_schemas(connection, found, write.schemas, unshown)
    _put_rows(connection, found, write.rows)
    _put_history(connection, write)
    _put_epochs(connection, write.epochs)
    _put_requests(connection, dict(write.requests))
    return found


def mark(connection: Connection, before: EngineState, after: EngineState) -> None:
    """Moves the watermark. Raises EngineFailed when the database is not where `before` says."""
    moved = {"had_seq": before.seq, "had_timestamp": before.timestamp, "to_seq": after.seq, "to_epoch": after.epoch,
             "to_timestamp": after.timestamp, "to_base": after.base}
    if connection.execute(_MOVE_MARK, moved).rowcount != 1:
        raise EngineFailed(
            f"the database is not at sequence {before.seq} any more: another process writes to it; give each site a database "
            "of its own"
        )


@contextmanager
def _changing(number: int, name: str) -> Iterator[None]:
    """From this block a refusal of the database comes as ChangeRefused, about the table `name`."""
    try:
        yield
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        raise ChangeRefused(number, f"table {name!r}: {problem_of(error)}") from error


def _drop(connection: Connection, place: TablePlace, unshown: Collection[int]) -> None:
    with _changing(place.number, place.name):
        (forget if place.number in unshown else drop)(connection, place)


def _delete(connection: Connection, places: dict[int, TablePlace], write: EngineWrite, unshown: Collection[int]) -> None:
    if write.emptied:
        for place in places.values():
            _drop(connection, place, unshown)
        places.clear()
        for table in (own.history, own.requests, own.epochs):
            connection.execute(delete(table))
    for number in write.dropped:
        if number in places:
            _drop(connection, places.pop(number), unshown)
    for number in write.without_history:
        connection.execute(delete(own.history).where(own.history.c.table_id == signed(number)))


def _put_schemas(
    connection: Connection, places: dict[int, TablePlace], schemas: Mapping[int, Table | None], unshown: Collection[int]
) -> None:
    for number, table in schemas.items():
        if table is None:
            continue  # it is dropped already
        place = places.get(number)
        if number in unshown:
            places[number] = leave_as_it_is(connection, place, number, table.schema)
        else:
            with _changing(number, decode_schema(table.schema).name):
                places[number] = create(connection, number, table.schema) if place is None else change(
                    connection, place, table.schema,
                    lambda made, rows: put_rows(connection, made, rows, last=False),
                )
        _note(connection, places[number], table)


def attempt_change(connection: Connection, places: TablePlaces, number: int, schema: bytes | None) -> None:
    """A change of the table `number` to `schema`, or its drop, and a row behind it, in a transaction that is rolled back.

    Raises what the change itself would raise. It waits for a lock for a moment only.
    """
    if connection.dialect.name != "sqlite":
        run(connection, f"SET LOCAL lock_timeout = {ATTEMPT_LOCK_MS}")
    place = places.get(number)
    if schema is None:
        if place is not None:
            drop(connection, place)
        return
    made = create(connection, number, schema) if place is None else change(connection, place, schema, None)
    put_rows(connection, made, [(b"", 0, EMPTY)])


def _note(connection: Connection, place: TablePlace, table: Table) -> None:
    changed = update(own.tables).where(own.tables.c.id == signed(place.number))
    connection.execute(
        changed.values(
            name=place.name, schema=table.schema, shown=place.unshown, history_s=table.history_s, since=table.since
        )
    )


@contextmanager
def _rows_of(place: TablePlace) -> Iterator[None]:
    """From this block a refusal of the database names the table, in the database's own name of it. Raises EngineFailed."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        if not is_refusal(error):
            raise
        raise EngineFailed(
            f"the database refuses rows of its table {place.name!r}: {problem_of(error)}; remove what refuses these (a "
            "trigger, a constraint), or give back what was taken away (a right, a column): the log has everything"
        ) from error


def _put_rows(connection: Connection, places: dict[int, TablePlace], rows: Rows) -> None:
    for number, changed in rows.items():
        place = places.get(number)
        gone = [key for key, packed in changed.items() if packed is None]
        if place is None:
            if len(gone) == len(changed):
                continue
            place = places[number] = create(connection, number, None)
        put = [
            (key, version_of(packed), packed[VERSION_BYTES:]) for key, packed in changed.items() if packed is not None
        ]
        with _rows_of(place):
            for at in range(0, len(gone), KEYS_AT_ONCE):
                connection.execute(delete(place.table).where(is_one_of(place, gone[at : at + KEYS_AT_ONCE])))
            put_rows(connection, place, put)


def put_rows(connection: Connection, place: TablePlace, rows: Sequence[tuple[bytes, int, bytes]], last: bool = True) -> None:
    """Upserts rows: key, version, value. `last`: these are the last of this transaction for this table."""
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
        f"INSERT INTO {address(connection, place)} ({names}) SELECT {names} FROM {stage} "
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
        return f"pg_temp.twinlog_stage_{made[1]}"
    if made is not None:
        run(connection, f"DROP TABLE pg_temp.twinlog_stage_{made[1]}")
    number = connection.info["stage"] = connection.info.get("stage", 0) + 1
    run(connection, (
        f"CREATE TEMPORARY TABLE pg_temp.twinlog_stage_{number} ON COMMIT DELETE ROWS AS "
        f"SELECT {names} FROM {address(connection, place)} WITH NO DATA"
    ))
    stages[place.number] = (shape, number)
    return f"pg_temp.twinlog_stage_{number}"


def _put_history(connection: Connection, write: EngineWrite) -> None:
    put = [
        {
            "table_id": signed(number), "key": key, "until": until, "version": version_of(packed),
            "value": packed[VERSION_BYTES:],
        }
        for number, versions in write.history.items() for (key, until), packed in versions.items()
    ]
    if put:
        connection.execute(upsert_into(own.history, connection.dialect.name), put)


def _put_epochs(connection: Connection, entries: Sequence[EpochEntry]) -> None:
    for entry in entries:
        connection.execute(
            upsert_into(own.epochs, connection.dialect.name),
            {"epoch": entry.epoch, "first_seq": entry.first_seq, "previous": entry.previous, "site": entry.site,
             "kind": entry.kind},
        )


def _put_requests(connection: Connection, requests: Mapping[str, RequestOutcome]) -> None:
    put = [
        {
            "key": name.encode(), "digest": one.digest, "epoch": one.epoch, "seq": one.seq, "version": one.version,
            "count": one.count, "was_async": one.was_async,
        }
        for name, one in requests.items()
    ]
    if put:
        connection.execute(upsert_into(own.requests, connection.dialect.name), put)


def cut(
    connection: Connection, places: TablePlaces, before: EngineState, write: EngineWrite, unshown: Collection[int]
) -> TablePlaces:
    """Do a `write` of a rejoin: its rows lose their history, and nothing above its state is remembered."""
    rows = [{"of": signed(table), "row": key} for table, changed in write.rows.items() for key in changed]
    if rows:
        one = (own.history.c.table_id == bindparam("of")) & (own.history.c.key == bindparam("row"))
        connection.execute(delete(own.history).where(one), rows)
    connection.execute(delete(own.requests).where(own.requests.c.seq > write.state.seq))
    connection.execute(delete(own.epochs).where(own.epochs.c.epoch > write.state.epoch))
    return perform(connection, places, before, write, unshown)


def expired_deletes(tables: TableSet, now_ms: int, request_ttl_s: int) -> Iterator[Delete]:
    """Yields the deletes of a purge at `now_ms`, each to be repeated until it finds fewer than PURGE_ROWS."""
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
