"""A role change as a plan: named, idempotent steps, some of which can be undone.

What always holds: a step may be run again after a crash in the middle of it; one that cannot be taken back is not abortable.
Source: protocol.md section 8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from switchover.operations.document import Json


@dataclass(frozen=True)
class Step:
    """One idempotent step. `run` returns what is worth knowing of it, as JSON."""

    name: str
    run: Callable[[], Awaitable[Json | None]]
    what: str  # in words, for people
    abortable: bool = False  # may be cancelled while it runs, and the operation given up after it
    undo: Callable[[], Awaitable[object]] | None = None  # takes the effect back, whole or half; absent: it left none
    dry: bool = False  # changes nothing: a dry run runs it too, and a resume runs it again
    progress: Callable[[], Json] | None = None  # asked from time to time while it runs


@dataclass(frozen=True)
class Plan:
    """The steps of one role change, in order. Made anew for each attempt: it may keep what its steps tell each other."""

    kind: str
    steps: Sequence[Step]


PlanMaker = Callable[[str, "str | None", Json], Plan]
