"""RocksDB and SQLite as a simulated site has them: the product's engines, but for their threads and for what befalls them.

What always holds: no thread is started, for each worker is a SimWorker; of RocksDB a crash leaves what was flushed, for its own
log is off; of SQLite the end of a process leaves every commit, and the end of the machine those until the last flush, or all.
Source: storage/engines/rocks/engine.py, storage/engines/sql/engine.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy import Connection

from chaos.simulate.engines.folder import InFolder, remove
from chaos.simulate.twins.engine import SimEngine, digest_of
from storage.engine import EngineState, StoredRow
from storage.engines import unshown
from storage.engines.rocks import layout
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings, open_database, open_folder
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import RocksView
from storage.engines.sql import opening, reading
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.kept_snapshots import snapshots_of
from storage.engines.sql.opening import SqlSettings, let_go, make_engine
from twinlog.errors import EngineFailed

T = TypeVar("T")
ALL = 1_000_000
ROCKS = RocksSettings(write_buffer_bytes=8 << 20, block_cache_bytes=1 << 20, inline_records_max=3)  # never full by itself
ROWS, LOG, INDEX = "rows.db", "rows.db-wal", "rows.db-shm"
COPIED_BYTES = 1 << 20  # at once
NOTHING_MORE = 0.5  # of the power losses go back to the last flush


class SimRocksEngine(InFolder, RocksEngine):
    """StorageEngine."""

    def _begin(self) -> None:
        RocksEngine.__init__(self, self._folder, open_folder(self._folder, ROCKS), ROCKS, self._worker("rocks-upkeep"))
        self._applier, self._reader = self._worker("rocks-apply"), self._worker("rocks-read")

    def _let_go(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()
        self._close_database()

    def _write(self, ranges: Iterable[layout.Range], entries: Iterable[tuple[bytes, bytes | None]]) -> bool:
        self.failure = self.failure or self._broken
        return super()._write(ranges, entries)

    def _flush(self) -> None:
        self.failure = self.failure or self._broken
        super()._flush()

    def _reopen(self) -> None:
        if self._broken is not None:
            raise EngineFailed(self._broken)
        super()._reopen()

    def digest_of_kept(self, name: str) -> str:
        """Returns the digest of all that both sites must hold alike, read from a copy of what was kept."""
        look = self._new_path()
        shutil.copytree(_place(self, name), look)
        database = open_database(look, ROCKS)
        view = RocksView(database)
        state = load_state(view)
        digest = _digest(state, lambda table: view.rows(table, None, None, False, ALL))
        database.close()
        remove(look)
        return digest


class SimSqlEngine(InFolder, SqlEngine):
    """StorageEngine."""

    def _begin(self) -> None:
        settings = self._settings_of(self._folder)
        engine = make_engine(settings)
        opened = opening.open_database(engine, settings, reading.notes)
        SqlEngine.__init__(self, settings, engine, opened, snapshots_of(engine), self._worker("sql-upkeep"))
        self._applier, self._getter = self._worker("sql-apply"), self._worker("sql-get")
        self._reader = self._worker("sql-read")
        self._is_synced()

    @staticmethod
    def _settings_of(folder: Path) -> SqlSettings:
        return SqlSettings(f"sqlite:///{folder / ROWS}", "sim", "of this run")

    def _is_synced(self) -> None:
        """From here on a power loss goes back to this moment at most."""
        for name in (ROWS, LOG):
            _copied_over(self._folder / name, self._home / name)

    def _after_power_loss(self, folder: Path) -> None:
        (folder / INDEX).unlink(missing_ok=True)
        if self._random.random() < NOTHING_MORE:
            for name in (ROWS, LOG):
                shutil.copyfile(self._home / name, folder / name)

    def _let_go(self) -> None:
        for snapshot in list(self._snapshots):
            if snapshot._connection is not None:
                snapshot._connection.close()
        let_go(self._writer, self._engine)

    def _write(self, work: Callable[[Connection], T], changes: unshown.Changes = unshown.NO_CHANGES) -> T:
        self.failure = self.failure or self._broken
        return super()._write(work, changes)

    def _flush(self) -> None:
        self.failure = self.failure or self._broken
        super()._flush()
        self._is_synced()

    async def set_meta(self, name: str, value: bytes | None) -> None:
        await super().set_meta(name, value)
        self._is_synced()

    def _reopen(self) -> None:
        if self._broken is not None:
            raise EngineFailed(self._broken)
        super()._reopen()
        self._is_synced()

    def digest_of_kept(self, name: str) -> str:
        """Returns the digest of all that both sites must hold alike, read from a copy of what was kept."""
        look = self._new_path()
        look.mkdir()
        shutil.copyfile(_place(self, name), look / ROWS)
        settings = self._settings_of(look)
        engine = make_engine(settings)
        opened = opening.open_database(engine, settings, reading.notes)
        with opened.writer.begin():
            digest = _digest(opened.state, lambda table: reading.rows(
                opened.writer, opened.places.get(table), None, None, False, ALL))
        let_go(opened.writer, engine)
        remove(look)
        return digest


def _copied_over(source: Path, target: Path) -> None:
    """As shutil.copyfile. A target of before keeps the memory that its bytes are in: that takes a quarter of the time."""
    target.touch()
    with source.open("rb", buffering=0) as read, target.open("r+b", buffering=0) as written:
        shutil.copyfileobj(read, written, COPIED_BYTES)
        written.truncate()


SimStorage = SimEngine | SimRocksEngine | SimSqlEngine
REAL: Mapping[str, Callable[[Path, Random], SimStorage]] = MappingProxyType({
    "rocksdb": SimRocksEngine, "sqlite": SimSqlEngine,
})


def _place(engine: RocksEngine | SqlEngine, name: str) -> str:
    return next(kept.place for kept in engine.kept_snapshots() if kept.name == name).partition(":")[2]


def _digest(state: EngineState, rows_of: Callable[[int], Iterable[StoredRow]]) -> str:
    schemas = sorted(state.schemas().items())
    rows = [(table, row.key, row.version, row.value) for table, _ in schemas for row in rows_of(table)]
    return digest_of(state.seq, state.epoch, rows, schemas, state.epochs)
