"""Sites' storage for tests of audits: the product's engines, filled by frames; a snapshot kept; what is planted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.job import Barrier, JobRequest, SiteSource
from storage.engine import KeptSnapshot, StorageEngine, StoredRow
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.schema import TableSchema, encode_schema, parse_table
from tests.storage.engines.sql.rig import a_database, postgres

ENGINES = ("rocksdb", "sqlite", "postgresql")
EPOCH = 1
Rows = Mapping[bytes, bytes]


def table(number: int, name: str = "", **more: Any) -> TableSchema:
    """Key `id` of int64, and a text."""
    columns = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}]
    return parse_table({"name": name or f"table{number}", "columns": columns, "primary_key": ["id"], **more}, number)


def frames(schemas: Sequence[TableSchema], rows: Mapping[int, Rows]) -> list[Frame]:
    """The log of a pair that made these tables and put these rows."""
    ddl = [
        Record(kind=int(RecordKind.DDL), table=schema.id, value=msgspec.msgpack.encode(
            SchemaChange(kind="put", table=schema.id, schema=encode_schema(schema), history_s=schema.history_s)))
        for schema in schemas
    ]
    puts = [
        Record(kind=int(RecordKind.UPSERT), table=number, key=key, value=value)
        for number, of in rows.items() for key, value in of.items()
    ]
    made: list[Frame] = []
    seq, size = 0, 1000
    for records in (ddl, *(puts[at : at + size] for at in range(0, len(puts), size))):
        if records:
            made.append(make_frame(
                epoch=EPOCH, first_seq=seq + 1, previous=seq, timestamp=seq + 1, committed=seq, records=records
            ))
            seq = made[-1].last_seq
    return made


@dataclass
class Storage:
    """One site's storage, open, and what an audit is told of it."""

    name: str
    engine: StorageEngine
    url: str

    async def plant(self, *rows: tuple[int, bytes, StoredRow | None]) -> None:
        """These rows, as no log made them; the watermark stays."""
        await self.engine.replace_rows(rows, self.engine.applied.seq, self.engine.applied.epoch, self.engine.applied.timestamp)

    async def keep(self, name: str = "audit") -> KeptSnapshot:
        await self.engine.keep_snapshot(name, 0)
        (kept,) = (one for one in self.engine.kept_snapshots() if one.name == name)
        return kept

    async def source(self, snapshot: str = "audit") -> SiteSource:
        """Returns the site with a snapshot of this moment."""
        return SiteSource(self.name, "http://127.0.0.1:1", engine_url=self.url, place=(await self.keep(snapshot)).place)

    async def fill(self, schemas: Sequence[TableSchema], rows: Mapping[int, Rows], seq: int = 100) -> None:
        """These tables and rows, all of version 1, as base data at `seq`."""
        stored = [(number, StoredRow(key, value, 1)) for number, of in rows.items() for key, value in of.items()]
        await self.engine.load_base(stored, [], b"", True, {schema.id: encode_schema(schema) for schema in schemas})
        await self.engine.finish_base(seq, EPOCH, 1, [])


@asynccontextmanager
async def storage(kind: str, name: str, folder: Path, log: Sequence[Frame]) -> AsyncIterator[Storage]:
    """A new storage with `log` applied."""
    if kind == "rocksdb":
        rocks = await RocksEngine.open(folder / name, RocksSettings())
        async for one in _filled(Storage(name, rocks, ""), log):
            yield one
    elif kind == "sqlite":
        (folder / name).mkdir(parents=True)
        async for one in _filled(await _sql(f"sqlite:///{folder / name / 'rows.db'}", name), log):
            yield one
    else:
        with a_database() as database:
            async for one in _filled(await _sql(postgres().url(database), name), log):
                yield one


async def _sql(url: str, name: str) -> Storage:
    return Storage(name, await SqlEngine.open(SqlSettings(url, "test", name)), url)


async def _filled(made: Storage, log: Sequence[Frame]) -> AsyncIterator[Storage]:
    try:
        for frame in log:
            await made.engine.apply([frame])
        yield made
    finally:
        await made.engine.close()


def barrier(seq: int) -> Barrier:
    return Barrier("audit", EPOCH, seq)


def request(source: SiteSource, peer: SiteSource, at: Barrier | None = None, tables: tuple[str, ...] = ()) -> JobRequest:
    return JobRequest("compare", "test", source, peer, Path("nowhere"), tables, at)
