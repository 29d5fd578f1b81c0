"""Reads and writes of rows at the active: admission, idempotency, conditions, the commit log, the read lease.

What always holds:
- a conditional write is evaluated against applied state while its keys are held, and they stay held until its fate is settled;
- an idempotency key that is already in the log, or was refused by a check, answers its first outcome, and a different request
  under it is refused;
- a read, a condition that does not hold and an outcome that is answered again leave only under a valid lease (P2);
- nothing is logged once the site drains, or its epoch has ended, however long the request waited for its keys.
Source: protocol.md section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.epoch.pending import Pending
from gateway.service.admission import Admission
from gateway.service.as_of import ScanSnapshots, check_history, read_row
from gateway.service.catalog import Catalog
from gateway.service.conditions import Refusals, RowCheck, check_same_request, checks_of
from gateway.service.documents import ReceiptDocument
from gateway.service.key_gate import KeyGate, RowKey
from gateway.service.port import WriteRequest, WriteResult
from gateway.service.receipts import encode_receipt, receipt_outcome
from gateway.service.serving import Serving
from remote_log.fencing.read_lease import ReadLease
from storage.clock import Clock
from storage.engine import StorageEngine, StoredRow
from storage.log.record import Record, RecordKind, RequestMark
from storage.rows.schema import TableSchema
from switchover.register.port import Mode
from twinlog.errors import TwinlogError, Unavailable

RECORD_OVERHEAD_BYTES = 24
LEASE_POLL_S = 0.01
KINDS = {"upsert": RecordKind.UPSERT, "insert": RecordKind.UPSERT, "update": RecordKind.UPDATE, "delete": RecordKind.DELETE}
_T = TypeVar("_T")


class Holds:
    """The releases of all that one request holds: its idempotency key, its place in admission, its row keys.

    What always holds: all of it is released together, once, the last taken first.
    """

    __slots__ = ("_releases",)

    def __init__(self) -> None:
        self._releases: list[Callable[[], None]] = []

    def add(self, release: Callable[[], None]) -> None:
        self._releases.append(release)

    def release_all(self) -> None:
        """Raises what a release raised, once all others are done: what one request holds must not outlive it."""
        try:
            while self._releases:
                self._releases.pop()()
        finally:
            if self._releases:
                self.release_all()


class RowsService:
    def __init__(
        self, serving: Serving, catalog: Catalog, admission: Admission, *, engine: StorageEngine, clock: Clock,
        deadline_s: float, new_id: Callable[[], str],
    ) -> None:
        self._serving, self._catalog = serving, catalog
        self._engine, self._clock = engine, clock
        self._admission, self._default_deadline_s = admission, deadline_s
        self._gate = KeyGate()
        self.refusals = Refusals()
        self._snapshots = ScanSnapshots(engine, new_id)
        self._running: dict[str, asyncio.Future[None]] = {}  # idempotency keys under way

    @property
    def is_idle(self) -> bool:
        """True when no request holds a place in admission, a row key or an idempotency key."""
        return not (self._admission.requests or self._running) and self._gate.is_empty

    # ---- writes
    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        active, table = self._serving.for_writes(), request.table
        until_s = self._clock.monotonic_s() + (deadline_s or self._default_deadline_s)
        holds = Holds()
        try:
            if request.idempotency_key is not None:  # taken first: a storage that is asked over a network answers late
                await self._take_request(request.idempotency_key, until_s, holds)
                recorded = await self._recorded(active, request.idempotency_key, request.digest, until_s)
                if recorded is not None:
                    holds.release_all()
                    return recorded
            records, checks = to_records(request), checks_of(request)
            size = sum([len(r.key) + len(r.value) for r in records]) + RECORD_OVERHEAD_BYTES * len(records)
            self._admission.enter(size)
            holds.add(partial(self._admission.leave, size))
            keys: list[RowKey] = [(table.id, record.key) for record in records]
            if checks:
                await self._own_keys(keys + [(table.id, check.key) for check in checks], until_s, holds)
                await self._require(active, request, checks, until_s)
            else:  # a write without checks only counts itself in
                if not self._gate.try_enter(keys):
                    await self._bounded(self._gate.enter(keys), until_s)
                holds.add(partial(self._gate.leave, keys))
            if self._serving.writing is not active or self._catalog.writable.get(table.id) is not table:
                self._check_late(active, table)
        except BaseException:
            holds.release_all()
            raise
        pending = Pending(records, size, until_s, holds.release_all, trace_context=request.trace_context)
        active.commit.submit(pending)
        ack = await pending.answer
        return WriteResult(ack.version, encode_receipt(0, ack.epoch, ack.seq, ack.mode), ack.mode, len(records))

    async def _take_request(self, key: str, until_s: float, holds: Holds) -> None:
        """Holds an idempotency key, so that the same request, sent again meanwhile, waits for the fate of this one."""
        await self._until_settled(key, until_s)
        done = self._running[key] = asyncio.get_running_loop().create_future()

        def settled() -> None:
            del self._running[key]
            done.set_result(None)

        holds.add(settled)

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        """The answer to the request that bore this key, if it was applied; waits for one that is under way.

        A repeated request may not read any more as it did, since its table has changed: it must not get the answer that
        nothing was applied. Raises InvalidInput when the key was of a different request.
        """
        until_s = self._clock.monotonic_s() + (deadline_s or self._default_deadline_s)
        await self._until_settled(key, until_s)
        return await self._recorded(self._serving.for_writes(), key, digest, until_s)

    async def _until_settled(self, key: str, until_s: float) -> None:
        """The same request, sent again while the first is under way, waits for its fate."""
        while key in self._running:
            await self._bounded(asyncio.wait([self._running[key]]), until_s)

    async def _recorded(self, active: ActiveEpoch, key: str, digest: bytes, until_s: float) -> WriteResult | None:
        found = await self._engine.request_outcome(key)
        if found is None:
            refusal = self.refusals.repeated(key, digest)
            if refusal is not None:
                await self._await_lease(active.lease, until_s)
                raise refusal
            return None
        check_same_request(key, found.digest, digest)
        await self._await_lease(active.lease, until_s)  # it acknowledges again
        mode: Mode = "async" if found.was_async or active.core.mode.label == "async" else "sync"
        receipt = encode_receipt(0, found.epoch, found.seq, mode)
        return WriteResult(found.version, receipt, mode, found.count)

    async def _require(self, active: ActiveEpoch, request: WriteRequest, checks: Sequence[RowCheck], until_s: float) -> None:
        for check in checks:
            row = await self._engine.get(request.table.id, check.key)
            try:
                check.require(row)
            except TwinlogError as error:
                await self._await_lease(active.lease, until_s)  # a refusal shows what is stored, as a read does
                if request.idempotency_key is not None:
                    self.refusals.note(request.idempotency_key, request.digest, error)
                raise

    def _check_late(self, active: ActiveEpoch, table: TableSchema) -> None:
        """Right before the log: a request that waited must not come behind a drain or a change of its table, or into another
        epoch."""
        self._catalog.check_current(table)
        if self._serving.for_writes() is not active:
            raise Unavailable("a new epoch began while the request waited: nothing was logged, try again", retry_after_s=1)

    async def _own_keys(self, keys: list[RowKey], until_s: float, holds: Holds) -> None:
        """Holds the keys of a conditional write, those of its checks included: no other write to them is under way."""
        owned = await self._bounded(self._gate.hold(keys), until_s)
        holds.add(partial(self._gate.release, owned))

    async def _bounded(self, work: Awaitable[_T], until_s: float) -> _T:
        try:
            async with asyncio.timeout(max(0.0, until_s - self._clock.monotonic_s())):
                return await work
        except TimeoutError as error:
            raise Unavailable(
                "another write to the same key was under way until the deadline: nothing was logged, try again", retry_after_s=1
            ) from error

    # ---- reads
    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None:
        if stale and self._serving.reads_stale:
            return await read_row(self._engine, self._clock, table, key, as_of)
        lease = await self._valid_lease()
        row = await read_row(self._engine, self._clock, table, key, as_of)
        self._prove(lease)
        return row

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False, snapshot: str | None = None,
    ) -> Sequence[StoredRow]:
        lease = await self._scan_lease(stale)
        if snapshot is not None:
            rows = await self._snapshots.scan(snapshot, lease, table.id, start, end, reverse=reverse, limit=limit)
        else:
            rows = await self._engine.scan(table.id, start, end, reverse=reverse, limit=limit, as_of=as_of)
            check_history(self._engine, self._clock, table, as_of)
        if lease is not None:
            self._prove(lease)
        return rows

    async def open_snapshot(self, stale: bool = False) -> str:
        lease = await self._scan_lease(stale)
        snapshot = await self._snapshots.open(lease)
        if lease is not None:
            try:
                self._prove(lease)
            except Unavailable:
                self._snapshots.release(snapshot)
                raise
        return snapshot

    def release_snapshot(self, snapshot: str) -> None:
        self._snapshots.release(snapshot)

    async def _scan_lease(self, stale: bool) -> ReadLease | None:
        """None: a standby answers, whose rows may be stale."""
        return None if stale and self._serving.reads_stale else await self._valid_lease()

    async def receipt(self, receipt: str) -> ReceiptDocument:
        return receipt_outcome(self._engine, receipt)

    async def _valid_lease(self) -> ReadLease:
        """The open epoch's lease, valid now; waits for a proof, at most to the default deadline."""
        lease = self._serving.for_reads().lease
        if not lease.valid_at(self._clock.monotonic_s()):
            await self._await_lease(lease, self._clock.monotonic_s() + self._default_deadline_s)
        return lease

    async def _await_lease(self, lease: ReadLease, until_s: float) -> None:
        """Until `lease` is valid. Raises Unavailable at `until_s`, NotActive or Unavailable when the site stops serving."""
        while not lease.valid_at(self._clock.monotonic_s()):
            self._serving.for_reads()
            if self._clock.monotonic_s() >= until_s:
                raise Unavailable("this site cannot prove that it is still the active: try again", retry_after_s=1)
            await self._clock.sleep(LEASE_POLL_S)

    def _prove(self, lease: ReadLease) -> None:
        if not lease.valid_at(self._clock.monotonic_s()):
            raise Unavailable("the proof that this site is the active ran out during the read: try again", retry_after_s=1)


def to_records(request: WriteRequest) -> list[Record]:
    """The request's records; the first carries the idempotency mark."""
    table = request.table.id
    records = request.records
    if records is None:
        records = [Record(KINDS[m.op], table, m.key, m.value) for m in request.mutations]
    if request.idempotency_key is not None and records:
        mark = RequestMark(request.idempotency_key, request.digest, len(records))
        first = records[0]
        records[0] = Record(first.kind, first.table, first.key, first.value, msgspec.msgpack.encode(mark))
    return records
