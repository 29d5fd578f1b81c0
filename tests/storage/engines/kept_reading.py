"""Reads a kept snapshot as another process would: by its place alone, with the engine knowing nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rocksdict import AccessType, Options, Rdict
from sqlalchemy import Connection, create_engine, text

from storage.engine import EngineState, EpochEntry, KeptSnapshot, StorageEngine, StoredRow
from storage.engines.memory.engine import MemoryEngine
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import RocksView
from storage.engines.sql import reading as sql_read
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.tables import settle

LIMIT = 10_000_000


class Content(NamedTuple):
    """All that both sites must hold alike."""

    seq: int
    epoch: int
    timestamp: int
    schemas: dict[int, bytes]
    epochs: list[EpochEntry]
    rows: dict[int, Sequence[StoredRow]]


async def content_of(engine: StorageEngine) -> Content:
    """Returns what is applied now."""
    applied = engine.applied
    rows = {n: await engine.scan(n, None, None, reverse=False, limit=LIMIT) for n in sorted(applied.schemas())}
    return _content(applied, rows)


async def read_kept(engine: StorageEngine, name: str) -> Content:
    """Returns what is kept under `name`; a memory engine has no place outside of itself."""
    (kept,) = [one for one in engine.kept_snapshots() if one.name == name]
    if isinstance(engine, MemoryEngine):
        copy = MemoryEngine()
        copy._state = engine._kept[name][1]  # what is kept outlives a crash, as a folder does
        return await content_of(copy)
    found = read_place(kept, engine._settings.url if isinstance(engine, SqlEngine) else "")
    assert (found.seq, found.epoch) == (kept.seq, kept.epoch)
    return found


def read_place(kept: KeptSnapshot, url: str = "") -> Content:
    """`url`: of the database, for PostgreSQL."""
    kind, _, where = kept.place.partition(":")
    if kind == "rocksdb":
        return _read_rocks(Path(where))
    if kind == "sqlite":
        engine = create_engine(f"sqlite:///file:{where}?mode=ro&uri=true")
        with engine.connect() as connection:
            return _read_sql(connection)
    assert kind == "postgresql", kept
    engine = create_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            connection.execute(text(f"SET TRANSACTION SNAPSHOT '{where}'"))
            return _read_sql(connection)
    finally:
        engine.dispose()


def _read_rocks(folder: Path) -> Content:
    database = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        view = RocksView(database)
        state = load_state(view)
        return _content(state, {n: view.rows(n, None, None, False, LIMIT) for n in sorted(state.tables.by_id)})
    finally:
        database.close()


def _read_sql(connection: Connection) -> Content:
    assert settle(connection)
    state, places = sql_read.load(connection)
    return _content(state, {n: sql_read.rows(connection, places[n], None, None, False, LIMIT) for n in sorted(places)})


def _content(state: EngineState, rows: dict[int, Sequence[StoredRow]]) -> Content:
    return Content(state.seq, state.epoch, state.timestamp, state.tables.schemas(), list(state.epochs), rows)


