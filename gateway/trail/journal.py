"""The journal of role changes with the audit trail before it: each change is in the trail before it is in the journal.

What always holds: an operation does not begin, and none of its steps after one that ended, before the trail's line is on the
disk or has failed to get there by its deadline; a trail that cannot be written stops no role change (docs/decisions); dry runs,
which change nothing and which anybody may ask for a million of, leave no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.trail.entry import Outcome, Who
from gateway.trail.events import ABORT, BEGUN, ENDED, RESUMED, STEP
from gateway.trail.trail import Placed, Trail
from gateway.trail.who import ASKED_BY
from switchover.operations.document import HistoryEntry, Operation, never_began
from switchover.operations.journal import Journal
from twinlog.errors import TwinlogError

_OF_STEPS: Mapping[str, Outcome] = {
    "step done": "done", "step failed": "failed", "step interrupted": "unknown", "step undone": "undone",
    "undo failed": "failed", "step not begun": "refused",
}
_ENDS: Mapping[str, Outcome] = {"succeeded": "done", "failed": "failed", "aborted": "undone"}


class TrailJournal:
    """Implements Journal, by `journal` and `trail`."""

    def __init__(self, journal: Journal, trail: Trail) -> None:
        self._journal, self._trail = journal, trail
        self._begun: Placed | None = None  # of the operation that runs
        self._by: tuple[str, Who] = ("", trail.this_site)  # who asked for which operation last

    async def create(self, operation: Operation, entry: HistoryEntry) -> None:
        if operation.dry_run:
            await self._journal.create(operation, entry)
            return
        who = self._asked(operation)
        self._begun = await self._trail.write(
            BEGUN, who, "begun", {**_about(operation), "options": operation.options}, operation=operation.id
        )
        try:
            await self._journal.create(operation, entry)
        except TwinlogError as error:
            self._trail.put(
                ENDED, who, "failed", {**_about(operation), "code": error.code}, operation=operation.id, of=self._begun
            )
            raise

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        if not operation.dry_run:
            await self._note(operation, entry)
        await self._journal.save(operation, entry)

    async def load(self, operation_id: str) -> Operation:
        return await self._journal.load(operation_id)

    async def operations(self, limit: int) -> list[Operation]:
        return await self._journal.operations(limit)

    async def history(self, limit: int) -> list[HistoryEntry]:
        return await self._journal.history(limit)

    async def close(self) -> None:
        await self._journal.close()

    # ---- lines
    async def _note(self, operation: Operation, entry: HistoryEntry) -> None:
        write, about, event = self._trail.write, _about(operation), entry.event
        if event in _OF_STEPS:
            said = {"step": entry.step, **_why(entry.detail)}
            await write(STEP, self._who(operation), _OF_STEPS[event], said, operation=operation.id, of=self._begun)
        elif event == "resumed":
            what = {**about, "options": operation.options, "attempt": operation.attempt}
            self._begun = await write(RESUMED, self._asked(operation), "begun", what, operation=operation.id)
        elif event == "abort asked":
            await write(ABORT, self._asked(operation), "begun", about, operation=operation.id, of=self._begun)
        elif event in _ENDS:
            refused = event == "failed" and never_began(operation)
            outcome: Outcome = "refused" if refused else _ENDS[event]
            what = {**about, "state": event, **_why(entry.detail)}
            await write(ENDED, self._who(operation), outcome, what, operation=operation.id, of=self._begun)

    def _asked(self, operation: Operation) -> Who:
        """Returns who asks for this now: whoever's request the task serves, or the site itself."""
        who = ASKED_BY.get() or self._trail.this_site
        self._by = operation.id, who
        return who

    def _who(self, operation: Operation) -> Who:
        return self._by[1] if self._by[0] == operation.id else self._trail.this_site


def _about(operation: Operation) -> dict[str, Any]:
    return {"kind": operation.kind, **({"to": operation.to} if operation.to else {})}


def _why(detail: dict[str, Any] | None) -> dict[str, Any]:
    """The error in a history entry, if that is what its detail is."""
    if detail is None or "message" not in detail:
        return {}
    return {"code": detail.get("code"), "why": str(detail["message"])[:300]}
