"""Answers the other site's gateway: the methods of remote_log/replication/messages.py, dispatched to sink and site.

What always holds: calls that end this site's epoch name the plan that has the pair at the coordinator, or are refused; a
message that is not of its method's form, or of a version of the protocol that this release does not read, changes nothing, and
takes little more memory than its bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import dropwhile
from typing import Any, NamedTuple

import msgspec

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.service.port import Condition, Mutation, WriteRequest
from gateway.site.facts import own_facts
from gateway.site.site import Site
from remote_log.replication.messages import (
    BASE,
    BASE_DONE,
    DRAIN,
    EPOCHS,
    FOLLOW,
    LOOK,
    MERGE,
    PREPARE,
    REPLICATE,
    ROWS,
    ROWS_BYTES,
    STATUS,
    STEP_DOWN,
    TRAIL,
    UNDRAIN,
    Addressed,
    BaseDoneRequest,
    BaseRequest,
    DrainReply,
    EpochsReply,
    EpochsRequest,
    FollowRequest,
    LookReply,
    LookRequest,
    MergeReply,
    MergeRequest,
    NoRequest,
    PlanRequest,
    PrepareReply,
    PrepareRequest,
    ReplicateRequest,
    RowsReply,
    RowsRequest,
    StatusReply,
    StoppedReply,
    TrailNote,
    decode_request,
    pack_history,
    to_message,
)
from remote_log.replication.shipper import holds
from storage.rows.readable import readable_key
from storage.rows.schema import TableSchema
from storage.rows.stored import stored_schema
from switchover.facts import FACTS
from switchover.roles.table import Role
from twinlog.errors import Fenced, InvalidInput, NotFound, PlanSuperseded, PreconditionFailed, Refused, Unavailable

MERGE_ATTEMPTS = 10


class PeerApi:
    def __init__(
        self, site: Site, trail: Callable[[TrailNote], Awaitable[TrailNote]] | None = None,
        look: Callable[[LookRequest], Awaitable[LookReply]] | None = None,
    ) -> None:
        """`trail` answers what the other site says of its audit trail, `look` what its page asks; None: nothing here does."""
        self._site = site
        self._methods: dict[str, tuple[type[Any], Callable[[Any], Awaitable[msgspec.Struct]]]] = {
            FOLLOW: (FollowRequest, self._follow), REPLICATE: (ReplicateRequest, self._replicate),
            BASE: (BaseRequest, self._base), BASE_DONE: (BaseDoneRequest, self._base_done),
            STATUS: (NoRequest, self._status), FACTS: (NoRequest, self._facts), EPOCHS: (EpochsRequest, self._epochs),
            ROWS: (RowsRequest, self._rows), DRAIN: (PlanRequest, self._drain), UNDRAIN: (PlanRequest, self._undrain),
            STEP_DOWN: (PlanRequest, self._step_down), MERGE: (MergeRequest, self.merge),
            PREPARE: (PrepareRequest, self._prepare),
        }
        if trail is not None:
            self._methods[TRAIL] = TrailNote, trail
        if look is not None:
            self._methods[LOOK] = LookRequest, look

    async def call_bytes(self, method: str, body: bytes) -> bytes:
        known = self._methods.get(method)
        if known is None:
            raise NotFound(f"there is no method {method!r} between sites: are both on the same release?")
        caller = decode_request(Addressed, method, body)
        self._check_pair(caller.pair)
        self._site.parts.understanding.check_call(caller.protocol)
        kind, handler = known
        request = decode_request(kind, method, body)
        try:
            answer = await handler(request)
        except Fenced:
            self._site.fence_rejections += 1
            raise
        return msgspec.msgpack.encode(to_message(answer))

    def _check_pair(self, whose: str) -> None:
        """A wrong address may lead to a pair whose sites and epochs have the same names: nothing of it is taken."""
        site = self._site
        own = site.parts.coordinator.met_pair
        if whose and own and whose != own:
            raise Refused(
                f"this is site {site.site} of pair {own}, and the call comes from pair {whose}: correct peer.url at the caller"
            )

    # ---- replication
    async def _follow(self, request: FollowRequest) -> msgspec.Struct:
        if request.site == self._site.site:  # its answer would be taken for a standby that lacks nothing
            raise Refused(f"this is site {request.site} itself, and no other one: correct its peer.url")
        understanding = self._site.parts.understanding
        await understanding.hear(request.says)
        position = await self._site.sink.follow(request)
        position.says = understanding.own
        if position.state == "diverged":
            self._site.diverged(position.why)
        return position

    async def _replicate(self, request: ReplicateRequest) -> msgspec.Struct:
        return await self._site.sink.replicate(request)

    async def _base(self, request: BaseRequest) -> msgspec.Struct:
        return await self._site.sink.base(request)

    async def _base_done(self, request: BaseDoneRequest) -> msgspec.Struct:
        return await self._site.sink.base_done(request)

    # ---- what the other site asks
    async def _status(self, request: NoRequest) -> msgspec.Struct:
        site, engine = self._site, self._site.parts.engine
        epoch = site.active_epoch
        return StatusReply(
            site=site.site, role=str(site.role), epoch=site.epoch, mode=site.mode, applied_seq=engine.applied.seq,
            durable_seq=engine.durable_seq, committed_seq=epoch.core.committed if epoch is not None else engine.applied.seq,
            waiting_for=site.waiting_for or "", log_key=site.parts.remote_keys.writes,
            says=site.parts.understanding.own,
        )

    async def _facts(self, request: NoRequest) -> msgspec.Struct:
        return await own_facts(self._site)

    async def _epochs(self, request: EpochsRequest) -> msgspec.Struct:
        epoch = self._proved_epoch()
        engine, wal = self._site.parts.engine, self._site.parts.wal
        held = await holds(wal, engine.applied.seq, request.at)
        history = pack_history(engine.applied.epochs)
        return EpochsReply(epoch.epoch, engine.applied.seq, history, held, wal.first_previous or 0)

    async def _rows(self, request: RowsRequest) -> msgspec.Struct:
        self._proved_epoch()
        engine = self._site.parts.engine
        found: list[tuple[bytes, int] | None] = []
        size = 0
        for table, key in request.keys:
            row = await engine.get(table, key)
            found.append(None if row is None else (row.value, row.version))
            size += 0 if row is None else len(row.value)
            if size >= ROWS_BYTES:
                break  # the rest is asked for again
        return RowsReply(engine.applied.seq, engine.applied.timestamp, found)

    async def _prepare(self, request: PrepareRequest) -> msgspec.Struct:
        if request.schema is not None and stored_schema(request.schema).id != request.table:
            raise InvalidInput(f"the schema is not of table {request.table}", table=request.table)
        try:
            await self._site.parts.engine.prepare_schema(request.table, request.schema)
        except InvalidInput as error:
            return PrepareReply(error.message)
        return PrepareReply("")

    def _proved_epoch(self) -> ActiveEpoch:
        """The open epoch, while the lease proves that it still is the active one."""
        epoch = self._site.serving.for_reads()
        if not epoch.lease.valid_at(self._site.parts.clock.monotonic_s()):
            raise Unavailable("this site cannot prove now that it is still the active", retry_after_s=1)
        return epoch

    # ---- a planned switchover, asked by the site that will be active
    async def _check_plan(self, request: PlanRequest) -> None:
        state = await self._site.refresh_pair_state()
        running = state.switching if state is not None else None
        if running is None or running.plan_id != request.plan_id:
            raise PlanSuperseded(f"plan {request.plan_id} does not have the pair", plan_id=request.plan_id)

    async def _drain(self, request: PlanRequest) -> msgspec.Struct:
        await self._check_plan(request)
        return DrainReply(await self._site.drain(), self._site.epoch)

    async def _undrain(self, request: PlanRequest) -> msgspec.Struct:
        """A switchover that is undone says so while it has the pair; once nobody has it, anybody may."""
        state = await self._site.refresh_pair_state()
        if state is not None and state.switching is not None and state.switching.plan_id != request.plan_id:
            raise PlanSuperseded(f"plan {request.plan_id} does not have the pair", plan_id=request.plan_id)
        self._site.undrain()
        return DrainReply(self._site.parts.engine.applied.seq, self._site.epoch)

    async def _step_down(self, request: PlanRequest) -> msgspec.Struct:
        await self._check_plan(request)
        if self._site.role not in (Role.DRAINING, Role.CLOSED, Role.FENCED):
            await self._site.drain()
        return StoppedReply(self._site.epoch, await self._site.step_down())

    # ---- quarantined rows
    async def merge(self, request: MergeRequest) -> MergeReply:
        """Rows of a quarantine as conditional writes: what is newer than the row that is there changes it."""
        parts = self._site.parts
        self._site.sink.verifier.merge(request, parts.engine.applied.schemas(), parts.clock.wall_ms())
        merged = 0
        absent: list[tuple[int, bytes]] = []
        tables = {table.id: table for table in self._site.catalog.all()}
        by_key: dict[tuple[int, bytes], list[_Change]] = {}
        for table_id, op, key, value, version in request.rows:
            by_key.setdefault((table_id, key), []).append(_Change(Mutation(op, key, value), version))
        for (table_id, key), changes in by_key.items():
            if table_id not in tables:
                continue
            if not request.put_absent and changes[-1].mutation.op != "delete" and await self._is_absent(table_id, key):
                absent.append((table_id, key))
            else:
                merged += await self._merge_row(tables[table_id], changes, request.put_absent)
        return MergeReply(merged, len(request.rows) - merged, absent)

    async def _is_absent(self, table_id: int, key: bytes) -> bool:
        """A delete leaves no version behind to compare with: whether it came later is the operator's to say."""
        return await self._site.parts.engine.get(table_id, key) is None

    async def _merge_row(self, table: TableSchema, changes: list[_Change], put_absent: bool) -> int:
        """All changes of one row in one request, so that the first one put back does not hide those after it."""
        key = changes[0].mutation.key
        for _ in range(MERGE_ATTEMPTS):
            row = await self._site.parts.engine.get(table.id, key)
            newer = [change.mutation for change in changes if row is None or change.version > row.version]
            if row is None:
                newer = list(dropwhile(lambda mutation: mutation.op == "update", newer))
                unchanged = Condition(key, exists=False)
            else:
                unchanged = Condition(key, version=row.version)
            if not newer or (row is None and not put_absent):
                return 0
            try:
                await self._site.rows.write(WriteRequest(table, newer, [unchanged]))
            except PreconditionFailed:
                continue  # it was changed meanwhile: look again
            return len(newer)
        text = readable_key(table, key)
        raise Unavailable(f"row {text} of table {table.name!r} keeps changing: merge again", retry_after_s=1)


class _Change(NamedTuple):
    mutation: Mutation
    version: int
