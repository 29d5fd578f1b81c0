"""SiteService on one Site: every call of the routes goes to the part that answers it.

What always holds: nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gateway.service.as_of import check_history, read_row
from gateway.service.audits import Audit, Audits
from gateway.service.documents import BarrierDocument, BarrierList, ClusterDocument, ReceiptDocument
from gateway.service.histogram import Histogram
from gateway.service.port import WriteRequest, WriteResult
from gateway.service.receipts import receipt_outcome
from gateway.site.cluster_document import cluster_document
from gateway.site.metrics import site_metrics
from gateway.site.operations import Operations
from gateway.site.peer_api import PeerApi
from gateway.site.site import Site
from storage.engine import StoredRow
from storage.log.record import RequestMark
from storage.rows.schema import TableSchema
from switchover.monitor.views import SiteView
from switchover.operations.document import OperationDocument
from switchover.preflight.preflight import ChecksDocument
from switchover.roles.table import Role

CHANGE_POLL_S = 1.0


class Facade:
    """Implements gateway.service.port.SiteService."""

    def __init__(self, site: Site, operations: Operations) -> None:
        self.site = site.site
        self._site, self._operations = site, operations
        self._peer_api = PeerApi(site)

    # ---- tables
    def _serving(self, stale: bool = False) -> None:
        if not (stale and self._reads_stale()):
            self._site.serving.for_reads()

    def _reads_stale(self) -> bool:
        """A standby answers labelled reads of its prefix; one that is being filled, or mended, holds no prefix of anything."""
        return self._site.role is Role.STANDBY and self._site.sink.is_prefix

    def table(self, name: str) -> TableSchema:
        self._serving(stale=True)
        if self._site.catalog.find(name) is None:
            self._serving()  # a standby does not know of a table that was just made: the active does
        return self._site.catalog.get(name)

    def tables(self) -> list[TableSchema]:
        self._serving(stale=True)
        return self._site.catalog.all()

    async def create_table(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        return await self._site.tables.create(body, mark)

    async def alter_table(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema:
        return await self._site.tables.alter(name, body, mark)

    async def drop_table(self, name: str, mark: RequestMark | None = None) -> None:
        await self._site.tables.drop(name, mark)

    # ---- rows
    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        return await self._site.rows.write(request, deadline_s)

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        return await self._site.rows.recorded(key, digest, deadline_s)

    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None:
        if stale and self._reads_stale():
            return await read_row(self._site.ports.engine, self._site.ports.clock, table, key, as_of)
        return await self._site.rows.read(table, key, as_of)

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False,
    ) -> Sequence[StoredRow]:
        if stale and self._reads_stale():
            engine = self._site.ports.engine
            rows = await engine.scan(table.id, start, end, reverse=reverse, limit=limit, as_of=as_of)
            check_history(engine, self._site.ports.clock, table, as_of)
            return rows
        return await self._site.rows.scan(table, start, end, reverse=reverse, limit=limit, as_of=as_of)

    async def receipt(self, receipt: str) -> ReceiptDocument:
        return receipt_outcome(self._site.ports.engine, receipt)

    # ---- the pair
    async def cluster(self) -> ClusterDocument:
        return cluster_document(self._site, self._operations.running_id)

    async def cluster_events(self) -> AsyncIterator[ClusterDocument]:
        """The document at once, then at each change of what clients act on (role, epoch, mode, active, operation)."""
        shown: tuple[object, ...] | None = None
        while True:
            self._site.changed.clear()
            document = await self.cluster()
            face = (
                document.role, document.epoch, document.mode, document.active, document.operation, document.waiting_for
            )
            if face != shown:
                shown = face
                yield document
            with suppress(TimeoutError):  # figures have no event of their own: they are compared every second
                async with asyncio.timeout(CHANGE_POLL_S):
                    await self._site.changed.wait()

    def active(self) -> dict[str, Any] | None:
        return self._site.active_address()

    # ---- operations
    async def start_operation(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None
    ) -> OperationDocument:
        return await self._operations.start(kind, to, options, dry_run, actor, key)

    async def checks(self, kind: str) -> ChecksDocument:
        return await self._operations.checks(kind)

    async def view(self) -> SiteView:
        return await self._operations.view()

    async def operations(self) -> list[OperationDocument]:
        return await self._operations.all()

    async def operation(self, operation_id: str) -> OperationDocument:
        return await self._operations.get(operation_id)

    def operation_events(self, operation_id: str) -> AsyncIterator[OperationDocument]:
        return self._operations.follow(operation_id)

    async def abort_operation(self, operation_id: str, actor: str) -> OperationDocument:
        return await self._operations.abort(operation_id, actor)

    async def resume_operation(self, operation_id: str, actor: str) -> OperationDocument:
        return await self._operations.resume(operation_id, actor)

    # ---- barriers and audits
    async def take_barrier(self, name: str | None) -> tuple[BarrierDocument, bool]:
        return await self._site.barrier_calls.take(name)

    def barriers(self) -> BarrierList:
        return self._site.barrier_calls.all()

    def barrier(self, name: str) -> BarrierDocument:
        return self._site.barrier_calls.get(name)

    async def release_barrier(self, name: str) -> None:
        await self._site.barrier_calls.release(name)

    async def note_audit(self, audit: Audit) -> None:
        await self._site.audits.note(audit)

    def audits(self) -> Audits:
        return self._site.audits.all()

    # ---- health
    def role(self) -> str:
        return str(self._site.role)

    def replication_lag_s(self) -> float | None:
        return self._site.follower_silence_s()

    def metrics(self) -> Mapping[str, float | Histogram]:
        return site_metrics(self._site)

    # ---- between sites
    async def peer_call(self, method: str, body: bytes) -> bytes:
        return await self._peer_api.call_bytes(method, body)
