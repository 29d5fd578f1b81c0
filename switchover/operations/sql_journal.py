"""The journal in a database, by default a file of its own: operations, their steps, and the history that is only added to.

What always holds: as in journal.py; each call is one synced transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from storage.settings import RESTART, Secret
from switchover.operations.document import HistoryEntry, Operation, StepRecord
from switchover.operations.journal import forgotten, id_taken, unknown_operation
from switchover.sql_database import AlreadyThere, Database
from twinlog.decoding import decoded
from twinlog.errors import DamagedLog

_metadata = MetaData()
_operations = Table(
    "operations",
    _metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("to", Text),
    Column("options", Text, nullable=False),  # JSON, as every Text column here but `what`
    Column("actor", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("aborting", Boolean, nullable=False),
    Column("finished_ms", BigInteger),
    Column("error", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("expires_ms", BigInteger),
    Index("operations_dry", "dry_run", "number"),  # each new operation looks for old dry runs
)
_steps = Table(
    "steps",
    _metadata,
    Column("operation_id", Text, ForeignKey(_operations.c.id), primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("abortable", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("detail", Text, nullable=False),
)
_history = Table(
    "history",
    _metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("wall_ms", BigInteger, nullable=False),
    Column("operation", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("to", Text),
    Column("actor", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("step", Text),
    Column("took_ms", BigInteger),
    Column("detail", Text, nullable=False),
)
_JSON = frozenset({"options", "error", "result", "detail"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The place of the journal of the site's role changes; empty: journal.db in the data directory."""

    url: Annotated[str, Secret(), RESTART] = field(default="", repr=False)

    def address(self, data_dir: Path) -> str:
        return self.url or f"sqlite:///{data_dir / 'journal.db'}"


class SqlJournal:
    """One site's journal."""

    def __init__(self, url: str, deadline_s: float = 5.0) -> None:
        self._database = Database(url, "journal", _metadata, deadline_s)

    async def create(self, operation: Operation, entry: HistoryEntry) -> None:
        def call(connection: Connection) -> None:
            connection.execute(insert(_operations).values(_columns(operation, without="steps")))
            _write(connection, operation, entry)
            _forget_dry_runs(connection, operation.created_ms)

        try:
            await self._database.run(call)
        except AlreadyThere:
            raise id_taken(operation.id) from None

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        def call(connection: Connection) -> None:
            values = _columns(operation, without="steps")
            connection.execute(update(_operations).where(_operations.c.id == operation.id).values(values))
            _write(connection, operation, entry)

        await self._database.run(call)

    async def load(self, operation_id: str) -> Operation:
        def call(connection: Connection) -> Operation | None:
            row = connection.execute(select(_operations).where(_operations.c.id == operation_id)).one_or_none()
            return None if row is None else _with_steps(connection, [row])[0]

        found = await self._database.run(call)
        if found is None:
            raise unknown_operation(operation_id)
        return found

    async def operations(self, limit: int) -> list[Operation]:
        newest = select(_operations).order_by(_operations.c.number.desc()).limit(limit)
        return await self._database.run(lambda connection: _with_steps(connection, connection.execute(newest).all()))

    async def history(self, limit: int) -> list[HistoryEntry]:
        newest = select(_history).order_by(_history.c.number.desc()).limit(limit)
        return await self._database.run(
            lambda connection: [decoded(_to_entry, _fields(row), _damaged) for row in connection.execute(newest)]
        )

    async def close(self) -> None:
        await self._database.close()


def _forget_dry_runs(connection: Connection, now_ms: int) -> None:
    dry = select(_operations.c.id, _operations.c.created_ms).where(_operations.c.dry_run).order_by(_operations.c.number.desc())
    old = forgotten([(row.id, row.created_ms) for row in connection.execute(dry)], now_ms)
    if old:
        connection.execute(delete(_steps).where(_steps.c.operation_id.in_(old)))
        connection.execute(delete(_history).where(_history.c.operation.in_(old)))
        connection.execute(delete(_operations).where(_operations.c.id.in_(old)))


def _write(connection: Connection, operation: Operation, entry: HistoryEntry) -> None:
    connection.execute(delete(_steps).where(_steps.c.operation_id == operation.id))
    rows = [_columns(step) | {"operation_id": operation.id, "place": place} for place, step in enumerate(operation.steps)]
    if rows:
        connection.execute(insert(_steps), rows)
    connection.execute(insert(_history).values(_columns(entry)))


def _columns(struct: msgspec.Struct, without: str = "") -> dict[str, Any]:
    """Column values of a struct: JSON text where the table keeps JSON."""
    fields = {name: value for name, value in msgspec.structs.asdict(struct).items() if name != without}
    return {name: msgspec.json.encode(value).decode() if name in _JSON else value for name, value in fields.items()}


def _fields(row: Row[Any]) -> dict[str, Any]:
    """The inverse of `_columns`; columns that the struct does not have are ignored by msgspec."""
    fields = row._mapping.items()
    return {str(name): decoded(msgspec.json.decode, value, _damaged) if name in _JSON else value for name, value in fields}


_to_entry = partial(msgspec.convert, type=HistoryEntry)
_to_step = partial(msgspec.convert, type=StepRecord)
_to_operation = partial(msgspec.convert, type=Operation)


def _damaged(what: str) -> DamagedLog:
    return DamagedLog(f"the journal of operations holds what cannot be read: {what}; restore its database from a copy")


def _with_steps(connection: Connection, rows: Sequence[Row[Any]]) -> list[Operation]:
    """Reads the steps of all of them at once."""
    steps = select(_steps).where(_steps.c.operation_id.in_([row.id for row in rows])).order_by(_steps.c.place)
    found: defaultdict[str, list[StepRecord]] = defaultdict(list)
    for step in connection.execute(steps):
        found[step.operation_id].append(decoded(_to_step, _fields(step), _damaged))
    made: list[Operation] = [decoded(_to_operation, _fields(row) | {"steps": []}, _damaged) for row in rows]
    return [msgspec.structs.replace(one, steps=tuple(found[one.id])) for one in made]
