"""A client of the pair: the product's own client flow and calls, over the simulated network instead of HTTP, or over both.

What always holds: an operation keeps one idempotency key through all its attempts; it ends by its deadline with what the
product's client would have reported to its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from chaos.asking import asked, asked_page, failed, is_absence, shown
from chaos.history.history import Ack, Operation, Outcome, Row
from chaos.history.lines import Misled, Served
from chaos.simulate.actors.door import ADDRESS, answer
from chaos.simulate.twins.http_door import ConnectionLost
from chaos.simulate.twins.network import CallInFlight
from chaos.simulate.world import Life, World
from chaos.workloads.workload import KEY
from gateway.api.api_context import ApiContext
from gateway.service.receipts import decode_receipt
from twinlog import calls
from twinlog.calls import Page, TypedCall
from twinlog.errors import TwinlogError
from twinlog.flow import PairView, Patience, Pause, Resumed, call
from twinlog.wire.exchange import Broken, Reply, SiteRequest

PATIENCE = Patience(deadline_s=6.0, attempt_timeout_s=2.5, probe_timeout_s=0.5, retry_first_s=0.1, retry_max_s=1.0)
SITE_OF = {"http://a": "a", "http://b": "b"}
OLD_PROOF = 0.8  # share of the lease: answers with a younger proof are not recorded
PAGE_ROWS = 25  # so that a scan may be of several pages


class _NoAnswer(Exception):
    def __init__(self, why: str, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class SimClient:
    """One user of the client library, in the process that calls it."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._view = PairView({site: url for url, site in SITE_OF.items()})
        self._wire = world.stream(f"wire {name}")
        self._pages = world.stream(f"pages {name}")
        self._asked = 0
        self.key = ""  # the idempotency key of the last request
        self._look_s = world.plan.knobs.lease_s * OLD_PROOF
        self.served_s: float | None = None  # when the last reply left its site
        self.served_by = ""
        self.served_epoch: int | None = None

    async def execute(self, operation: Operation) -> Outcome:
        """`operation` to its end, within the patience of this client."""
        self._asked += 1
        self.key = f"{self._name}-{self._asked}"
        return await self._execute(operation, self.key)

    async def repeat(self, operation: Operation, key: str) -> Outcome:
        """A write, sent again under the key that it had."""
        return await self._execute(operation, key)

    async def ask_receipt(self, site: str, receipt: str) -> str:
        """Returns what `site` says of a receipt, "" if it does not answer."""
        typed = calls.receipt(receipt)
        request = SiteRequest(f"http://{site}{typed.call.path}", "GET", typed.call.headers, b"", PATIENCE.attempt_timeout_s)
        reply = await self._exchange(request)
        return typed.parse(reply).outcome if isinstance(reply, Reply) and reply.status == 200 else ""

    async def _execute(self, operation: Operation, key: str) -> Outcome:
        try:
            if operation.kind == "scan":
                return await self._scan(operation)
            result = await self._run(asked(operation, key))
        except TwinlogError as error:
            return self._failed(operation, error)
        if operation.kind == "read":
            return self._outcome(rows=(shown(result.row, result.version),))
        if operation.kind == "schema":
            return self._outcome()
        receipt = decode_receipt(result.receipt)
        ack = Ack(self.served_by, receipt.epoch, receipt.seq, result.version, receipt.mode)
        return self._outcome(ack=ack)

    def _outcome(self, **known: Any) -> Outcome:
        return Outcome("ok", site=self.served_by, epoch=self.served_epoch, served_s=self.served_s, **known)

    def _failed(self, operation: Operation, error: TwinlogError) -> Outcome:
        if is_absence(operation, error):
            return self._outcome()
        return failed(operation, error, self.served_by, self.served_epoch)

    async def _scan(self, operation: Operation) -> Outcome:
        rows: list[Row] = []
        token: str | None = None
        oldest: tuple[int, float, str] | None = None  # who gave the last page of the lowest epoch, and when: it knew the least
        page_rows = operation.page_rows or PAGE_ROWS
        while True:
            left = page_rows if operation.limit is None else operation.limit - len(rows)
            page: Page = await self._run(asked_page(operation, min(page_rows, left), token))
            rows += [shown(row, version) for row, version in zip(page.rows, page.versions, strict=True)]
            token = page.next_page_token
            gave = (self.served_epoch or 0, self.served_s or 0.0, self.served_by)
            oldest = gave if oldest is None or gave[0] <= oldest[0] else oldest
            if token is not None and self._pages.random() < self._world.plan.knobs.again:
                await self._ask_otherwise(operation, token)
            if token is None or (operation.limit is not None and len(rows) >= operation.limit):
                if token is not None and operation.snapshot:
                    await self._end(operation, token)
                self.served_epoch, self.served_s, self.served_by = oldest
                return self._outcome(rows=tuple(rows), complete=token is None)

    async def _end(self, operation: Operation, token: str) -> None:
        """As the library does when its user stops early; a snapshot that is left behind would go by itself."""
        with suppress(TwinlogError):
            await self._run(calls.end_scan(operation.table, token))

    async def _ask_otherwise(self, operation: Operation, token: str) -> None:
        """Sends a page token with another question than the one that it came from, to the site that gave it."""
        own: dict[str, Any] = {
            "start": operation.start, "end": operation.end, "where": (), "columns": None, "as_of": operation.as_of,
            "reverse": operation.reverse, "snapshot": operation.snapshot,
        }
        others = {
            "start": "x1" if operation.start is None else None, "end": "x3" if operation.end is None else None,
            "where": ((KEY, ">", "x0"),), "columns": (KEY,), "reverse": not operation.reverse,
        }
        question = self._pages.choice(sorted(others))
        scan = calls.scan(operation.table, **{**own, question: others[question]}, limit=PAGE_ROWS, page_token=token).call
        site = self.served_by
        request = SiteRequest(f"http://{site}{scan.path}", scan.method, scan.headers, b"", PATIENCE.attempt_timeout_s)
        served = self.served_by, self.served_s, self.served_epoch
        reply = await self._exchange(request)
        self.served_by, self.served_s, self.served_epoch = served
        if isinstance(reply, Reply):
            self._world.heard(Misled(site, self._world.loop.now_s, question, reply.status))

    # ---- the flow of the library
    async def _run(self, typed: TypedCall[Any]) -> Any:
        loop = asyncio.get_running_loop()
        flow = call(self._view, typed.call, PATIENCE, loop.time(), self._random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                await asyncio.sleep(step.duration_s)
            else:
                answers = await self._all(step.requests)
            try:
                step = flow.send(Resumed(loop.time(), answers))
            except StopIteration as done:
                return typed.parse(done.value)

    async def _all(self, requests: Sequence[SiteRequest]) -> tuple[Reply | Broken, ...]:
        """At the same time."""
        if len(requests) == 1:
            return (await self._exchange(requests[0]),)
        create_task = asyncio.get_running_loop().create_task
        return tuple([await sent for sent in [create_task(self._exchange(request)) for request in requests]])

    async def _exchange(self, request: SiteRequest) -> Reply | Broken:
        site = SITE_OF[request.url[: len(ADDRESS)]]
        try:
            answered: tuple[Reply, float, int | None] = await self._world.network.call(
                "c", site, partial(self._serve, site, request), request.timeout_s, _NoAnswer
            )
        except _NoAnswer as error:
            return Broken(error.sent, str(error))
        reply, self.served_s, self.served_epoch = answered
        self.served_by = site
        return reply

    def _serve(self, site: str, request: SiteRequest, call: CallInFlight) -> None:
        life = self._world.alive(site)
        if life is None or life.context is None:
            call.refuse()
            return
        call.run_in(life.process, partial(self._answer, site, life, life.context, request))

    async def _answer(
        self, site: str, life: Life, context: ApiContext, request: SiteRequest
    ) -> tuple[Reply, float, int | None]:
        """In the site's process: the reply, when it left, and the epoch in which the whole request was there."""
        epoch: int | None = None

        def is_there() -> None:
            nonlocal epoch
            epoch = life.site.epoch if life.site is not None else None

        is_there()
        if life.door is not None and self._wire.random() < self._world.plan.knobs.http:
            try:
                reply = await life.door.exchange(request, self._wire, is_there)
            except ConnectionLost as error:
                raise _NoAnswer(str(error), sent=True) from None
        else:
            reply = await answer(context, request)
            if life.site is not None:
                decided_s = life.process.decided_s(self._world.loop.now_s)
                self._world.replied(site, life.site, request, reply, decided_s)
        now_s = self._world.loop.now_s
        proved_s, decided_s = life.process.proved_s, life.process.decided_s(now_s)
        if epoch is not None and decided_s - proved_s > self._look_s and _is_of_rows(request, reply):
            self._world.heard(Served(site, epoch, decided_s, proved_s))
        return reply, now_s, epoch


def _is_of_rows(request: SiteRequest, reply: Reply) -> bool:
    """The answer shows what is stored, or acknowledges a change."""
    return request.url.startswith("/v1/tables/", len(ADDRESS)) and (reply.status < 300 or reply.status == 412)
