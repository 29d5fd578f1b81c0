"""An operation as the page draws it: steps with their times, the point of no return as a line, and the time without writes.

What always holds: times are those of the journal; while a step runs its end is now, by the clock of the site that runs it; the
line stands where the product draws it, before the first step that cannot be given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.cli.screens import detail_words
from gateway.ui import words
from switchover.operations.document import Operation, OperationDocument, StepRecord, unwritten_ms

_LEVELS = {
    "done": "ok", "running": "info", "failed": "bad", "interrupted": "warn", "undoing": "info", "undone": "warn",
    "undo_failed": "bad", "pending": "off",
}
STATE_LEVELS = {"succeeded": "ok", "running": "info", "failed": "bad", "aborted": "warn", "interrupted": "warn"}
STRIP = 1000  # the width of the strip of times
_LEAST = 4.0  # so that a short step is seen


@dataclass(frozen=True, slots=True)
class StepRow:
    """`begin` and `length` of STRIP; `crosses`: the point of no return lies before it."""

    number: int
    name: str
    level: str
    state: str
    says: str
    took: str
    begin: float
    length: float
    crosses: bool


@dataclass(frozen=True, slots=True)
class PlanShown:
    """`unwritten`: for how long no site took writes, as far as the steps say it. `progress`: steps done, and of how many."""

    id: str
    site: str
    kind: str
    title: str
    level: str
    state: str
    actor: str
    reason: str
    started: str
    took: str
    unwritten: str
    is_counting: bool
    steps: tuple[StepRow, ...]
    progress: tuple[int, int]
    error: str
    resumable: bool
    abortable: bool
    is_past_return: bool
    would: tuple[str, ...]


def plan_shown(site: str, operation: OperationDocument, now_ms: int) -> PlanShown:
    """`now_ms`: by the clock of `site`, where it runs."""
    running = operation.state == "running"
    end_ms = now_ms if running else operation.finished_ms or operation.created_ms
    span_ms = max(1, end_ms - operation.created_ms)
    to = {"switchover": "to site", "failover": "to site", "rejoin": "of site", "skip": "at site"}.get(operation.kind, "at site")
    title = f"{operation.kind} {to} {operation.to or site}"
    rows, crossed = [], False
    for number, step in enumerate(operation.steps, start=1):
        crosses = not step.abortable and not crossed
        crossed = crossed or crosses
        rows.append(_row(number, step, operation.created_ms, span_ms, now_ms, crosses=crosses and number > 1))
    without_ms = unwritten_ms(operation.steps, now_ms)
    would = operation.result.would if operation.result is not None else ()
    return PlanShown(
        id=operation.id, site=site, kind=operation.kind, title=f"dry run of {title}" if operation.dry_run else title,
        level=STATE_LEVELS[operation.state], state="aborting" if running and operation.aborting else operation.state,
        actor=operation.actor, reason=str(operation.options.get("reason", "")), started=words.moment(operation.created_ms),
        took=words.duration((end_ms - operation.created_ms) / 1000),
        unwritten=_unwritten(operation.kind, without_ms),
        is_counting=running and without_ms is not None and not _has_opened(operation.steps), steps=tuple(rows),
        progress=(sum(step.state == "done" for step in operation.steps), len(operation.steps)),
        error=_error(operation), resumable=operation.resumable, abortable=operation.abortable,
        is_past_return=any(not step.abortable and step.state != "pending" for step in operation.steps),
        would=tuple(f"{step.name}: {step.what}" for step in would or ()),
    )


def _unwritten(kind: str, without_ms: int | None) -> str:
    """Empty for a change that does not stop writes."""
    if kind not in ("switchover", "failover"):
        return ""
    if kind == "failover":
        return "since before it began"
    return "writes continue" if without_ms is None else words.duration(without_ms / 1000)


def _row(number: int, step: StepRecord, created_ms: int, span_ms: int, now_ms: int, *, crosses: bool) -> StepRow:
    began, ended = step.started_ms, step.finished_ms
    if began is not None and ended is None:
        ended = now_ms
    begin = length = 0.0
    took = ""
    if began is not None and ended is not None:
        begin = min(STRIP - _LEAST, max(0.0, STRIP * (began - created_ms) / span_ms))
        length = min(STRIP - begin, max(_LEAST, STRIP * (ended - began) / span_ms))
        took = words.duration(max(0, ended - began) / 1000)
    says = detail_words(step.detail) if step.detail else step.what
    return StepRow(
        number, step.name, _LEVELS[step.state], step.state.replace("_", " "), says, took, round(begin, 1), round(length, 1),
        crosses,
    )


def _error(operation: OperationDocument) -> str:
    error = operation.error
    return "" if error is None else f"{error.code}{f' at {error.step}' if error.step else ''}: {error.message}"


def _has_opened(steps: Sequence[StepRecord]) -> bool:
    return any(step.name == "open" and step.state == "done" for step in steps)


def now_of(operation: Operation, clock_ms: int | None) -> int:
    """Returns the clock by which a step that runs is measured: that of its site, or the last moment that the journal knows."""
    known = [at for step in operation.steps for at in (step.started_ms, step.finished_ms) if at is not None]
    return clock_ms if clock_ms is not None else max(known, default=operation.created_ms)
