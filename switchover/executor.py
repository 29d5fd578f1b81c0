"""Runs the plans of role changes: one at a time, each step journaled before and after, interrupted anywhere without harm.

What always holds:
- a step runs, or is undone, only after the journal holds that it begins, and the next one only after it holds the end;
- until a step that is not abortable has started, an operation can be given up: its effects are undone in reverse order, by
  command, or by itself when a step fails; after that it only goes forward, and `resume` takes it up at the first step not done;
- an operation that the journal calls running while nobody runs it was interrupted, whatever interrupted it;
- only the last operation is taken up again: an older plan would act on a pair that has moved on.
Steps are idempotent: one that was interrupted runs again. Source: protocol.md section 8, reference switchover-lessons 1 to 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from storage.clock import Clock
from storage.errors import Conflict, NotFound, Refused
from switchover.failpoints import Failpoints
from switchover.journal import Journal
from switchover.operations import (
    HistoryEntry,
    Json,
    Operation,
    OperationState,
    StepRecord,
    as_found,
    document,
    error_document,
    json_ready,
    past_return,
    summary,
    taken_up,
    with_step,
)

PROGRESS_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Step:
    """One idempotent step. `run` returns what is worth knowing of it, as JSON."""

    name: str
    run: Callable[[], Awaitable[Json | None]]
    what: str  # in words, for people
    abortable: bool = False  # may be cancelled while it runs, and the operation given up after it
    undo: Callable[[], Awaitable[object]] | None = None  # takes the effect back, whole or half; absent: it left none
    dry: bool = False  # changes nothing: a dry run runs it too, and a resume runs it again
    check: Callable[[], Awaitable[bool]] | None = None  # True: its effect is there already, and it is skipped
    progress: Callable[[], Json] | None = None  # asked from time to time while it runs


@dataclass(frozen=True)
class Plan:
    """The steps of one role change, in order. Made anew for each attempt: it may keep what its steps tell each other."""

    kind: str
    steps: Sequence[Step]


PlanMaker = Callable[[str, "str | None", Json], Plan]


class _Aborted(Exception):
    """An abort was asked for, and there is still a way back."""


class _Live:
    """The operation that runs now: the document as it stands, and as it was last shown."""

    def __init__(self, operation: Operation, plan: Plan) -> None:
        self.operation = self.shown = operation
        self.plan = plan
        self.error: Exception | None = None
        self.working: asyncio.Task[Json | None] | None = None  # the step itself, while it runs
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # of the next change

    def show(self) -> None:
        self.shown = self.operation
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[Operation]:
        """What is shown now, then each change; a slow reader gets the newest and misses those between."""
        while True:
            changed, shown = self._changed, self.shown
            yield shown
            if shown.state != "running":
                return
            await changed.wait()


class Executor:
    """The operations of one site. `make_plan(kind, to, options)` raises InvalidInput or Refused for what it does not know."""

    def __init__(self, journal: Journal, clock: Clock, make_plan: PlanMaker, failpoints: Failpoints) -> None:
        self._journal, self._clock, self._make_plan, self._failpoints = journal, clock, make_plan, failpoints
        self._live: _Live | None = None
        self._gate = asyncio.Lock()  # between the look at what runs and the start of something else

    # ---- asking
    @property
    def running(self) -> Json | None:
        """The document of the operation that runs now."""
        return None if self._live is None else document(self._live.shown)

    async def operation(self, operation_id: str) -> Json:
        """Raises NotFound."""
        return document(await self._load(operation_id))

    async def operations(self, limit: int = 100) -> list[Json]:
        """The last ones, newest first."""
        return [document(self._as_it_is(one)) for one in await self._journal.operations(limit)]

    async def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The last entries, newest first."""
        return await self._journal.history(limit)

    async def follow(self, operation_id: str) -> AsyncIterator[Json]:
        """The document now and at each change, until the operation has ended. Raises NotFound."""
        live = self._live
        if live is None or live.operation.id != operation_id:
            yield await self.operation(operation_id)
            return
        async for shown in live.changes():
            yield document(shown)

    async def wait(self, operation_id: str) -> Json:
        """The document once the operation has ended. Raises NotFound."""
        async for shown in self.follow(operation_id):
            last = shown
        return last

    # ---- commanding
    async def start(
        self, operation_id: str, kind: str, to: str | None, options: Json, actor: str, dry_run: bool = False
    ) -> Json:
        """Begin a plan; its first document. The same call again is answered with the operation that it began.

        Conflict: another one runs (field `running`), or the id means another request. A dry run takes the same way and
        stops where something would change; its result says what would be done.
        """
        async with self._gate:
            known = await self._known(operation_id)
            if known is not None:
                if (known.kind, known.to, known.options, known.dry_run) != (kind, to, options, dry_run):
                    raise Conflict(f"operation {operation_id} is another request: use a new id", id=operation_id)
                return document(known)
            self._check_free()
            plan = self._make_plan(kind, to, options)
            steps = tuple(StepRecord(step.name, step.what, step.abortable) for step in plan.steps)
            now = self._clock.wall_ms()
            operation = Operation(operation_id, kind, to, options, actor, now, steps, dry_run=dry_run)
            await self._journal.create(operation, self._entry(operation, "started", actor, detail=options))
            return self._launch(operation, plan, self._forward)

    async def run(self, operation_id: str, kind: str, to: str | None, options: Json, actor: str) -> Json:
        """Start, wait for the end, and raise the error of the step that failed."""
        await self.start(operation_id, kind, to, options, actor)
        live = self._live
        ended = await self.wait(operation_id)
        if live is not None and live.error is not None:
            raise live.error
        return ended

    async def resume(self, operation_id: str, actor: str) -> Json:
        """Take a failed or interrupted operation up at its first step not done; the document as it goes on. Raises Refused."""
        async with self._gate:
            operation = await self._load(operation_id)
            self._check_free()
            operation, plan = await self._take_up(operation)
            if operation.aborting:
                raise Refused(f"operation {operation_id} was being aborted: abort it again", id=operation_id)
            operation = taken_up(operation, frozenset(step.name for step in plan.steps if step.dry))
            await self._journal.save(operation, self._entry(operation, "resumed", actor))
            return self._launch(operation, plan, self._forward)

    async def abort(self, operation_id: str, actor: str) -> Json:
        """Give the operation up and undo what it did; its last document. Refused past the point of no return."""
        async with self._gate:
            live = self._live
            if live is not None and live.operation.id == operation_id:
                _check_way_back(live.operation)
                await self._interrupt(live, actor)
            else:
                operation = await self._load(operation_id)
                _check_way_back(operation)
                self._check_free()
                operation, plan = await self._take_up(operation)
                operation = replace(operation, state="running", aborting=True)
                await self._journal.save(operation, self._entry(operation, "abort asked", actor))
                self._launch(operation, plan, self._backward)
        ended = await self.wait(operation_id)
        if ended["state"] == "succeeded":
            raise Refused(f"operation {operation_id} had ended before it could be aborted", id=operation_id)
        return ended

    async def close(self) -> None:
        """Stop at once, as a crash would: what runs is interrupted."""
        live = self._live
        if live is not None and live.task is not None:
            live.task.cancel()
            await asyncio.gather(live.task, return_exceptions=True)
            live.operation = as_found(live.operation)
            live.show()
        await self._journal.close()

    # ---- what is known
    def _as_it_is(self, journaled: Operation) -> Operation:
        live = self._live
        return live.shown if live is not None and live.operation.id == journaled.id else as_found(journaled)

    async def _load(self, operation_id: str) -> Operation:
        return self._as_it_is(await self._journal.load(operation_id))

    async def _known(self, operation_id: str) -> Operation | None:
        try:
            return await self._load(operation_id)
        except NotFound:
            return None

    def _check_free(self) -> None:
        if self._live is not None:
            running = self._live.operation
            raise Conflict(
                f"operation {running.id} ({running.kind}) is running: follow it, or abort it", running=running.id
            )

    async def _take_up(self, operation: Operation) -> tuple[Operation, Plan]:
        """A plan for another attempt at an operation that stopped. Raises Refused when it must not be touched again."""
        if operation.state not in ("failed", "interrupted"):
            raise Refused(f"operation {operation.id} has {operation.state}: start a new one", id=operation.id)
        for later in await self._journal.operations(1000):
            if later.id == operation.id:
                break
            if not later.dry_run:
                raise Refused(
                    f"operation {later.id} ({later.kind}) has run since {operation.id} stopped: start a new one",
                    id=operation.id,
                )
        plan = self._make_plan(operation.kind, operation.to, operation.options)
        if [step.name for step in plan.steps] != [step.name for step in operation.steps]:
            raise Refused(f"another release planned operation {operation.id} otherwise: start a new one", id=operation.id)
        return operation, plan

    # ---- going
    def _launch(self, operation: Operation, plan: Plan, way: Callable[[_Live], Awaitable[None]]) -> Json:
        live = self._live = _Live(operation, plan)
        live.task = asyncio.get_running_loop().create_task(self._drive(live, way))
        return document(operation)

    async def _drive(self, live: _Live, way: Callable[[_Live], Awaitable[None]]) -> None:
        """The life of one attempt. An error that comes out of it is the journal's: then it has stopped, as by a crash."""
        try:
            self._failpoints.hit(f"plan.{live.operation.kind}.created")
            await way(live)
        except Exception as error:
            live.error = error
            live.operation = replace(live.operation, error=error_document(error, None))
        finally:
            self._live = None
            live.operation = as_found(live.operation)
            live.show()

    async def _forward(self, live: _Live) -> None:
        """Every step that is not done, then the end; or the way back, if there still is one."""
        for index, step in enumerate(live.plan.steps):
            if live.operation.aborting:
                break
            if live.operation.steps[index].state == "done" or (live.operation.dry_run and not step.dry):
                continue
            error = await self._step(live, index, step)
            if error is None or live.operation.aborting:
                continue
            live.error = error
            if past_return(live.operation) is None:
                await self._undo_all(live)
            await self._end(live, "failed", error_document(error, step.name))
            return
        if live.operation.aborting:
            await self._backward(live)
        else:
            await self._end(live, "succeeded", None)

    async def _backward(self, live: _Live) -> None:
        """Undo everything; what could not be undone leaves the operation failed, to be aborted again."""
        failed = await self._undo_all(live)
        await self._end(live, "failed" if failed else "aborted", failed)

    async def _step(self, live: _Live, index: int, step: Step) -> Exception | None:
        """One step between its two journal entries; the error that it ended with."""
        started_ms, started_s = self._clock.wall_ms(), self._clock.monotonic_s()
        begun = with_step(live.operation, index, state="running", started_ms=started_ms, finished_ms=None, detail=None)
        await self._save(live, begun, "step started", step)
        self._hit(live, step, "before")
        detail, failure = None, None
        try:
            detail = await self._work(live, index, step)
        except Exception as error:
            failure = error
        self._hit(live, step, "after")
        took_ms = round((self._clock.monotonic_s() - started_s) * 1000)
        state = "done" if failure is None else "interrupted" if isinstance(failure, _Aborted) else "failed"
        if failure is not None and state == "failed":
            detail = error_document(failure, step.name)
        after = with_step(live.operation, index, state=state, finished_ms=started_ms + took_ms, detail=detail)
        await self._save(live, after, f"step {state}", step, took_ms, detail)
        self._hit(live, step, "journaled")
        return failure

    async def _work(self, live: _Live, index: int, step: Step) -> Json | None:
        """The step in a task of its own, so that an abort can cancel it alone. Raises its error, or _Aborted."""
        if live.operation.aborting:
            raise _Aborted
        loop = asyncio.get_running_loop()
        working = loop.create_task(_checked(step))
        reporting = loop.create_task(self._report(live, index, step))
        live.working = working if step.abortable else None
        try:
            return await working
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise
            if live.operation.aborting:
                raise _Aborted from None
            raise RuntimeError(f"step {step.name} was cancelled from within") from None
        finally:
            live.working = None
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    async def _report(self, live: _Live, index: int, step: Step) -> None:
        while step.progress is not None:
            await self._clock.sleep(PROGRESS_INTERVAL_S)
            live.operation = with_step(live.operation, index, detail=json_ready(step.progress()))
            live.show()

    async def _interrupt(self, live: _Live, actor: str) -> None:
        """Ask the running operation to go back: journaled first, then its step is cancelled."""
        if live.operation.state != "running" or live.operation.aborting:
            return
        await self._save(live, replace(live.operation, aborting=True), "abort asked", actor=actor)
        if live.working is not None:
            live.working.cancel()

    async def _undo_all(self, live: _Live) -> Json | None:
        """Undo, in reverse order, each step that may have left something; the first error, with every one journaled."""
        first: Json | None = None
        for index, step in reversed(list(enumerate(live.plan.steps))):
            if step.undo is None or live.operation.steps[index].state in ("pending", "undone"):
                continue
            await self._save(live, with_step(live.operation, index, state="undoing"), "step undoing", step)
            self._hit(live, step, "undo.before")
            failed: Json | None = None
            try:
                await step.undo()
            except Exception as error:
                failed = error_document(error, step.name)
            self._hit(live, step, "undo.after")
            first = first or failed
            after = with_step(live.operation, index, state="undone" if failed is None else "undo_failed", detail=failed)
            await self._save(live, after, "step undone" if failed is None else "undo failed", step, detail=failed)
            self._hit(live, step, "undo.journaled")
        return first

    async def _end(self, live: _Live, state: OperationState, error: Json | None) -> None:
        ended = replace(live.operation, state=state, finished_ms=self._clock.wall_ms(), error=error)
        if state == "succeeded":
            ended = replace(ended, result=summary(ended))
        await self._save(live, ended, state, detail=error or ended.result)

    # ---- journaling
    async def _save(
        self, live: _Live, operation: Operation, event: str, step: Step | None = None, took_ms: int | None = None,
        detail: Json | None = None, actor: str | None = None,
    ) -> None:
        """The new document: in force at once, so that nothing decides on the old one; shown once it is durable."""
        live.operation = operation
        entry = self._entry(operation, event, actor or operation.actor, step.name if step else None, took_ms, detail)
        await self._journal.save(operation, entry)
        live.show()

    def _entry(
        self, operation: Operation, event: str, actor: str, step: str | None = None, took_ms: int | None = None,
        detail: Json | None = None,
    ) -> HistoryEntry:
        return HistoryEntry(
            self._clock.wall_ms(), operation.id, operation.kind, operation.to, actor, event, step, took_ms, detail
        )

    def _hit(self, live: _Live, step: Step, moment: str) -> None:
        self._failpoints.hit(f"plan.{live.operation.kind}.{step.name}.{moment}")


async def _checked(step: Step) -> Json | None:
    if step.check is not None and await step.check():
        return {"skipped": "its effect is there already"}
    detail = await step.run()
    return None if detail is None else json_ready(detail)


def _check_way_back(operation: Operation) -> None:
    barred = past_return(operation)
    if barred is not None and operation.state != "succeeded":
        raise Refused(
            f"operation {operation.id} is past the point of no return ({barred.name}: {barred.what}): "
            "let it go on, or resume it",
            id=operation.id, step=barred.name,
        )
