"""A client of real gateways: the product's own client flow over its own HTTP, and what it hears, as outcomes.

What always holds: it asks through the clients' links alone; an operation keeps one idempotency key through all attempts; an
answer names the site whose address gave it. A stubborn client has one address and much patience: it waits for a site that was
stopped, and so hears what that one says when it wakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from chaos.asking import asked, asked_page, failed, is_absence, shown
from chaos.history.history import Ack, Operation, Outcome, Row
from gateway.service.receipts import decode_receipt
from twinlog.addresses import resolve_tls
from twinlog.calls import Page, TypedCall, end_scan
from twinlog.errors import TwinlogError
from twinlog.flow import PairView, Patience, Pause, Resumed, call
from twinlog.wire.async_http import AsyncHttp
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.tls import Tls
from twinlog.wire.token import token_for

ROAMING = Patience(deadline_s=8.0, attempt_timeout_s=2.5, probe_timeout_s=0.5, retry_first_s=0.1, retry_max_s=1.0)
PAGE_ROWS = 500


class RealClient:
    """One user. `urls`: site -> address; one of them alone for a stubborn one. `prefix` begins the names of its tables at the
    sites, and its idempotency keys. `tls`, `token`: as of a Client."""

    def __init__(
        self, name: str, urls: Mapping[str, str], patience: Patience, random: Random, prefix: str = "",
        tls: Tls | None = None, token: str | None = None,
    ) -> None:
        self._name, self._random, self.patience, self._prefix = prefix + name, random, patience, prefix
        self._view = PairView(urls)
        self._sites = {url: site for site, url in self._view.urls.items()}
        self._http = AsyncHttp(tls=tls or resolve_tls(urls), token=token_for(urls, self._view.urls, token))
        self._asked = 0
        self._served_by = ""

    async def close(self) -> None:
        await self._http.close()

    async def execute(self, operation: Operation) -> Outcome:
        """Never raises for what the pair answers."""
        self._asked += 1
        self._served_by = ""
        named = self._named(operation)
        try:
            if operation.kind == "scan":
                return await self._scan(named)
            result = await self._run(asked(named, f"{self._name}-{self._asked}"))
        except TwinlogError as error:
            if is_absence(operation, error):
                return Outcome("ok", site=self._served_by)
            return failed(operation, error, self._served_by, None)
        if operation.kind == "read":
            return Outcome("ok", rows=(shown(result.row, result.version),), site=self._served_by)
        if operation.kind == "schema":
            return Outcome("ok", site=self._served_by)
        receipt = decode_receipt(result.receipt)
        ack = Ack(self._served_by, receipt.epoch, receipt.seq, result.version, receipt.mode)
        return Outcome("ok", ack=ack, site=self._served_by)

    def _named(self, operation: Operation) -> Operation:
        if not self._prefix:
            return operation
        body = {**operation.body, "name": self._prefix + operation.table} if "name" in operation.body else operation.body
        return msgspec.structs.replace(operation, table=self._prefix + operation.table, body=body)

    async def _scan(self, operation: Operation) -> Outcome:
        rows: list[Row] = []
        token: str | None = None
        while True:
            left = PAGE_ROWS if operation.limit is None else operation.limit - len(rows)
            page: Page = await self._run(asked_page(operation, min(operation.page_rows or PAGE_ROWS, left), token))
            rows += [shown(row, version) for row, version in zip(page.rows, page.versions, strict=True)]
            token, site = page.next_page_token, self._served_by
            if token is None or (operation.limit is not None and len(rows) >= operation.limit):
                if token is not None and operation.snapshot:
                    with suppress(TwinlogError):  # as the library: a snapshot that is left behind goes by itself
                        await self._run(end_scan(operation.table, token))
                return Outcome("ok", rows=tuple(rows), complete=token is None, site=site)

    async def _run(self, typed: TypedCall[Any]) -> Any:
        loop = asyncio.get_running_loop()
        flow = call(self._view, typed.call, self.patience, loop.time(), self._random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                await asyncio.sleep(step.duration_s)
            else:
                answers = tuple(await asyncio.gather(*(self._exchange(request) for request in step.requests)))
            try:
                step = flow.send(Resumed(loop.time(), answers))
            except StopIteration as done:
                return typed.parse(done.value)

    async def _exchange(self, request: SiteRequest) -> Reply | Broken:
        answer = await self._http.send(request)
        if isinstance(answer, Reply):
            self._served_by = next(site for url, site in self._sites.items() if request.url.startswith(url + "/"))
        return answer
