"""Two doors over one engine in a thread of their own: what the client and the command line meet, without logs behind it.

The real routes, real HTTP, and the in-memory service of dict_service.py; roles, faults and role changes come from the test.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.http.app import build_app
from gateway.http.server import HttpServer, ServerSettings, listen
from gateway.service.documents import AtRisk, ClusterDocument, ReplicationLag
from gateway.service.http_settings import HttpSettings
from gateway.service.port import WriteRequest, WriteResult
from switchover.operations.document import (
    Operation,
    OperationDocument,
    OperationError,
    OperationState,
    StepRecord,
    document,
    with_step,
)
from switchover.preflight.checks import Check
from switchover.preflight.loss import LossManifest, at_risk
from switchover.preflight.preflight import ChecksDocument
from tests.gateway.dict_service import CREATED_MS, DictOperations, DictService
from tests.gateway.documented import checked
from twinlog.errors import Conflict, NotActive, OutcomeUnknown, Refused, TwinlogError, Unavailable

STEPS = (
    ("preflight", "check both sites", True), ("claim", "lock every older epoch", False), ("open", "open the new epoch", False),
)


class DoorOperations(DictOperations):
    """`refusal`: what a role change is refused with; `judged`: the checks that this site shows."""

    def __init__(self, pair: TwoSites, site: str) -> None:
        super().__init__(site)
        self.pair = pair
        self.refusal: TwinlogError | None = None
        self.judged = [
            Check("peer.answers", "ok", "site a answers"),
            Check("clock.skew", "warning", "7.0 s behind site b", "check NTP at both sites"),
        ]

    async def start(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None,
        expires_ms: int | None = None,
    ) -> OperationDocument:
        if self.refusal is not None and options.get("accept_data_loss") != at_risk(self.refusal.fields.get("manifest") or {}):
            raise self.refusal
        self.steps = tuple(StepRecord(name, what, back) for name, what, back in STEPS)
        operation = document(Operation(
            f"op-{len(self.documents) + 1}", kind, to, options, actor, CREATED_MS, self.steps, dry_run,
            "succeeded" if dry_run else "running",
        ))
        self.documents[operation.id] = operation
        return operation

    def loss(self) -> LossManifest | None:
        manifest = self.refusal.fields.get("manifest") if self.refusal is not None else None
        return None if manifest is None else msgspec.convert(manifest, LossManifest)

    async def checks(self, kind: str) -> ChecksDocument:
        return ChecksDocument(kind, self.site, self.refusal is None, self.judged, self.loss())

    async def follow(self, operation_id: str) -> AsyncIterator[OperationDocument]:
        operation = await self.get(operation_id)
        for index in range(len(operation.steps)):
            yield operation
            done = with_step(operation, index, state="done", started_ms=0, finished_ms=20, detail={"epoch": 2})
            operation = replace(operation, steps=done.steps)
        operation = replace(operation, state=self.pair.operations_end, finished_ms=CREATED_MS + 900)
        if self.pair.operations_end == "failed":
            operation = replace(operation, error=OperationError("refused", "the standby is behind", {}, "preflight"))
        self.documents[operation_id] = operation
        yield operation


class Door(DictService):
    """One of the two sites. `faults` are taken one by one by the next writes."""

    def __init__(self, pair: TwoSites, site: str) -> None:
        super().__init__(site, "ACTIVE" if site == "a" else "STANDBY")
        self.pair = pair
        self.faults: list[str] = []
        self.operations: DoorOperations = DoorOperations(pair, site)
        self.seen_keys: list[str | None] = []

    def active(self) -> dict[str, Any] | None:
        site = self.pair.active
        return None if site is None else {"site": site, "url": self.pair.urls[site], "epoch": self.pair.epoch}

    def need_active(self) -> None:
        self.role_now = "ACTIVE" if self.pair.active == self.site else "STANDBY"
        if self.role_now == "STANDBY":
            raise NotActive("this site is the standby: ask the active", active=self.active())

    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        self.need_active()
        key = request.idempotency_key
        if key is not None and any(key in door.seen_keys for door in self.pair.doors.values()):
            self.pair.asked_again.set()
        self.seen_keys.append(request.idempotency_key)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "draining":
            raise Unavailable("a switchover is under way: nothing was logged", retry_after_s=0.05)
        if fault == "refused":
            raise Conflict("the table is not of this load")
        if fault == "refused-unknown":
            raise OutcomeUnknown("neither log answered in time")
        result = await super().write(request, deadline_s)
        if fault == "silent":
            async with asyncio.timeout(60):
                await self.pair.asked_again.wait()  # its client has waited long enough
        if fault == "switch":
            self.pair.switch()
            raise OutcomeUnknown("the site stopped being the active")
        return result

    def document(self) -> ClusterDocument:
        is_active = self.pair.active == self.site
        self.role_now = "ACTIVE" if is_active else "STANDBY"
        return replace(
            super().document(), epoch=self.pair.epoch, mode=self.pair.mode,
            replication_lag=ReplicationLag(12, 0.4) if is_active else None, at_risk=AtRisk(0, True) if is_active else None,
        )


class TwoSites:
    """Use as a context. Site a is active in epoch 1."""

    def __init__(self) -> None:
        self.active: str | None = "a"
        self.epoch = 1
        self.mode = "sync"
        self.asked_again = asyncio.Event()  # a write came a second time
        self.operations_end: OperationState = "succeeded"
        self.urls: dict[str, str] = {}
        self.doors = {site: Door(self, site) for site in ("a", "b")}
        self.doors["b"].engine, self.doors["b"].catalog = self.doors["a"].engine, self.doors["a"].catalog
        self.doors["b"].snapshots = self.doors["a"].snapshots
        self._servers: dict[str, HttpServer] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> TwoSites:
        self._thread.start()
        for site, door in self.doors.items():
            self._await(self._serve(site, door))
        return self

    def __exit__(self, *_: object) -> None:
        for site in list(self._servers):
            self.stop(site)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, site: str, door: Door) -> None:
        app = build_app(door.ports, HttpSettings(), now_s=time.perf_counter, new_id=lambda: "incident-1")
        app.plain = checked(app.plain)  # type: ignore[assignment]
        server = HttpServer(app, listen("127.0.0.1", 0), ServerSettings(graceful_shutdown_s=1))
        await server.start()
        self._servers[site] = server
        self.urls[site] = f"http://127.0.0.1:{server.port}"

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    @property
    def address(self) -> str:
        return f"twinlog://test?a={self.urls['a']}&b={self.urls['b']}"

    def switch(self) -> None:
        self.active, self.epoch = "b" if self.active == "a" else "a", self.epoch + 1

    def stop(self, site: str) -> None:
        """The site is gone: its port refuses."""
        self._await(self._servers.pop(site).stop())


def refused_for_loss() -> Refused:
    return Refused(
        "site a acknowledged writes asynchronously that b may lack",
        manifest=msgspec.to_builtins(LossManifest(
            active="a", epoch=3, asynchronous_since_seq=100, this_site_holds_seq=90, records_at_risk=17,
            statement="at least 17 records", active_committed_seq=117, told_at_ms=CREATED_MS, more_within_s=1.0,
        )),
    )
