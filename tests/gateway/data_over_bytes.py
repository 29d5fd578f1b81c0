"""The two data ports through bytes: every argument and answer is encoded as msgpack and decoded again, as over a socket.

What always holds: the site behind it sees only what the bytes held; a callable, a class or an engine's object would not pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from gateway.service.port import KeptTable, Rows, SiteService, Tables, WriteRequest, WriteResult
from storage.engine import StoredRow
from storage.log.record import RequestMark
from storage.rows.schema import TableSchema

T = TypeVar("T")


def over_bytes(value: T, kind: Any) -> T:
    """Returns `value` as the other end of a socket has it."""
    arrived: T = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    return arrived


def with_data_over_bytes(service: SiteService) -> SiteService:
    return replace(service, rows=RowsOverBytes(service.rows), tables=TablesOverBytes(service.tables))


class RowsOverBytes:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        return over_bytes(await self._rows.write(over_bytes(request, WriteRequest), deadline_s), WriteResult)

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        found = await self._rows.recorded(*over_bytes((key, digest), tuple[str, bytes]), deadline_s)
        return over_bytes(found, WriteResult | None)

    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None:
        row = await self._rows.read(over_bytes(table, TableSchema), over_bytes(key, bytes), as_of, stale)
        return over_bytes(row, StoredRow | None)

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False, snapshot: str | None = None,
    ) -> Sequence[StoredRow]:
        start, end = over_bytes((start, end), tuple[bytes | None, bytes | None])
        rows = await self._rows.scan(
            over_bytes(table, TableSchema), start, end, reverse=reverse, limit=limit, as_of=as_of, stale=stale,
            snapshot=over_bytes(snapshot, str | None),
        )
        return over_bytes(rows, list[StoredRow])

    async def open_snapshot(self, stale: bool = False) -> str:
        return over_bytes(await self._rows.open_snapshot(stale), str)

    def release_snapshot(self, snapshot: str) -> None:
        self._rows.release_snapshot(over_bytes(snapshot, str))

    async def receipt(self, receipt: str) -> dict[str, Any]:
        return over_bytes(await self._rows.receipt(receipt), dict[str, Any])


class TablesOverBytes:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, name: str) -> TableSchema:
        return over_bytes(self._tables.get(name), TableSchema)

    def all(self) -> list[TableSchema]:
        return over_bytes(self._tables.all(), list[TableSchema])

    def dropped(self) -> list[KeptTable]:
        return over_bytes(self._tables.dropped(), list[KeptTable])

    async def create(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        made = await self._tables.create(over_bytes(body, dict[str, Any]), over_bytes(mark, RequestMark | None))
        return over_bytes(made, tuple[TableSchema, bool])

    async def alter(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema:
        changed = await self._tables.alter(name, over_bytes(body, dict[str, Any]), over_bytes(mark, RequestMark | None))
        return over_bytes(changed, TableSchema)

    async def drop(self, name: str, mark: RequestMark | None = None, confirm: str | None = None) -> None:
        await self._tables.drop(name, over_bytes(mark, RequestMark | None), over_bytes(confirm, str | None))

    async def restore(self, name: str, mark: RequestMark | None = None) -> TableSchema:
        return over_bytes(await self._tables.restore(name, over_bytes(mark, RequestMark | None)), TableSchema)
