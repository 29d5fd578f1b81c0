"""Runs the plans of role changes: one at a time, each step journaled before and after, interrupted anywhere without harm.

What always holds, here and in attempt.py, which drives one operation:
- until a step that is not abortable has started, an operation can be given up: its effects are undone in reverse order, by
  command, or by itself when a step fails; after that it only goes forward, and `resume` takes it up at the first step not done;
- an operation that the journal calls running while nobody runs it was interrupted, whatever interrupted it;
- only the last operation that changed something is taken up again: an older plan would act on a pair that has moved on.
Steps are idempotent: one that was interrupted runs again. Source: protocol.md section 8, reference switchover-lessons 1 to 3.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from msgspec.structs import replace

from storage.clock import Clock
from storage.failpoints import Failpoints
from storage.tracing import NO_TRACES, Tracer
from switchover.operations.attempt import Attempt, history_entry
from switchover.operations.document import (
    HistoryEntry,
    Json,
    Lasted,
    Operation,
    OperationDocument,
    StepRecord,
    as_found,
    document,
    never_began,
    past_return,
    taken_up,
    unwritten_ms,
)
from switchover.operations.journal import Journal
from switchover.operations.plan import Plan, PlanMaker
from twinlog.errors import Conflict, NotFound, Refused


class Executor:
    """The operations of one site. `make_plan(kind, to, options)` raises InvalidInput or Refused for what it does not know."""

    def __init__(
        self, journal: Journal, clock: Clock, make_plan: PlanMaker, failpoints: Failpoints, tracer: Tracer = NO_TRACES
    ) -> None:
        self._tracer = tracer
        self._journal, self._clock, self._make_plan, self._failpoints = journal, clock, make_plan, failpoints
        self._live: Attempt | None = None
        self.ended: Counter[tuple[str, str]] = Counter()  # attempts that ended here, by kind and outcome
        self.lasted: dict[str, Lasted] = {}  # the newest of each kind that succeeded here
        self._gate = asyncio.Lock()  # between the look at what runs and the start of something else

    # ---- asking
    @property
    def running(self) -> OperationDocument | None:
        """The document of the operation that runs now."""
        return None if self._live is None else document(self._live.shown)

    async def operation(self, operation_id: str) -> OperationDocument:
        """Raises NotFound."""
        return document(await self._load(operation_id))

    async def operations(self, limit: int = 100) -> list[OperationDocument]:
        """The last ones, newest first."""
        return [document(self._as_it_is(one)) for one in await self._journal.operations(limit)]

    async def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The last entries, newest first."""
        return await self._journal.history(limit)

    async def follow(self, operation_id: str) -> AsyncIterator[OperationDocument]:
        """The document now and at each change, until the operation has ended. Raises NotFound."""
        live = self._live
        if live is None or live.operation.id != operation_id:
            yield await self.operation(operation_id)
            return
        async for shown in live.changes():
            yield document(shown)

    async def wait(self, operation_id: str) -> OperationDocument:
        """The document once the operation has ended. Raises NotFound."""
        async for shown in self.follow(operation_id):
            last = shown
        return last

    # ---- commanding
    async def start(
        self, operation_id: str, kind: str, to: str | None, options: Json, actor: str, dry_run: bool = False,
        expires_ms: int | None = None,
    ) -> OperationDocument:
        """Begin a plan; its first document. The same call again is answered with the operation that it began.

        Conflict: another one runs (field `running`), or the id means another request. A dry run takes the same way and
        stops where something would change; its result says what would be done.
        """
        async with self._gate:
            begun = await self.begun(operation_id, kind, to, options, dry_run)
            if begun is not None:
                return begun
            self._check_free()
            plan = self._make_plan(kind, to, options)
            steps = tuple(StepRecord(step.name, step.what, step.abortable) for step in plan.steps)
            now = self._clock.wall_ms()
            operation = Operation(operation_id, kind, to, options, actor, now, steps, dry_run=dry_run, expires_ms=expires_ms)
            await self._journal.create(operation, self._entry(operation, "started", actor, detail=options))
            return self._launch(operation, plan, forward=True)

    async def begun(
        self, operation_id: str, kind: str, to: str | None, options: Json, dry_run: bool
    ) -> OperationDocument | None:
        """The operation that this request has begun already; None: none. Raises Conflict when another request has the id."""
        try:
            known = await self._load(operation_id)
        except NotFound:
            return None
        if (known.kind, known.to, known.options, known.dry_run) != (kind, to, options, dry_run):
            raise Conflict(f"operation {operation_id} is another request: use a new id, or a new key", id=operation_id)
        return document(known)

    async def run(self, operation_id: str, kind: str, to: str | None, options: Json, actor: str) -> OperationDocument:
        """Start, wait for the end, and raise the error of the step that failed."""
        await self.start(operation_id, kind, to, options, actor)
        live = self._live
        ended = await self.wait(operation_id)
        if live is not None and live.error is not None:
            raise live.error
        return ended

    async def resume(
        self, operation_id: str, actor: str, make_plan: PlanMaker | None = None, expires_ms: int | None = None
    ) -> OperationDocument:
        """Resumes a failed or interrupted operation at its first step that is not done; returns its document. Raises Refused.

        `make_plan`: of the same steps, for this attempt. `expires_ms`: of the request to resume it; None: as before.
        """
        async with self._gate:
            operation = await self._load(operation_id)
            self._check_free()
            operation, plan = await self._take_up(operation, make_plan or self._make_plan)
            if operation.aborting:
                raise Refused(f"operation {operation_id} was being aborted: abort it again", id=operation_id)
            operation = taken_up(operation, frozenset(step.name for step in plan.steps if step.dry))
            if expires_ms is not None:
                operation = replace(operation, expires_ms=expires_ms)
            await self._journal.save(operation, self._entry(operation, "resumed", actor))
            return self._launch(operation, plan, forward=True)

    async def abort(self, operation_id: str, actor: str) -> OperationDocument:
        """Give the operation up and undo what it did; its last document. Refused past the point of no return."""
        async with self._gate:
            live = self._live
            if live is not None and live.operation.id == operation_id:
                _check_way_back(live.operation)
                await live.interrupt(actor)
            else:
                operation = await self._load(operation_id)
                _check_way_back(operation)
                self._check_free()
                operation, plan = await self._take_up(operation, self._make_plan)
                operation = replace(operation, state="running", aborting=True)
                await self._journal.save(operation, self._entry(operation, "abort asked", actor))
                self._launch(operation, plan, forward=False)
        ended = await self.wait(operation_id)
        if ended.state == "succeeded":
            raise Refused(f"operation {operation_id} had ended before it could be aborted", id=operation_id)
        return ended

    async def close(self) -> None:
        """Stop at once, as a crash would: what runs is interrupted."""
        if self._live is not None:
            await self._live.stop()
        await self._journal.close()

    # ---- what is known
    def _as_it_is(self, journaled: Operation) -> Operation:
        live = self._live
        return live.shown if live is not None and live.operation.id == journaled.id else as_found(journaled)

    async def _load(self, operation_id: str) -> Operation:
        return self._as_it_is(await self._journal.load(operation_id))

    def _check_free(self) -> None:
        if self._live is not None:
            running = self._live.operation
            raise Conflict(
                f"operation {running.id} ({running.kind}) is running: follow it, or abort it", running=running.id
            )

    async def _take_up(self, operation: Operation, make_plan: PlanMaker) -> tuple[Operation, Plan]:
        """A plan for another attempt at an operation that stopped. Raises Refused when it must not be touched again."""
        if operation.state not in ("failed", "interrupted"):
            raise Refused(f"operation {operation.id} has {operation.state}: start a new one", id=operation.id)
        for later in await self._journal.operations(1000):
            if later.id == operation.id:
                break
            if not later.dry_run and not never_began(as_found(later)):
                raise Refused(
                    f"operation {later.id} ({later.kind}) has run since {operation.id} stopped: start a new one",
                    id=operation.id,
                )
        plan = make_plan(operation.kind, operation.to, operation.options)
        if [step.name for step in plan.steps] != [step.name for step in operation.steps]:
            raise Refused(f"another release planned operation {operation.id} otherwise: start a new one", id=operation.id)
        return operation, plan

    # ---- going
    def _launch(self, operation: Operation, plan: Plan, *, forward: bool) -> OperationDocument:
        def over() -> None:
            self._live = None
            if not operation.dry_run:
                found = as_found(live.operation)
                self.ended[operation.kind, found.state] += 1
                if found.state == "succeeded" and found.finished_ms is not None:
                    self.lasted[operation.kind] = Lasted(found.finished_ms - found.created_ms, unwritten_ms(found.steps, 0))

        self._live = live = Attempt(operation, plan, self._journal, self._clock, self._failpoints, self._tracer)
        live.go(forward=forward, over=over)
        return document(operation)

    def _entry(self, operation: Operation, event: str, actor: str, detail: Json | None = None) -> HistoryEntry:
        return history_entry(operation, self._clock.wall_ms(), event, actor, detail=detail)


def _check_way_back(operation: Operation) -> None:
    barred = past_return(operation)
    if barred is not None and operation.state != "succeeded":
        raise Refused(
            f"operation {operation.id} is past the point of no return ({barred.name}: {barred.what}): "
            "let it finish, or resume it",
            id=operation.id, step=barred.name,
        )
