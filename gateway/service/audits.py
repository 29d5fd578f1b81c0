"""The storage's notes keep what audits of this pair found, as they said themselves; a restart does not lose it.

What always holds: of each job the last is kept, and the last comparison that found both sites equal; one that ended earlier
takes no later one's place; one that ends in the future, by this site's clock, is refused, and hides none that comes later;
the list of past runs has PAST_MAX at most, each of bounded size.
Source: docs/decisions (audits at a barrier).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from storage.clock import Clock
from storage.engine import StorageEngine
from storage.settings import RUN_TIME, Within
from twinlog.decoding import or_none
from twinlog.errors import InvalidInput

AUDITS = "audits"
PAST = "audits_past"
PAST_MAX = 50
PAST_TABLES_MAX = 8  # names of tables that the list keeps of a run
PROVING_JOB = "compare"
SKEW_MAX_S = 60.0  # how far the clock of whoever ran it may be ahead of this site's
Text = Annotated[str, Meta(min_length=1, max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """`recent_s`: an older audit is a warning before a role change; 0: none is."""

    recent_s: Annotated[float, Within(0, 31_536_000), RUN_TIME] = 604_800.0


class AuditBody(Struct, forbid_unknown_fields=True, frozen=True):
    """One run of a job. `differences` is how many it found. `outcome` is `good` only when it looked at all and found none."""

    id: Text
    job: Literal["compare", "log-audit", "repair", "replay", "reconcile"]
    started_at: Moment
    finished_at: Moment
    outcome: Literal["good", "bad", "failed"]
    barrier: Annotated[str, Meta(max_length=63)] | None = None
    differences: Annotated[int, Meta(ge=0)] = 0
    tables: Annotated[list[Text], Meta(max_length=10_000)] = []
    by: Annotated[str, Meta(max_length=200)] = ""


class AuditRun(AuditBody, frozen=True):
    """A run as it is kept and shown: every member is there."""


class Audits(Struct):
    """The last run of each job, and the last comparison that found both sites equal."""

    last: dict[str, AuditRun] = {}
    last_good_compare: AuditRun | None = None


class PastRun(Struct, frozen=True):
    """A run in the list: `run` names PAST_TABLES_MAX tables at most, of `tables`."""

    run: AuditRun
    tables: int


_decode = msgspec.json.Decoder(Audits).decode
_decode_past = msgspec.json.Decoder(list[PastRun]).decode


class AuditNotes:
    def __init__(self, engine: StorageEngine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._lock = asyncio.Lock()

    def all(self) -> Audits:
        noted = self._engine.meta(AUDITS)
        found = None if noted is None else or_none(_decode, noted)  # a damaged note says nothing; the next one replaces it
        return found or Audits()

    def past(self) -> list[PastRun]:
        """The runs that this site was notified of, in the order in which it was, the newest first."""
        noted = self._engine.meta(PAST)
        found = None if noted is None else or_none(_decode_past, noted)
        return found or []

    async def note(self, audit: AuditRun) -> None:
        """Durable when it returns. Raises InvalidInput when it ends in the future, by this site's clock."""
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        if self._ahead_s(audit) > SKEW_MAX_S:
            raise InvalidInput(
                f"finished_at is {audit.finished_at.isoformat()}, and it is {now.isoformat(timespec='seconds')} at this site: "
                "an audit is noted after its end; set the clock of the machine that ran it", member="finished_at",
            )
        async with self._lock:
            audits = self.all()
            if self._is_later(audit, audits.last.get(audit.job)):
                audits.last[audit.job] = audit
            proves = audit.job == PROVING_JOB and audit.outcome == "good"
            if proves and self._is_later(audit, audits.last_good_compare):
                audits.last_good_compare = audit
            await self._engine.set_meta(AUDITS, msgspec.json.encode(audits))
            short = PastRun(replace(audit, tables=audit.tables[:PAST_TABLES_MAX]), len(audit.tables))
            past = [short, *(one for one in self.past() if one.run.id != audit.id)]  # a run that is notified twice is one
            await self._engine.set_meta(PAST, msgspec.json.encode(past[:PAST_MAX]))

    def last_good_ms(self) -> int | None:
        """Returns when both sites were last found equal, in milliseconds since 1970. None: never, as far as is known."""
        good = self.all().last_good_compare
        return None if good is None or self._ahead_s(good) > SKEW_MAX_S else round(good.finished_at.timestamp() * 1000)

    def figures(self) -> dict[str, float | dict[tuple[str, ...], float]]:
        """Returns figures for metrics; nothing where nothing is known."""
        last, good_ms = self.all().last, self.last_good_ms()
        found: dict[str, float | dict[tuple[str, ...], float]] = {}
        if last:
            found |= {
                "audit_differences": {(job,): float(run.differences) for job, run in last.items() if run.outcome != "failed"},
                "audit_good": {(job,): float(run.outcome == "good") for job, run in last.items()},
                "audit_timestamp_seconds": {(job,): run.finished_at.timestamp() for job, run in last.items()},
            }
        if good_ms is not None:
            age_s = (self._clock.wall_ms() - good_ms) / 1000
            found |= {"last_good_audit_timestamp_seconds": good_ms / 1000, "last_good_audit_age_seconds": max(0.0, age_s)}
        return found

    def _is_later(self, audit: AuditRun, other: AuditRun | None) -> bool:
        """A note that still ends in the future, by however little, gives way to whatever arrives after it: else a forged one
        would hide a true one for SKEW_MAX_S, and for as long as this site's clock was wrong."""
        return other is None or audit.finished_at >= other.finished_at or self._ahead_s(other) > 0

    def _ahead_s(self, audit: AuditRun) -> float:
        """Returns by how much its end lies ahead of this site's clock."""
        return audit.finished_at.timestamp() - self._clock.wall_ms() / 1000
