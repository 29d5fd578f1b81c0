"""A site in one process without logs: the six ports on the memory engine, with the real conditions and catalog.

What always holds: a write is one frame, applied at once; versions grow; `role` decides what is served, as at a real site.
The events of cluster and operations come from what tests put into the queues.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.audits.notes import AuditNotes
from gateway.service.as_of import ScanSnapshots
from gateway.service.barriers import BarrierService
from gateway.service.catalog import Catalog
from gateway.service.conditions import Refusals, check_same_request, checks_of
from gateway.service.documents import ActiveSite, BarrierDocument, ClusterDocument, Outcome, ReceiptDocument, ServingDocument
from gateway.service.port import DoorFigures, KeptTable, SiteService, WriteRequest, WriteResult
from gateway.service.receipts import decode_receipt, encode_receipt
from gateway.service.rows import to_records
from gateway.service.tables import check_confirmed
from gateway.table_figures.documents import TableHeld, TablesHeld, TableSizeDocument, size_document
from gateway.ui.happenings import Happened
from gateway.ui.looks import Epochs, EpochShown, Logs, OperationsShown, SiteLook, counted
from storage.backup.stream import BackupHead, End, ReachedPoint, encode_message
from storage.clock import SystemClock
from storage.engine import StoredRow
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import make_frame
from storage.log.record import Record, RecordKind, RequestMark, SchemaChange
from storage.rows.schema import TableSchema, alter, dropped, encode_schema, parse_table, restored, same_table
from switchover.facts import SiteFacts
from switchover.monitor.views import SiteView
from switchover.operations.document import Operation, OperationDocument, OperationState, StepRecord, document
from switchover.preflight.preflight import ChecksDocument
from switchover.roles.table import Role
from twinlog.errors import Conflict, NotActive, NotFound, PeerError, Refused, TwinlogError, Unavailable

ACTIVE = {"site": "a", "url": "http://a.example:8401", "epoch": 1}
OWN = SiteFacts(
    site="a", pair="shop", release="1", wall_ms=0, lease_s=1.0, drift_margin=0.2, initial_active="a", policy="protect",
    role="ACTIVE", epoch=1, mode="sync", applied_seq=0, durable_seq=0, committed_seq=0,
)
CREATED_MS = 1_700_000_000_000
FIRST_TIMESTAMP = 1_700_000_000_000 << 16


class DictService:
    """Itself the ports for rows and for the cluster; `tables`, `operations` and the others stand beside it."""

    def __init__(self, site: str = "a", role: str = "ACTIVE") -> None:
        self.site = site
        self.engine = MemoryEngine()
        self.catalog = Catalog(self.engine)
        self.role_now = role
        self.now_s = 100.0  # by its own clock
        self.vouched: float | None = 100.0
        self.serving_now: ServingDocument | None = None  # other than by its role
        self.failure: BaseException | None = None  # raised by the next write
        self._numbers = itertools.count()
        self.refusals = Refusals()
        self.snapshots = ScanSnapshots(self.engine, lambda: f"snapshot-{next(self._numbers)}")
        self.deadlines_s: list[float | None] = []
        self.scanned_rows = 0
        self.cluster_queue: asyncio.Queue[ClusterDocument | None] = asyncio.Queue()
        self.tables = DictTables(self)
        self.operations = DictOperations(site)
        self.looks = DictLooks(self)
        self.peer_call: Callable[[str, bytes], Awaitable[bytes]] = peer_call
        self._next = FIRST_TIMESTAMP

    @property
    def ports(self) -> SiteService:
        return SiteService(
            site=self.site, rows=self, tables=self.tables, cluster=self, operations=self.operations,
            barriers=DictBarriers(self), backups=DictBackups(self), audits=AuditNotes(self.engine, SystemClock()),
            looks=self.looks, peer_call=self.peer_call,
        )

    # rows
    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        self.need_active()
        self.deadlines_s.append(deadline_s)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if request.idempotency_key is not None:
            found = await self.recorded(request.idempotency_key, request.digest)
            if found is not None:
                return found
        for check in checks_of(request):
            try:
                check.require(await self.engine.get(request.table.id, check.key))
            except TwinlogError as error:
                if request.idempotency_key is not None:
                    self.refusals.note(request.idempotency_key, request.digest, error)
                raise
        records = to_records(request)
        version = await self.apply(records)
        return WriteResult(version, encode_receipt(0, 1, self.engine.applied.seq, "sync"), "sync", len(records))

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        found = await self.engine.request_outcome(key)
        if found is None:
            if (refusal := self.refusals.repeated(key, digest)) is not None:
                raise refusal
            return None
        check_same_request(key, found.digest, digest)
        return WriteResult(found.version, encode_receipt(0, 1, found.seq, "sync"), "sync", found.count)

    async def apply(self, records: list[Record]) -> int:
        first, self._next = self._next, self._next + len(records)
        seq = self.engine.applied.seq
        frame = make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=first, committed=seq, records=records)
        await self.engine.apply([frame])
        return self._next - 1

    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None:
        self.need_reads(stale)
        if as_of is None:
            return await self.engine.get(table.id, key)
        return await self.engine.get_as_of(table.id, key, as_of)

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False, snapshot: str | None = None,
    ) -> Sequence[StoredRow]:
        self.need_reads(stale)
        if snapshot is not None:
            return await self.snapshots.scan(snapshot, None, table.id, start, end, reverse=reverse, limit=limit)
        rows = await self.engine.scan(table.id, start, end, reverse=reverse, limit=limit, as_of=as_of)
        self.scanned_rows += len(rows)
        return rows

    async def open_snapshot(self, stale: bool = False) -> str:
        self.need_reads(stale)
        return await self.snapshots.open(None)

    def release_snapshot(self, snapshot: str) -> None:
        self.snapshots.release(snapshot)

    async def receipt(self, receipt: str) -> ReceiptDocument:
        known = decode_receipt(receipt)
        outcome: Outcome = "survived" if known.seq <= self.engine.applied.seq else "unknown"
        return ReceiptDocument(receipt, outcome, *known)

    # the cluster
    def document(self) -> ClusterDocument:
        active = self.active()
        return ClusterDocument(
            pair="test", site=self.site, role=Role(self.role_now), reason="", waiting_for=None, epoch=1, mode="sync",
            mode_detail=None, policy="protect", active=None if active is None else ActiveSite(**active), sites={},
            committed_seq=self.engine.applied.seq, applied_seq=self.engine.applied.seq, durable_seq=self.engine.applied.seq,
            replication_lag=None, remote_log=None, at_risk=None, resync=None, operation=None,
            serving=self.serving(), troubles=[], dependencies={}, now_ms=CREATED_MS,
            release="0.1.0", formats={},
        )

    async def events(self) -> AsyncIterator[ClusterDocument]:
        yield self.document()
        while (document := await self.cluster_queue.get()) is not None:
            yield document

    def active(self) -> dict[str, Any] | None:
        return ACTIVE

    def role(self) -> str:
        return self.role_now

    def serving(self) -> ServingDocument:
        if self.serving_now is not None:
            return self.serving_now
        is_active = self.role_now in ("ACTIVE", "DOWNGRADE_ACTIVE")
        return ServingDocument(is_active, is_active, self.role_now == "STANDBY")

    def vouched_s(self) -> float | None:
        return self.vouched

    def age_s(self, vouched_s: float) -> float:
        return self.now_s - vouched_s

    def figures(self) -> dict[str, float]:
        return {"epoch": 1.0, "sink_frames_total": float(self.engine.applied.seq)}

    def need_active(self) -> None:
        if self.role_now == "STANDBY":
            raise NotActive("this site is the standby: ask the active", active=ACTIVE)
        if self.role_now not in ("ACTIVE", "DOWNGRADE_ACTIVE"):
            raise Unavailable(f"this site is {self.role_now}: try again", retry_after_s=0.2)

    def need_reads(self, stale: bool) -> None:
        if not (stale and self.role_now == "STANDBY"):
            self.need_active()


class DictLooks:
    """Looks for the page. `other`: the other site, or the error by which it does not answer; `logs_now`: of this one."""

    def __init__(self, site: DictService) -> None:
        self._site = site
        self.door: DoorFigures | None = None
        self.figures: dict[str, float] = {"wal_bytes": 1024.0}
        self.cluster: ClusterDocument | None = None  # other than the service's
        self.view_now = SiteView(own=OWN, peer=None, peer_error="site b does not answer")
        self.other: SiteLook | TwinlogError = PeerError("site b does not answer", sent=True)
        self.known = Epochs([EpochShown(1, 1, "a", "bootstrap")], 0)
        self.held_revisions: dict[str, int | None] = {}
        self.is_loading = False  # the other site
        self.happened = Happened(0, [])
        self.logs_now = Logs(site.site, [], 0, None, [], None, [], [], None)

    def now(self) -> SiteLook:
        running = next((one for one in self._site.operations.documents.values() if one.state == "running"), None)
        durations = {} if self.door is None else {name: counted(one) for name, one in self.door.durations().items()}
        return SiteLook(self.cluster or self._site.document(), dict(self.figures), durations, running)

    async def view(self) -> SiteView:
        return self.view_now

    async def operations(self) -> OperationsShown:
        return OperationsShown(list(reversed(self._site.operations.documents.values())))

    def epochs(self) -> Epochs:
        return self.known

    def happenings(self) -> Happened:
        return self.happened

    async def logs(self) -> Logs:
        return self.logs_now

    def _answering(self) -> SiteLook:
        if isinstance(self.other, TwinlogError):
            raise self.other
        return self.other

    async def other_now(self) -> SiteLook:
        return self._answering()

    async def other_view(self) -> SiteView:
        raise PeerError(f"{self._answering().cluster.site} shows no view here")

    async def other_checks(self, kind: str) -> ChecksDocument:
        return ChecksDocument(kind, self._answering().cluster.site, True, [], None)

    async def other_operations(self) -> OperationsShown:
        found = self._answering().operation
        return OperationsShown([] if found is None else [found])

    async def other_epochs(self) -> Epochs:
        self._answering()
        return self.known

    async def table_sizes(self, tables: Sequence[int]) -> Mapping[int, TableSizeDocument]:
        found = {table: await self._site.engine.table_size(table) for table in tables}
        return {table: size_document(size, 0.0) for table, size in found.items() if size is not None}

    async def other_tables(self, table: int | None = None) -> TablesHeld:
        """Those of this site, at which `held_revisions` has the other revisions that it has there; None: it is not there."""
        site = self._answering().cluster.site
        every = [one for one in self._site.catalog.all() if table in (None, one.id)]
        revisions = {one.id: self.held_revisions.get(one.name, one.revision) for one in every}
        sizes = await self.table_sizes([one.id for one in every]) if table is not None else {}
        held = [TableHeld(one, revision, sizes.get(one)) for one, revision in revisions.items() if revision is not None]
        return TablesHeld(site, self.is_loading, False, held)

    async def other_happenings(self) -> Happened:
        self._answering()
        return Happened(0, [])

    async def other_logs(self) -> Logs:
        return replace(self.logs_now, site=self._answering().cluster.site)


class DictTables:
    def __init__(self, site: DictService) -> None:
        self._site = site

    def get(self, name: str) -> TableSchema:
        return self._site.catalog.get(name)

    def all(self) -> list[TableSchema]:
        return self._site.catalog.all()

    def dropped(self) -> list[KeptTable]:
        return [KeptTable(table, (table.dropped_ms or 0) + 86_400_000) for table in self._site.catalog.dropped]

    async def create(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        self._site.need_active()
        wanted = parse_table(body, max(self._site.engine.applied.schemas(), default=0) + 1)
        existing = self._site.catalog.find(wanted.name)
        if existing is not None:
            if same_table(existing, wanted):
                return existing, False
            raise Conflict(f"table {wanted.name!r} exists with another shape: use another name")
        await self._change("put", wanted)
        return self._site.catalog.get(wanted.name), True

    async def alter(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema:
        self._site.need_active()
        await self._change("put", alter(self._site.catalog.get(name), body))
        return self._site.catalog.get(name)

    async def drop(self, name: str, mark: RequestMark | None = None, confirm: str | None = None) -> None:
        self._site.need_active()
        table = self._site.catalog.get(name)
        await check_confirmed(self._site.engine, table, confirm)
        await self._change("put", dropped(table, CREATED_MS))

    async def restore(self, name: str, mark: RequestMark | None = None) -> TableSchema:
        self._site.need_active()
        table = restored(self._site.catalog.find_dropped(name))
        if self._site.catalog.find(table.name) is not None:
            raise Conflict(f"there is a table {table.name!r} again", table=table.name)
        await self._change("put", table)
        return self._site.catalog.get(table.name)

    async def _change(self, kind: str, table: TableSchema) -> None:
        change = SchemaChange(kind, table.id, encode_schema(table) if kind == "put" else b"", table.history_s)
        await self._site.apply([Record(RecordKind.DDL, table.id, value=msgspec.msgpack.encode(change))])
        self._site.catalog.reload()


class DictOperations:
    def __init__(self, site: str) -> None:
        self.site = site
        self.documents: dict[str, OperationDocument] = {}
        self.queue: asyncio.Queue[OperationDocument | None] = asyncio.Queue()
        self.steps: tuple[StepRecord, ...] = ()

    async def start(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None,
        expires_ms: int | None = None,
    ) -> OperationDocument:
        running = [known.id for known in self.documents.values() if known.state == "running"]
        if running and not dry_run:
            raise Conflict(f"operation {running[0]} runs: wait for it, or abort it", operation=running[0])
        if to == self.site:
            raise Refused(f"{to} is the active already: there is nothing to do")
        operation = Operation(
            f"op-{len(self.documents) + 1}", kind, to, options, actor, CREATED_MS, self.steps, dry_run,
            "succeeded" if dry_run else "running",
        )
        if not dry_run:
            self.documents[operation.id] = document(operation)
        return document(operation)

    async def checks(self, kind: str) -> ChecksDocument:
        return ChecksDocument(kind, self.site, True, [], None)

    async def view(self) -> SiteView:
        return SiteView(own=OWN, peer=None, peer_error="site b does not answer")

    async def all(self) -> list[OperationDocument]:
        return list(self.documents.values())

    async def get(self, operation_id: str) -> OperationDocument:
        if operation_id not in self.documents:
            raise NotFound(f"there is no operation {operation_id!r}", operation=operation_id)
        return self.documents[operation_id]

    async def follow(self, operation_id: str) -> AsyncIterator[OperationDocument]:
        yield await self.get(operation_id)
        while (shown := await self.queue.get()) is not None:
            yield shown

    async def abort(self, operation_id: str, actor: str) -> OperationDocument:
        return self._put_operation(await self.get(operation_id), "aborted")

    async def resume(self, operation_id: str, actor: str, expires_ms: int | None = None) -> OperationDocument:
        return self._put_operation(await self.get(operation_id), "running")

    def _put_operation(self, operation: OperationDocument, state: OperationState) -> OperationDocument:
        self.documents[operation.id] = replace(operation, state=state)
        return self.documents[operation.id]


class DictBackups:
    """Sends a head and an end, of no table."""

    def __init__(self, site: DictService) -> None:
        self._site, self.known, self.identity = site, dict[str, int](), "1" * 16

    async def base(self, target: str) -> AsyncGenerator[bytes, None]:
        self._site.need_active()
        yield encode_message(BackupHead("shop", "1" * 16, self._site.site, ReachedPoint(1, 7, 7 << 16), False))
        yield encode_message(End(0))

    async def log(self, target: str, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        if after_seq > 7:
            raise Conflict(f"this log does not hold sequence {after_seq}", seq=after_seq)
        async for message in self.base(target):
            yield message

    async def kept(self, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        async for message in self.log("", identity, after_epoch, after_seq):
            yield message

    async def complete(self, target: str, identity: str, epoch: int, seq: int) -> None:
        self.known[target] = seq

    async def release(self, target: str, identity: str = "") -> None:
        if identity not in ("", self.identity):
            raise Refused(f"it is the backup of another pair ({identity})")
        self.known.pop(target, None)


class DictBarriers:
    def __init__(self, site: DictService) -> None:
        self._site, clock = site, SystemClock()
        applier = FrameApplier(site.engine, clock, BarrierLimits(), on_refused=lambda name, why: None)
        self._calls = BarrierService(
            None, applier, site=site.site, engine=site.engine, clock=clock, deadline_s=1  # type: ignore[arg-type]
        )
        self.all, self.get, self.release = self._calls.all, self._calls.get, self._calls.release

    async def take(self, name: str | None) -> tuple[BarrierDocument, bool]:
        self._site.need_active()
        held = self.all().barriers
        if name in [one.name for one in held]:
            return self.get(name or ""), False
        name = name or f"barrier-{len(held)}"
        await self._site.engine.keep_snapshot(name, 0)
        return self.get(name), True


async def peer_call(method: str, body: bytes) -> bytes:
    """`echo` answers what came; `raise` raises the class of that code, with fields."""
    if method == "echo":
        return body
    if method == "raise":
        code, fields = msgspec.msgpack.decode(body)
        raise _by_code(TwinlogError, code)("planted", **fields)
    raise NotFound(f"there is no call {method!r}")


def _by_code(root: type[TwinlogError], code: str) -> type[TwinlogError]:
    if root.code == code:
        return root
    return next((kind for child in root.__subclasses__() if (kind := _by_code(child, code)).code == code), TwinlogError)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
