"""The view *Audits*: the runs that this site was notified of, and the snapshots that are kept for audits.

What always holds: what a gateway was not notified of is not known here; each site keeps its own notes. All differences, with
their rows, are in the folder that an audit wrote, on the machine where it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.audits.notes import AuditRun, Audits, PastRun
from gateway.audits.running import RunningAudit
from gateway.service.documents import BarrierList
from gateway.ui import words
from gateway.ui.views.audit import LEVELS, RunningShown, audit_path, running_shown, took, verdict, when


@dataclass(frozen=True, slots=True)
class AuditRow:
    """`path`: of its page; empty: it has none."""

    id: str
    path: str
    job: str
    level: str
    verdict: str
    differences: int | None  # None: it could not be done, so nobody knows
    tables: str
    finished: str
    took: str
    by: str
    barrier: str


@dataclass(frozen=True, slots=True)
class BarrierRow:
    name: str
    seq: int
    epoch: int
    taken: str
    expires: str


@dataclass(frozen=True, slots=True)
class AuditsPage:
    """`level`, `headline`: by the newest comparison that could be done, never by an older one that was good."""

    rows: tuple[AuditRow, ...]
    running: tuple[RunningShown, ...]
    level: str
    headline: str
    barriers: tuple[BarrierRow, ...]


def audits_page(
    audits: Audits, past: Sequence[PastRun], running: Sequence[RunningAudit], barriers: BarrierList, now_ms: int
) -> AuditsPage:
    """The last run of a job stands in the list also where a release before it, which kept no list, was notified of it."""
    runs = {one.id: (one, len(one.tables)) for one in audits.last.values()}
    runs |= {one.run.id: (one.run, one.tables) for one in past}
    rows = tuple(_row(*one, now_ms) for one in sorted(runs.values(), key=lambda one: one[0].finished_at, reverse=True))
    level, headline = _headline(audits, rows, now_ms)
    held = tuple(BarrierRow(one.name, one.seq, one.epoch, one.taken_at, one.expires_at) for one in barriers.barriers)
    return AuditsPage(rows, tuple(map(running_shown, running)), level, headline, held)


def _headline(audits: Audits, rows: Sequence[AuditRow], now_ms: int) -> tuple[str, str]:
    newest = next((row for row in rows if row.job == "compare" and row.differences is not None), None)
    if newest is not None and newest.level != "ok":
        return "bad", f"The sites differ: {words.number(newest.differences, 'differences')}, by {newest.id}"
    good = audits.last_good_compare
    if good is None:
        return "warn", "No audit has found both sites equal yet, as far as this site knows"
    ago = words.duration(max(0.0, now_ms / 1000 - good.finished_at.timestamp()))
    return "ok", f"Both sites were found equal {ago} ago, by {good.id}"


def _row(one: AuditRun, tables_count: int, now_ms: int) -> AuditRow:
    tables = ", ".join(one.tables[:8]) + (f" and {tables_count - 8} more" if tables_count > 8 else "")
    return AuditRow(
        one.id, audit_path(one.id), one.job, LEVELS[one.outcome], verdict(one),
        None if one.outcome == "failed" else one.differences, tables, when(one.finished_at, now_ms), took(one), one.by,
        one.barrier or "",
    )
