"""Reads and writes of rows at the active: admission, idempotency, conditions, the commit log, the read lease.

What always holds:
- a conditional write is evaluated against applied state while its keys are held, and they stay held until its fate is settled;
- an idempotency key that is already in the log answers its first outcome, and a different request under it is refused;
- a read, a condition that does not hold and an outcome that is answered again are told only under a valid lease (P2);
- nothing is logged once the site drains, or its epoch has ended, however long the request waited for its keys.
Source: protocol.md section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.epoch.commit_log import Ack, Pending
from gateway.service.admission import Admission
from gateway.service.as_of import check_history, read_row
from gateway.service.catalog import Catalog
from gateway.service.key_gate import KeyGate, RowKey
from gateway.service.port import Condition, Mutation, WriteRequest, WriteResult
from gateway.service.receipts import encode_receipt
from gateway.service.serving import Serving
from remote_log.fencing.read_lease import ReadLease
from storage.clock import Clock
from storage.engine import StorageEngine, StoredRow
from storage.log.record import Record, RecordKind, RequestMark
from storage.rows.schema import TableSchema
from twinlog.errors import Conflict, InvalidInput, NotFound, TwinlogError, Unavailable

RECORD_OVERHEAD_BYTES = 24
LEASE_POLL_S = 0.01
KINDS = {"upsert": RecordKind.UPSERT, "insert": RecordKind.UPSERT, "update": RecordKind.UPDATE, "delete": RecordKind.DELETE}
_T = TypeVar("_T")


class RowsService:
    def __init__(
        self, serving: Serving, catalog: Catalog, admission: Admission, *, engine: StorageEngine, clock: Clock,
        deadline_s: float,
    ) -> None:
        self._serving, self._catalog = serving, catalog
        self._engine, self._clock = engine, clock
        self._admission, self._default_deadline_s = admission, deadline_s
        self._gate = KeyGate()
        self._running: dict[str, asyncio.Future[None]] = {}  # idempotency keys under way

    # ---- writes
    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        active = self._serving.for_writes()
        until_s = self._clock.monotonic_s() + (deadline_s or self._default_deadline_s)
        if request.idempotency_key is None:
            return self._result(active, await self._write_once(active, request, until_s), request.count)
        return await self._write_keyed(active, request, request.idempotency_key, until_s)

    async def _write_keyed(self, active: ActiveEpoch, request: WriteRequest, key: str, until_s: float) -> WriteResult:
        await self._until_settled(key, until_s)
        done = self._running[key] = asyncio.get_running_loop().create_future()

        def settled() -> None:
            del self._running[key]
            done.set_result(None)

        try:  # the key is taken first: a storage that is asked over a network answers late
            recorded = await self._recorded(active, key, request.digest, until_s)
        except BaseException:
            settled()
            raise
        if recorded is not None:
            settled()
            return recorded
        return self._result(active, await self._write_once(active, request, until_s, settled), request.count)

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        """The answer to the request that bore this key, if it was applied; waits for one that is under way.

        For a repeated request that does not read any more as it did (its table has changed since): it may not be told that
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
            return None
        if found.digest != digest:
            raise InvalidInput(f"the idempotency key {key!r} was used for a different request: use a new key", key=key)
        await self._await_lease(active.lease, until_s)  # it acknowledges again
        mode = "async" if found.was_async or active.core.mode.label == "async" else "sync"
        receipt = encode_receipt(0, found.epoch, found.seq, mode)
        return WriteResult(found.version, receipt, mode, found.count)

    async def _write_once(
        self, active: ActiveEpoch, request: WriteRequest, until_s: float, settled: Callable[[], None] | None = None
    ) -> Ack:
        """Log the request once. `settled` runs when its fate is known, or at once when nothing was logged."""
        try:
            records = to_records(request)
            conditions = conditions_of(request)
            size = sum([len(r.key) + len(r.value) for r in records]) + RECORD_OVERHEAD_BYTES * len(records)
            self._admission.enter(size)
        except BaseException:
            _run(settled)
            raise

        def leave() -> None:
            self._admission.leave(size)
            _run(settled)

        try:
            keys, release = await self._own_keys(request, records, conditions, until_s)
        except BaseException:
            leave()
            raise

        def finish() -> None:
            release(keys)
            leave()

        try:
            await self._check_conditions(active, request.table, conditions, until_s)
            self._catalog.check_current(request.table)
            self._check_open(active)
        except BaseException:
            finish()
            raise
        pending = Pending(records, size, until_s, finish)
        active.commit.submit(pending)
        return await pending.answer

    async def _check_conditions(
        self, active: ActiveEpoch, table: TableSchema, conditions: Sequence[Condition], until_s: float
    ) -> None:
        try:
            for condition in conditions:
                check_condition(condition, await self._engine.get(table.id, condition.key))
        except TwinlogError:
            await self._await_lease(active.lease, until_s)  # a refusal tells what is stored, as a read does
            raise

    def _check_open(self, active: ActiveEpoch) -> None:
        """Right before the log: a request that waited for its keys must not come behind a drain, or into another epoch."""
        if self._serving.for_writes() is not active:
            raise Unavailable("a new epoch began while the request waited: nothing was logged, try again", retry_after_s=1)

    async def _own_keys(
        self, request: WriteRequest, records: list[Record], conditions: Sequence[Condition], until_s: float
    ) -> tuple[list[RowKey], Callable[[list[RowKey]], None]]:
        table = request.table.id
        keys: list[RowKey] = [(table, record.key) for record in records]
        if conditions:
            owned = await self._bounded(self._gate.hold(keys + [(table, c.key) for c in conditions]), until_s)
            return owned, self._gate.release
        if not self._gate.try_enter(keys):
            await self._bounded(self._gate.enter(keys), until_s)
        return keys, self._gate.leave

    async def _bounded(self, work: Awaitable[_T], until_s: float) -> _T:
        try:
            async with asyncio.timeout(max(0.0, until_s - self._clock.monotonic_s())):
                return await work
        except TimeoutError as error:
            raise Unavailable(
                "another write to the same key was under way until the deadline: nothing was logged, try again", retry_after_s=1
            ) from error

    def _result(self, active: ActiveEpoch, ack: Ack, count: int) -> WriteResult:
        return WriteResult(ack.version, encode_receipt(0, ack.epoch, ack.seq, ack.mode), ack.mode, count)

    # ---- reads
    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None) -> StoredRow | None:
        lease = await self._valid_lease()
        row = await read_row(self._engine, self._clock, table, key, as_of)
        self._prove(lease)
        return row

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None
    ) -> Sequence[StoredRow]:
        lease = await self._valid_lease()
        rows = await self._engine.scan(table.id, start, end, reverse=reverse, limit=limit, as_of=as_of)
        check_history(self._engine, self._clock, table, as_of)
        self._prove(lease)
        return rows

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


def _run(hook: Callable[[], None] | None) -> None:
    if hook is not None:
        hook()


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


def conditions_of(request: WriteRequest) -> list[Condition]:
    """The stated conditions, and those that insert and update imply for a key's first mutation in the request.

    Raises Conflict or NotFound when a later mutation of the same request contradicts an earlier one.
    """
    conditions = list(request.conditions)
    if all(mutation.op in ("upsert", "delete") for mutation in request.mutations):
        return conditions
    exists_after: dict[bytes, bool] = {}
    for mutation in request.mutations:
        if mutation.op in ("insert", "update"):
            needed = _implied(mutation)
            known = exists_after.get(mutation.key)
            if known is None:
                conditions.append(needed)
            elif known != needed.exists:
                raise needed.error(needed.problem + " (by an earlier mutation of this batch)", key=mutation.key.hex())
        exists_after[mutation.key] = mutation.op != "delete"
    return conditions


def _implied(mutation: Mutation) -> Condition:
    if mutation.op == "insert":
        return Condition(mutation.key, exists=False, problem="a row with this key exists already", error=Conflict)
    return Condition(mutation.key, exists=True, problem="there is no row with this key to update", error=NotFound)


def check_condition(condition: Condition, row: StoredRow | None) -> None:
    """Raises the condition's error when it does not hold for `row`."""
    holds = True
    if condition.exists is not None:
        holds = (row is not None) == condition.exists
    if holds and condition.version is not None:
        holds = row is not None and row.version == condition.version
    if holds and condition.predicate is not None:
        holds = condition.predicate(row)
    if not holds:
        raise condition.error(condition.problem, key=condition.key.hex(), version=row.version if row is not None else None)


