"""One attempt at an operation: its steps forward, or back, each between two journal entries.

What always holds:
- a step runs, or is undone, only after the journal holds that it begins, and the next one only after it holds the end;
- while every step that was begun is abortable, an attempt that fails, or is asked to, undoes what it did in reverse order;
- before the point of no return no step begins after the request has expired, not even while the journal notes that it begins:
  what was asked for is undone, as by an abort;
- an error that comes out of the journal stops the attempt where it stands, as a crash would;
- all attempts at one operation are spans of one trace, with a span for each step: of the caller's trace, or of its own.
Source: protocol.md section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from storage.cancellation import ended
from storage.clock import Clock
from storage.failpoints import Failpoints
from storage.tracing import CURRENT, NO_TRACES, Attribute, Span, Tracer, current
from switchover.operations.document import (
    HistoryEntry,
    Json,
    Operation,
    OperationError,
    OperationState,
    as_found,
    error_of,
    json_ready,
    past_return,
    summary,
    with_step,
)
from switchover.operations.journal import Journal
from switchover.operations.plan import Plan, Step
from twinlog.errors import Refused

_T = TypeVar("_T")
PROGRESS_INTERVAL_S = 0.25


class _Aborted(Exception):
    """An abort was asked for, and there is still a way back."""


class Attempt:
    """The operation as it stands (`operation`) and as it was last shown. `error`: what the step that failed raised."""

    def __init__(
        self, operation: Operation, plan: Plan, journal: Journal, clock: Clock, failpoints: Failpoints,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self.operation = self.shown = operation
        self.error: Exception | None = None
        self._plan = plan
        left_ms = None if operation.expires_ms is None else operation.expires_ms - clock.wall_ms()
        self._until_s = None if left_ms is None else clock.monotonic_s() + left_ms / 1000
        self._journal, self._clock, self._failpoints = journal, clock, failpoints
        self._working: asyncio.Task[Json | None] | None = None  # the step itself, while it may be cancelled
        self._tracer = tracer
        self._span: Span | None = None  # of this attempt
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # of the next change

    # ---- from outside
    def go(self, *, forward: bool, over: Callable[[], None]) -> None:
        """Begin, in a task of its own. `over` is called when the attempt has come to its end, whatever that is."""
        operation, caller = self.operation, current()
        name = f"role change {operation.kind}"
        about: dict[str, Attribute] = {"operation": operation.id, "to": operation.to or "", "forward": forward}
        if caller is not None:
            self._span = caller.child(name, **about)
        else:
            self._span = self._tracer.whole(name, operation.id, **about)
        self.task = asyncio.get_running_loop().create_task(self._drive(self._forward if forward else self._backward, over))

    async def interrupt(self, actor: str) -> None:
        """Ask the running operation to go back: journaled first, then its step is cancelled."""
        if self.operation.state != "running" or self.operation.aborting:
            return
        await self._save(replace(self.operation, aborting=True), "abort asked", actor=actor)
        if self._working is not None:
            self._working.cancel()

    async def stop(self) -> None:
        """At once, as a crash would."""
        if self.task is not None:
            self.task.cancel()
            await ended([self.task])
            self.operation = as_found(self.operation)
            self._show()

    async def changes(self) -> AsyncIterator[Operation]:
        """Yields what is shown now, then each change. A slow reader gets the newest and misses those between."""
        while True:
            changed, shown = self._changed, self.shown
            yield shown
            if shown.state != "running":
                return
            await changed.wait()

    def _show(self) -> None:
        self.shown = self.operation
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- going
    async def _drive(self, way: Callable[[], Awaitable[None]], over: Callable[[], None]) -> None:
        """An error that comes out of the way is the journal's: then it has stopped, as by a crash."""
        try:
            self._failpoints.hit(f"plan.{self.operation.kind}.created")
            await way()
        except Exception as error:
            self.error = error
            self.operation = replace(self.operation, error=error_of(error, None))
        finally:
            over()
            self.operation = as_found(self.operation)
            if self._span is not None:
                failed = self.operation.error
                self._span.end(failed.code if failed is not None else "", outcome=self.operation.state)
            self._show()

    async def _forward(self) -> None:
        """Every step that is not done, then the end; or the way back, if there still is one."""
        for index, step in enumerate(self._plan.steps):
            if self.operation.aborting:
                break
            if self.operation.steps[index].state == "done" or (self.operation.dry_run and not step.dry):
                continue
            error = await self._step(index, step)
            if error is None or self.operation.aborting:
                continue
            self.error = error
            if past_return(self.operation) is None:
                await self._undo_all()
            await self._end("failed", error_of(error, step.name))
            return
        if self.operation.aborting:
            await self._backward()
        else:
            await self._end("succeeded", None)

    def _expired(self, step: Step) -> Refused | None:
        """Says that nobody waits for this step any more: the process was stopped, say, while who asked gave it up. By either
        clock: one stands still while a machine is suspended, the other one can be set."""
        operation = self.operation
        if operation.expires_ms is None or self._until_s is None or step.waits:
            return None
        late_s = max(self._clock.monotonic_s() - self._until_s, (self._clock.wall_ms() - operation.expires_ms) / 1000)
        if late_s < 0:
            return None
        return Refused(f"the request expired {late_s:.0f} s before step {step.name} began: what was begun is undone, ask again",
                       expires_ms=operation.expires_ms)

    async def _backward(self) -> None:
        """Undo everything; what could not be undone leaves the operation failed, to be aborted again."""
        failed = await self._undo_all()
        await self._end("failed" if failed else "aborted", failed)

    async def _step(self, index: int, step: Step) -> Exception | None:
        """One step between its two journal entries; the error that it ended with, or for which it did not begin."""
        is_way_back = past_return(self.operation) is None
        if is_way_back and (late := self._expired(step)) is not None:
            return late
        before, started_ms, started_s = self.operation, self._clock.wall_ms(), self._clock.monotonic_s()
        begun = with_step(self.operation, index, state="running", started_ms=started_ms, finished_ms=None, detail=None)
        await self._save(begun, "step started", step)
        self._hit(step, "before")
        if is_way_back and not self.operation.aborting and (late := self._expired(step)) is not None:
            unbegun = replace(self.operation, steps=before.steps)  # a disk that hung in the journal: nothing of it was done
            await self._save(unbegun, "step not begun", step)
            return late
        detail, failure = None, None
        try:
            detail = await self._work(index, step)
        except Exception as error:
            failure = error
        self._hit(step, "after")
        took_ms = round((self._clock.monotonic_s() - started_s) * 1000)
        state = "done" if failure is None else "interrupted" if isinstance(failure, _Aborted) else "failed"
        if failure is not None and state == "failed":
            detail = msgspec.to_builtins(error_of(failure, step.name))
        after = with_step(self.operation, index, state=state, finished_ms=started_ms + took_ms, detail=detail)
        await self._save(after, f"step {state}", step, took_ms, detail)
        self._hit(step, "journaled")
        return failure

    async def _work(self, index: int, step: Step) -> Json | None:
        """The step in a task of its own, so that an abort can cancel it alone. Raises its error, or _Aborted."""
        if self.operation.aborting:
            raise _Aborted
        loop = asyncio.get_running_loop()
        working = loop.create_task(self._traced(f"step {step.name}", partial(_perform, step)))
        reporting = loop.create_task(self._report(index, step))
        self._working = working if step.abortable else None
        try:
            return await working
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise
            if self.operation.aborting:
                raise _Aborted from None
            raise RuntimeError(f"step {step.name} was cancelled from within") from None
        finally:
            self._working = None
            reporting.cancel()
            await ended([reporting])

    async def _traced(self, name: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """`work`, in a span of its own; what it asks of the other site is below that."""
        if self._span is None:
            return await work()
        span, error = self._span.child(name), "cancelled"
        before = CURRENT.set(span)
        try:
            done = await work()
            error = ""
        except Exception as failure:
            error = error_of(failure, None).code
            raise
        finally:
            CURRENT.reset(before)
            span.end(error)
        return done

    async def _report(self, index: int, step: Step) -> None:
        while step.progress is not None:
            await self._clock.sleep(PROGRESS_INTERVAL_S)
            reached = json_ready(step.progress()) or None
            if reached != self.operation.steps[index].detail:
                self.operation = with_step(self.operation, index, detail=reached)
                self._show()

    async def _undo_all(self) -> OperationError | None:
        """Undo, in reverse order, each step that may have left something; the first error, with every one journaled."""
        first: OperationError | None = None
        for index, step in reversed(list(enumerate(self._plan.steps))):
            if step.undo is None or self.operation.steps[index].state in ("pending", "undone"):
                continue
            await self._save(with_step(self.operation, index, state="undoing"), "step undoing", step)
            self._hit(step, "undo.before")
            failed: OperationError | None = None
            try:
                await self._traced(f"undo {step.name}", step.undo)
            except Exception as error:
                failed = error_of(error, step.name)
            self._hit(step, "undo.after")
            first = first or failed
            detail: Json | None = msgspec.to_builtins(failed)
            after = with_step(self.operation, index, state="undone" if failed is None else "undo_failed", detail=detail)
            await self._save(after, "step undone" if failed is None else "undo failed", step, detail=detail)
            self._hit(step, "undo.journaled")
        return first

    async def _end(self, state: OperationState, error: OperationError | None) -> None:
        ended = replace(self.operation, state=state, finished_ms=self._clock.wall_ms(), error=error)
        if state == "succeeded":
            ended = replace(ended, result=summary(ended))
        await self._save(ended, state, detail=msgspec.to_builtins(error or ended.result))

    # ---- journaling
    async def _save(
        self, operation: Operation, event: str, step: Step | None = None, took_ms: int | None = None,
        detail: Json | None = None, actor: str | None = None,
    ) -> None:
        """The new document: in force at once, so that nothing decides on the old one; shown once it is durable."""
        self.operation = operation
        at_ms, name = self._clock.wall_ms(), step.name if step else None
        entry = history_entry(operation, at_ms, event, actor or operation.actor, name, took_ms, detail)
        await self._journal.save(operation, entry)
        self._show()

    def _hit(self, step: Step, moment: str) -> None:
        self._failpoints.hit(f"plan.{self.operation.kind}.{step.name}.{moment}")


async def _perform(step: Step) -> Json | None:
    detail = await step.run()
    return None if detail is None else json_ready(detail)


def history_entry(
    operation: Operation, wall_ms: int, event: str, actor: str, step: str | None = None, took_ms: int | None = None,
    detail: Json | None = None,
) -> HistoryEntry:
    return HistoryEntry(wall_ms, operation.id, operation.kind, operation.to, actor, event, step, took_ms, detail)
