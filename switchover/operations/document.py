"""The document of an operation (a role change that was asked for) and its steps: what the journal keeps and people follow.

What always holds: a document is never changed, only replaced; a step that may not be given up any more is never undone, and
once one has started, neither is the operation. Source: protocol.md section 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from twinlog.errors import TwinlogError, named

Json = dict[str, Any]
OperationState = Literal["running", "succeeded", "failed", "aborted", "interrupted"]
StepState = Literal["pending", "running", "done", "failed", "interrupted", "undoing", "undone", "undo_failed"]


class StepRecord(msgspec.Struct, frozen=True):
    """One step as journaled. `detail`: what it found or did, its progress while it runs, or its error."""

    name: str
    what: str
    abortable: bool
    state: StepState = "pending"
    started_ms: int | None = None
    finished_ms: int | None = None
    detail: Json | None = None


class OperationError(msgspec.Struct, frozen=True):
    """The error that stopped an operation. `code`: its name. `step`: the step that raised it; None: the journal did."""

    code: str
    message: str
    fields: Json
    step: str | None


class PlannedStep(msgspec.Struct, frozen=True):
    """A step that a dry run did not run."""

    name: str
    what: str
    abortable: bool


class OperationResult(msgspec.Struct, frozen=True):
    """The durations of the steps, in milliseconds; `would`: a dry run's steps that would follow."""

    took_ms: int
    steps_ms: dict[str, int]
    would: list[PlannedStep] | msgspec.UnsetType = msgspec.UNSET


class Operation(msgspec.Struct, frozen=True):
    """One role change. Times are wall milliseconds; within one run of a step they differ by what really passed."""

    id: str
    kind: str
    to: str | None
    options: Json
    actor: str
    created_ms: int
    steps: tuple[StepRecord, ...]
    dry_run: bool = False
    state: OperationState = "running"
    attempt: int = 1  # one more with each resume
    aborting: bool = False  # an abort was asked for: it only goes back from here
    finished_ms: int | None = None
    error: OperationError | None = None
    result: OperationResult | None = None
    expires_ms: int | None = None  # before the point of no return no step begins after it; None: the site began it by itself


class OperationDocument(Operation, frozen=True, kw_only=True):
    """The operation as clients see it, with what may be commanded next. `never_began`: it ended in its preflight."""

    resumable: bool
    never_began: bool
    abortable: bool


class HistoryEntry(msgspec.Struct, frozen=True):
    """One line of the append-only history: who did what to which operation, why, and how long it took."""

    wall_ms: int
    operation: str
    kind: str
    to: str | None
    actor: str
    event: str  # "started", "step done", "abort asked", ...
    step: str | None = None
    took_ms: int | None = None
    detail: Json | None = None


def document(operation: Operation) -> OperationDocument:
    stopped = operation.state in ("failed", "interrupted")
    return OperationDocument(
        *msgspec.structs.astuple(operation), resumable=stopped and not operation.aborting, never_began=never_began(operation),
        abortable=(stopped or operation.state == "running") and past_return(operation) is None,
    )


def with_step(operation: Operation, index: int, **changes: Any) -> Operation:
    """The operation with its step `index` changed."""
    steps = list(operation.steps)
    steps[index] = replace(steps[index], **changes)
    return replace(operation, steps=tuple(steps))


class Lasted(NamedTuple):
    """The time that a role change took, and the part of it in which nobody took writes; None: its steps do not say it."""

    took_ms: int
    unwritten_ms: int | None


def unwritten_ms(steps: Sequence[StepRecord], now_ms: int) -> int | None:
    """Returns for how long nobody took writes, from the drain to the end of the opening. None: the steps do not say it: in a
    failover writes ended before it began."""
    by_name = {step.name: step for step in steps}
    drain, opening = by_name.get("drain"), by_name.get("open")
    if drain is None or drain.started_ms is None or drain.state == "undone":
        return None
    done = opening.finished_ms if opening is not None and opening.state == "done" else None
    return max(0, (now_ms if done is None else done) - drain.started_ms)


def past_return(operation: Operation) -> StepRecord | None:
    """The step that took the operation past the point of no return; None while it can be given up."""
    return next((step for step in operation.steps if not step.abortable and step.state != "pending"), None)


def never_began(operation: Operation) -> bool:
    """It ended in its first step, the preflight, which only looks."""
    return operation.state != "running" and all(step.state == "pending" for step in operation.steps[1:])


def as_found(operation: Operation) -> Operation:
    """A journaled operation that no process runs any more: what the journal calls running was interrupted."""
    if operation.state != "running":
        return operation
    steps = tuple(replace(step, state="interrupted") if step.state == "running" else step for step in operation.steps)
    return replace(operation, state="interrupted", steps=steps)


def taken_up(operation: Operation, checks: frozenset[str]) -> Operation:
    """The operation as a resume begins: at its first step not done, and what stood on that step is to be done again too.

    While there is a way back, the steps named in `checks` run again: they are about the present.
    """
    again = checks if past_return(operation) is None else frozenset[str]()
    steps, all_done = [], True
    for step in operation.steps:
        all_done = all_done and step.state == "done"
        repeat = step.state == "done" and (step.name in again or not all_done)
        steps.append(replace(step, state="pending") if repeat else step)
    return replace(
        operation, state="running", attempt=operation.attempt + 1, steps=tuple(steps), finished_ms=None, error=None
    )


def json_ready(value: Json) -> Json:
    """A copy that any journal can keep: what JSON does not know becomes text."""
    built: Json = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    return built


def error_of(error: Exception, step: str | None) -> OperationError:
    """Returns what the journal keeps of an error. One outside the error tree is a fault of the program, and named as such."""
    if isinstance(error, TwinlogError):
        return OperationError(error.code, error.message, json_ready(error.fields), step)
    return OperationError("internal", named(error), {}, step)


def summary(operation: Operation) -> OperationResult:
    """The result of an operation that went through."""
    took = {step.name: (step.finished_ms or 0) - (step.started_ms or 0) for step in operation.steps if step.state == "done"}
    if not operation.dry_run:
        return OperationResult(sum(took.values()), took)
    left = [PlannedStep(step.name, step.what, step.abortable) for step in operation.steps if step.state == "pending"]
    return OperationResult(sum(took.values()), took, left)
