"""The asynchronous client: the methods of Client (client.py), to be awaited, on a running asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from twinlog import calls, rows
from twinlog.addresses import resolve_address, resolve_tls
from twinlog.audit_calls import AsyncAuditCalls
from twinlog.calls import Ack, ReceiptOutcome, Row, TypedCall
from twinlog.client import END_SCAN_S, EVENT_SILENCE_S, READS_MAX, changing, followed, for_ever, new_key, within
from twinlog.errors import TwinlogError
from twinlog.flow import Call, Flow, PairView, Patience, Pause, Resumed, call
from twinlog.wire.async_http import AsyncHttp
from twinlog.wire.exchange import Broken, Reply
from twinlog.wire.tls import Tls
from twinlog.wire.token import token_for

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_T = TypeVar("_T")


class AsyncClient(AsyncAuditCalls):
    """The asynchronous client: the methods of Client, to be awaited; `connections_max` requests at a time."""

    def __init__(
        self, address: str | Mapping[str, str], patience: Patience | None = None, connections_max: int = 100,
        transport: httpx.AsyncBaseTransport | None = None, *, tls: Tls | None = None, token: str | None = None,
    ) -> None:
        self.view = PairView(resolve_address(address))
        self.patience = patience or Patience()
        identity = token_for(address, self.view.urls, token)
        self._http = AsyncHttp(connections_max, transport, tls or resolve_tls(address), identity)
        self._columns: dict[str, calls.KnownColumns] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    # tables
    async def create_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(calls.create_table(body, new_key()))

    async def alter_table(self, table: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(calls.alter_table(table, body, new_key()))

    async def drop_table(self, table: str, *, confirm: str | None = None) -> None:
        await self._run(calls.drop_table(table, confirm, new_key()))

    async def restore_table(self, table: str) -> dict[str, Any]:
        return await self._run(calls.restore_table(table, new_key()))

    async def table(self, table: str) -> dict[str, Any]:
        return await self._run(calls.get_table(table))

    async def table_figures(self, table: str) -> dict[str, Any]:
        return await self._run(calls.table_figures(table))

    async def tables(self) -> list[dict[str, Any]]:
        return await self._run(calls.list_tables())

    async def dropped_tables(self) -> list[dict[str, Any]]:
        return await self._run(calls.list_dropped_tables())

    # rows
    async def put(
        self, table: str, key: Any, row: Mapping[str, Any], *, if_version: int | None = None, if_absent: bool = False,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        conditions = calls.preconditions(if_version, if_absent)
        return await self._run(calls.put(table, key, row, request_key or new_key(), conditions), deadline_s)

    async def update(
        self, table: str, key: Any, columns: Mapping[str, Any], *, if_version: int | None = None,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        conditions = calls.preconditions(if_version, False)
        return await self._run(calls.update(table, key, columns, request_key or new_key(), conditions), deadline_s)

    async def delete(
        self, table: str, key: Any, *, if_version: int | None = None, request_key: str | None = None,
        deadline_s: float | None = None,
    ) -> Ack:
        conditions = calls.preconditions(if_version, False)
        return await self._run(calls.delete(table, key, request_key or new_key(), conditions), deadline_s)

    async def mutate(
        self, table: str, mutations: Sequence[Mapping[str, Any]], *, request_key: str | None = None,
        deadline_s: float | None = None,
    ) -> Ack:
        return await self._run(calls.mutate(table, mutations, request_key or new_key()), deadline_s)

    async def upsert_arrow(
        self, table: str, batch: pa.RecordBatch | pa.Table, *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        return await self._run(calls.upsert_arrow(table, batch, request_key or new_key()), deadline_s)

    async def check(
        self, table: str, key: Any, body: Mapping[str, Any], *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        return await self._run(calls.check(table, key, body, request_key or new_key()), deadline_s)

    async def get(
        self, table: str, key: Any, *, columns: Sequence[str] | None = None, as_of: int | str | None = None,
        deadline_s: float | None = None,
    ) -> Row:
        found, (row,) = await self._read(table, calls.get(table, key, columns, as_of), lambda found: [found.row], deadline_s)
        return Row(row, found.version)

    async def scan(
        self, table: str, *, start: Any = None, end: Any = None, where: Sequence[calls.Where] = (),
        columns: Sequence[str] | None = None, as_of: int | str | None = None, reverse: bool = False, page_rows: int = 1000,
        snapshot: bool = False, deadline_s: float | None = None,
    ) -> AsyncGenerator[dict[str, Any]]:
        token: str | None = None
        while True:
            asked = calls.scan(
                table, start=start, end=end, where=where, columns=columns, limit=page_rows, as_of=as_of, reverse=reverse,
                snapshot=snapshot, page_token=token,
            )
            page, found = await self._read(table, asked, lambda page: page.rows, deadline_s)
            token = page.next_page_token
            try:
                for row in found:
                    yield row
            except GeneratorExit:
                if snapshot and token is not None:
                    with contextlib.suppress(TwinlogError):  # the site lets it go by itself, a minute later
                        await self._run(calls.end_scan(table, token), END_SCAN_S)
                raise
            if token is None:
                return

    async def receipt(self, receipt: str) -> ReceiptOutcome:
        return await self._run(calls.receipt(receipt))

    # the pair
    async def cluster(self) -> dict[str, Any]:
        return await self._run(calls.cluster())

    async def cluster_events(self) -> AsyncIterator[dict[str, Any]]:
        for pauses, url in enumerate(for_ever(self.view)):
            with contextlib.suppress(TwinlogError):  # the other site is asked next
                async for data in self._http.events(f"{url}/v1/cluster/events", EVENT_SILENCE_S):
                    yield followed(self.view, data)
            await asyncio.sleep(min(self.patience.retry_max_s, 0.05 * (1 + pauses)))

    async def _read(
        self, table: str, asked: TypedCall[_T], rows_of: Callable[[_T], list[rows.Row]], deadline_s: float | None
    ) -> tuple[_T, list[rows.Row]]:
        """An answer, and its rows in Python's types. It is read again when the table changed between it and its columns."""
        for _ in range(READS_MAX):
            reply = await self.send(asked.call, deadline_s)
            schema, known = calls.schema_of(reply), self._columns.get(table)
            if known is None or known.schema != schema:
                known = self._columns[table] = await self._run(calls.table_columns(table))
            if known.schema == schema:
                answer = asked.parse(reply)
                return answer, rows.to_python(rows_of(answer), known.types)
        raise changing(table)

    async def _run(self, asked: TypedCall[_T], deadline_s: float | None = None) -> _T:
        return asked.parse(await self.send(asked.call, deadline_s))

    async def send(self, request: Call, deadline_s: float | None = None) -> Reply:
        """The reply (2xx) to any request of the API, by the flow of every other call. Raises as those do."""
        loop = asyncio.get_running_loop()
        flow: Flow = call(self.view, request, within(self.patience, deadline_s), loop.time(), random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                await asyncio.sleep(step.duration_s)
            else:
                answers = tuple(await asyncio.gather(*(self._http.send(request) for request in step.requests)))
            try:
                step = flow.send(Resumed(loop.time(), answers))
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
