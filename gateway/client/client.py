"""The Python client: one logical address for the pair, whichever site is active. Blocking and asynchronous, over httpx.

    with TwinlogClient("twinlog://pair?a=http://127.0.0.1:8401&b=http://127.0.0.1:8402") as client:
        ack = client.put("flights", ("2013-01-01T10:00:00Z", "UA", 1545, "EWR"), {"dest": "IAH"})
        client.receipt(ack.receipt).outcome  # "survived"

What always holds: both clients are thin drivers of the same flow (client_flow.py) and the same calls (client_calls.py);
a write gets its idempotency key here, once, and keeps it in every attempt. Errors are those of twinlog/errors.py; a write
whose fate is not known at the deadline raises OutcomeUnknown, and repeating it with the same `key=` settles it.
The address may also be the path of an operator's configuration, or of a demo.json.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx
import httpx_sse
import msgspec

from gateway.client import calls
from gateway.client.audit_calls import AsyncAuditCalls, AuditCalls
from gateway.client.calls import Ack, Asked, Page, ReceiptOutcome, Row
from gateway.client.flow import Broken, Flow, PairView, Patience, Pause, Reply, Request, Resumed, call, parse_address
from gateway.config.loading import load_operator_config
from twinlog.errors import InvalidInput, PeerError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_T = TypeVar("_T")
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
EVENT_SILENCE_S = 20.0  # a stream that says nothing for so long is given up for the other site's


def resolve_address(address: str) -> dict[str, str]:
    """Site -> url of a `twinlog://` address, an operator's configuration (TOML) or a demo.json.

    Raises InvalidInput, ConfigError.
    """
    if address.startswith("twinlog:"):
        return parse_address(address)
    path = Path(address).expanduser()
    if path.suffix == ".json":
        try:
            return {site: str(entry["url"]) for site, entry in msgspec.json.decode(path.read_bytes())["sites"].items()}
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{path} is not a readable demo.json: {error}; start `twinlog demo` first") from error
    return load_operator_config(path).urls


def new_key() -> str:
    """A fresh idempotency key."""
    return secrets.token_hex(16)


class TwinlogClient(AuditCalls):
    """The blocking client. Safe to use from several threads."""

    def __init__(self, address: str, patience: Patience | None = None) -> None:
        self.view = PairView(resolve_address(address))
        self.patience = patience or Patience()
        self._http = httpx.Client(timeout=None, trust_env=False)
        self._threads = ThreadPoolExecutor(len(self.view.urls), "twinlog-probe")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    # tables
    def create_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`body` as in the API. An equal table that exists is fine. Raises Conflict on a different one."""
        return self._run(calls.create_table(body, new_key()))

    def alter_table(self, table: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._run(calls.alter_table(table, body, new_key()))

    def drop_table(self, table: str) -> None:
        self._run(calls.drop_table(table, new_key()))

    def table(self, table: str) -> dict[str, Any]:
        return self._run(calls.get_table(table))

    def tables(self) -> list[dict[str, Any]]:
        return self._run(calls.list_tables())

    # rows
    def put(
        self, table: str, key: Any, row: Mapping[str, Any], *, if_version: int | None = None, if_absent: bool = False,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        """Upsert a whole row. A composite `key` is a tuple. Raises PreconditionFailed when a condition does not hold."""
        conditions = calls.preconditions(if_version, if_absent)
        return self._run(calls.put(table, key, row, request_key or new_key(), conditions), deadline_s)

    def update(
        self, table: str, key: Any, columns: Mapping[str, Any], *, if_version: int | None = None,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        """Change some columns of a row that exists. Raises NotFound."""
        conditions = calls.preconditions(if_version, False)
        return self._run(calls.update(table, key, columns, request_key or new_key(), conditions), deadline_s)

    def delete(
        self, table: str, key: Any, *, if_version: int | None = None, request_key: str | None = None,
        deadline_s: float | None = None,
    ) -> Ack:
        conditions = calls.preconditions(if_version, False)
        return self._run(calls.delete(table, key, request_key or new_key(), conditions), deadline_s)

    def mutate(
        self, table: str, mutations: Sequence[Mapping[str, Any]], *, content_type: str = calls.MSGPACK,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        """All or nothing: {"op": "upsert"|"insert"|"update", "row": {...}} or {"op": "delete", "key": {...}} each."""
        return self._run(calls.mutate(table, mutations, request_key or new_key(), content_type), deadline_s)

    def upsert_arrow(
        self, table: str, batch: pa.RecordBatch | pa.Table, *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        """All rows of `batch` or none: the fast way in."""
        return self._run(calls.upsert_arrow(table, batch, request_key or new_key()), deadline_s)

    def check(
        self, table: str, key: Any, body: Mapping[str, Any], *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        """Check-and-mutate; `body` as in the API. Raises PreconditionFailed."""
        return self._run(calls.check(table, key, body, request_key or new_key()), deadline_s)

    def get(
        self, table: str, key: Any, *, columns: Sequence[str] | None = None, as_of: int | str | None = None,
        deadline_s: float | None = None,
    ) -> Row:
        """One row. Raises NotFound."""
        return self._run(calls.get(table, key, columns, as_of), deadline_s)

    def scan(
        self, table: str, *, start: Any = None, end: Any = None, where: Sequence[calls.Where] = (),
        columns: Sequence[str] | None = None, as_of: int | str | None = None, reverse: bool = False, page_rows: int = 1000,
        deadline_s: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Rows of [start, end) in key order, page by page; the deadline is for each page."""
        token: str | None = None
        while True:
            page = self._run(calls.scan(
                table, start=start, end=end, where=where, columns=columns, limit=page_rows, as_of=as_of, reverse=reverse,
                page_token=token,
            ), deadline_s)
            yield from page.rows
            token = page.next_page_token
            if token is None:
                return

    def receipt(self, receipt: str) -> ReceiptOutcome:
        return self._run(calls.receipt(receipt))

    # the pair
    def cluster(self) -> dict[str, Any]:
        """The pair as the active (or whoever answers) sees it."""
        return self._run(calls.cluster())

    def cluster_events(self) -> Iterator[dict[str, Any]]:
        """The cluster document at once, then one at each change, for ever; this client follows what they say."""
        timeout = httpx.Timeout(5.0, read=EVENT_SILENCE_S)
        for pauses, url in enumerate(_for_ever(self.view)):
            try:
                with httpx_sse.connect_sse(self._http, "GET", f"{url}/v1/cluster/events", timeout=timeout) as source:
                    for event in source.iter_sse():
                        yield _followed(self.view, event.data)
            except (httpx.HTTPError, httpx_sse.SSEError):
                pass  # the other site is asked next
            time.sleep(min(self.patience.retry_max_s, 0.05 * (1 + pauses)))

    def _run(self, asked: Asked[_T], deadline_s: float | None = None) -> _T:
        flow = call(self.view, asked.call, _within(self.patience, deadline_s), time.monotonic(), random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                time.sleep(step.duration_s)
            elif len(step.requests) == 1:
                answers = (self._send(step.requests[0]),)
            else:
                answers = tuple(self._threads.map(self._send, step.requests))
            try:
                step = flow.send(Resumed(time.monotonic(), answers))
            except StopIteration as done:
                return asked.parse(done.value)

    def _send(self, request: Request) -> Reply | Broken:
        try:
            response = self._http.request(
                request.method, request.url, headers=dict(request.headers), content=request.content, timeout=request.timeout_s
            )
        except httpx.HTTPError as error:
            return broken(error)
        return reply_of(response)


class AsyncTwinlogClient(AsyncAuditCalls):
    """The asynchronous client: the methods of TwinlogClient, to be awaited; `connections_max` requests at a time."""

    def __init__(self, address: str, patience: Patience | None = None, connections_max: int = 100) -> None:
        self.view = PairView(resolve_address(address))
        self.patience = patience or Patience()
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max)
        self._http = httpx.AsyncClient(timeout=None, trust_env=False, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # tables
    async def create_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(calls.create_table(body, new_key()))

    async def alter_table(self, table: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(calls.alter_table(table, body, new_key()))

    async def drop_table(self, table: str) -> None:
        await self._run(calls.drop_table(table, new_key()))

    async def table(self, table: str) -> dict[str, Any]:
        return await self._run(calls.get_table(table))

    async def tables(self) -> list[dict[str, Any]]:
        return await self._run(calls.list_tables())

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
        self, table: str, mutations: Sequence[Mapping[str, Any]], *, content_type: str = calls.MSGPACK,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        return await self._run(calls.mutate(table, mutations, request_key or new_key(), content_type), deadline_s)

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
        return await self._run(calls.get(table, key, columns, as_of), deadline_s)

    async def scan(
        self, table: str, *, start: Any = None, end: Any = None, where: Sequence[calls.Where] = (),
        columns: Sequence[str] | None = None, as_of: int | str | None = None, reverse: bool = False, page_rows: int = 1000,
        deadline_s: float | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        token: str | None = None
        while True:
            page: Page = await self._run(calls.scan(
                table, start=start, end=end, where=where, columns=columns, limit=page_rows, as_of=as_of, reverse=reverse,
                page_token=token,
            ), deadline_s)
            for row in page.rows:
                yield row
            token = page.next_page_token
            if token is None:
                return

    async def receipt(self, receipt: str) -> ReceiptOutcome:
        return await self._run(calls.receipt(receipt))

    # the pair
    async def cluster(self) -> dict[str, Any]:
        return await self._run(calls.cluster())

    async def cluster_events(self) -> AsyncIterator[dict[str, Any]]:
        timeout = httpx.Timeout(5.0, read=EVENT_SILENCE_S)
        for pauses, url in enumerate(_for_ever(self.view)):
            try:
                async with httpx_sse.aconnect_sse(self._http, "GET", f"{url}/v1/cluster/events", timeout=timeout) as source:
                    async for event in source.aiter_sse():
                        yield _followed(self.view, event.data)
            except (httpx.HTTPError, httpx_sse.SSEError):
                pass  # the other site is asked next
            await asyncio.sleep(min(self.patience.retry_max_s, 0.05 * (1 + pauses)))

    async def _run(self, asked: Asked[_T], deadline_s: float | None = None) -> _T:
        loop = asyncio.get_running_loop()
        flow: Flow = call(self.view, asked.call, _within(self.patience, deadline_s), loop.time(), random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                await asyncio.sleep(step.duration_s)
            else:
                answers = tuple(await asyncio.gather(*(self._send(request) for request in step.requests)))
            try:
                step = flow.send(Resumed(loop.time(), answers))
            except StopIteration as done:
                return asked.parse(done.value)

    async def _send(self, request: Request) -> Reply | Broken:
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._http.request(
                    request.method, request.url, headers=dict(request.headers), content=request.content
                )
        except TimeoutError:
            return Broken(sent=True, detail=f"no answer within {request.timeout_s:g} s")
        except httpx.HTTPError as error:
            return broken(error)
        return reply_of(response)


def _within(patience: Patience, deadline_s: float | None) -> Patience:
    return patience if deadline_s is None else replace(patience, deadline_s=deadline_s)


def broken(error: httpx.HTTPError) -> Broken:
    """Why there is no answer, and whether the request may have got there."""
    if isinstance(error, httpx.TimeoutException):
        detail = "no connection in time" if isinstance(error, _NOT_SENT) else "no answer in time"
    else:
        detail = str(error) or type(error).__name__
    return Broken(sent=not isinstance(error, _NOT_SENT), detail=detail)


def reply_of(response: httpx.Response) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)


def _for_ever(view: PairView) -> Iterator[str]:
    """The sites' addresses in turn."""
    while True:
        yield from list(view.urls.values())


def _followed(view: PairView, data: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise PeerError(f"a cluster event is not JSON: {error}; is it a twinlog gateway?") from error
    view.learn(document.get("active"))
    return document
