"""The storage's notes keep what audits of this pair found, as they said themselves; a restart does not lose it.

What always holds: of each job the last is kept, and the last comparison that found both sites equal; one that ended earlier
takes no later one's place; one that ends in the future, by this site's clock, is refused, and hides none that comes later;
the list of past runs has PAST_MAX at most, each of bounded size; the newest REPORTS_MAX of them may have a report, and no other
run has one. A note has no more members than in the first release, which refuses one that it does not know.
Source: docs/decisions (audits at a barrier, audits on the page).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gateway.audits.running import RunningAudits
from storage.clock import Clock
from storage.engine import StorageEngine
from storage.settings import RUN_TIME, Within
from twinlog.decoding import or_none
from twinlog.errors import InvalidInput, NotFound
from twinlog.wire.audit_report import AuditProgress, SentReport, decode_report, encoded_report

AUDITS = "audits"
PAST = "audits_past"
PAST_MAX = 50
REPORTS_MAX = 20
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
        self.running = RunningAudits(clock)

    def all(self) -> Audits:
        noted = self._engine.meta(AUDITS)
        found = None if noted is None else or_none(_decode, noted)  # a damaged note says nothing; the next one replaces it
        return found or Audits()

    def past(self) -> list[PastRun]:
        """The runs that this site was notified of, in the order in which it was, the newest first."""
        noted = self._engine.meta(PAST)
        found = None if noted is None else or_none(_decode_past, noted)
        return found or []

    def run(self, audit: str) -> PastRun:
        """Raises NotFound for one that is in no note of this site."""
        found = next((one for one in self.past() if one.run.id == audit), None)
        if found is None:  # the last run of a job is kept longer than the list
            found = next((PastRun(one, len(one.tables)) for one in self.all().last.values() if one.id == audit), None)
        if found is None:
            raise NotFound(f"this site was not notified of an audit {audit[:128]!r}; it keeps the last {PAST_MAX}")
        return found

    def report(self, audit: str) -> SentReport | None:
        """Returns the report of a run, with all keys in it. None: it sent none, or newer ones took its place."""
        noted = self._engine.meta(_report_note(audit))
        return None if noted is None else or_none(decode_report, noted)

    async def keep_report(self, audit: str, report: SentReport) -> None:
        """Durable when it returns. Raises NotFound for a run that was not noted, or is too old to have one, InvalidInput."""
        document = encoded_report(report)
        async with self._lock:
            if audit not in {one.run.id for one in self.past()[:REPORTS_MAX]}:
                raise NotFound(
                    f"audit {audit!r} is not among the last {REPORTS_MAX} that this site was notified of, and no other has a "
                    "report: note its end first, with POST /v1/audits"
                )
            await self._engine.set_meta(_report_note(audit), document)

    def progress(self, audit: str, progress: AuditProgress) -> None:
        """One that arrives after the end of its audit says nothing new."""
        if all(one.run.id != audit for one in self.past()):
            self.running.report(audit, progress)

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
            for old in past[REPORTS_MAX:]:
                if self._engine.meta(_report_note(old.run.id)) is not None:
                    await self._engine.set_meta(_report_note(old.run.id), None)
            await self._engine.set_meta(PAST, msgspec.json.encode(past[:PAST_MAX]))
            self.running.ended(audit.id)

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


def _report_note(audit: str) -> str:
    return f"audit_report.{audit}"
