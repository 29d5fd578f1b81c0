"""One audit: how far it is while it runs; then its result, what it counted, where the differences lie, and the commands.

What always holds: a key is shown to those alone who may read its table, and leads them to its rows; a time that cannot be is
called so, and nothing is computed of it; an audit that has not reported for a while is never shown as one that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from gateway.audits.notes import AuditRun, PastRun
from gateway.audits.running import RunningAudit
from gateway.ui import words
from gateway.ui.views.audit_plots import PATTERNS, BarsPlot, PacePlot, StageRow, bars_plot, pace_plot, stage_rows
from gateway.ui.views.tables import table_path
from twinlog.wire.audit_report import AUDIT_ID, FoundDifference, SentReport, TableCount

LEVELS = {"good": "ok", "bad": "bad", "failed": "warn"}
COULD_NOT = "it could not be done"
_VERDICTS = {
    ("compare", "good"): "both sites are equal", ("compare", "bad"): "the sites differ",
    ("log-audit", "good"): "the logs are sound", ("log-audit", "bad"): "the logs have faults",
    ("repair", "good"): "every row was repaired",
    ("repair", "bad"): "rows are left to repair", ("replay", "good"): "the new storage is made",
    ("reconcile", "good"): "nothing that was put aside is lost", ("reconcile", "bad"): "rows that were put aside are lost",
}
_STATES = {"running": "info", "silent": "warn", "stopped": "off"}
_SETTINGS = {
    "repair": " --set audit=NAME", "reconcile": " --set tail=PATH", "replay": " --set log=FOLDER --set into=FOLDER",
}


def verdict(run: AuditRun) -> str:
    return _VERDICTS.get((run.job, run.outcome), COULD_NOT)


def audit_path(audit: str) -> str:
    """Returns where its page is. Empty: its id cannot stand in a path, so that it has none."""
    return f"/ui/audits/{quote(audit, safe='')}" if AUDIT_ID.fullmatch(audit) else ""


def took(run: AuditRun) -> str:
    took_s = (run.finished_at - run.started_at).total_seconds()
    return words.duration(took_s) if took_s >= 0 else "it ended before it began"


def when(moment: datetime, now_ms: int) -> str:
    """Returns a moment for people, and says so where it has not come yet."""
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}, in the future by this site's clock" if moment.timestamp() * 1000 > now_ms else text


@dataclass(frozen=True, slots=True)
class RunningShown:
    """`done`, `total`: for a bar; `total` 0: nobody knows how much there is."""

    id: str
    path: str
    job: str
    level: str
    says: str
    phase: str
    figures: str
    done: int
    total: int
    elapsed: str
    by: str


def running_shown(one: RunningAudit) -> RunningShown:
    progress = one.progress
    done, total = progress.done or 0, progress.total or 0
    figures = ""
    if progress.done is not None:
        of = f" of {total:,} {progress.unit} ({min(100, 100 * done // total)} %)" if total else f" {progress.unit}"
        figures = f"{done:,}{of}"
    says = {
        "running": "it runs", "stopped": "a signal stopped it, and it left nothing",
        "silent": f"no report since {words.duration(float(round(one.silent_s)))}".replace(".0 s", " s"),
    }[one.state]
    return RunningShown(
        one.id, audit_path(one.id), progress.job, _STATES[one.state], says, progress.phase, figures, min(done, total), total,
        words.duration(float(round(progress.elapsed_s))).replace(".0 s", " s"), progress.by,
    )


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """`key`: as it stands in a path; empty: `why` there is none to show. `link`: to its rows."""

    kind: str
    pattern: int
    table: str
    key: str
    why: str
    link: str
    place: str
    source: str
    peer: str


@dataclass(frozen=True, slots=True)
class AuditedTable:
    """`link`: to the table, where the caller may know it."""

    name: str
    link: str
    level: str
    compared: int
    equal: int
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KindRow:
    name: str
    pattern: int
    count: int
    advice: str


@dataclass(frozen=True, slots=True)
class ReportShown:
    """`kinds`: in the order in which every table and plot of the page has them; `hidden`: keys that the caller may not see."""

    report: SentReport
    kinds: tuple[KindRow, ...]
    tables: tuple[AuditedTable, ...]
    plots: tuple[BarsPlot, ...]
    stages: tuple[StageRow, ...]
    pace: PacePlot | None
    differences: tuple[DifferenceRow, ...]
    hidden: tuple[str, ...]
    has_places: bool
    has_versions: bool


@dataclass(frozen=True, slots=True)
class ResultShown:
    """An audit that has ended, as far as this site knows."""

    id: str
    job: str
    level: str
    headline: str
    started: str
    finished: str
    took: str
    by: str
    barrier: str
    tables: str
    commands: tuple[tuple[str, str], ...]  # what it does, and what to type
    report: ReportShown | None


def result_shown(
    past: PastRun, report: SentReport | None, may_read: Callable[[str], bool], knows: Callable[[str], bool], now_ms: int
) -> ResultShown:
    run = past.run
    count = f": {words.number(run.differences, 'differences')}" if run.outcome != "failed" and run.differences else ""
    names = ", ".join(run.tables) + (f" and {past.tables - len(run.tables):,} more" if past.tables > len(run.tables) else "")
    said = verdict(run)
    return ResultShown(
        run.id, run.job, LEVELS[run.outcome], f"{said[0].upper()}{said[1:]}{count}", when(run.started_at, now_ms),
        when(run.finished_at, now_ms), took(run), run.by or words.UNKNOWN, run.barrier or "none", names or "none",
        _commands(run), None if report is None else _report(report, may_read, knows),
    )


def _commands(run: AuditRun) -> tuple[tuple[str, str], ...]:
    """An id that is no plain name, which somebody may have sent, stands in none."""
    again = f"twinlog audit run {run.job}{_SETTINGS.get(run.job, '')}"
    if not AUDIT_ID.fullmatch(run.id):
        return (("run it again", again),)
    see = ("see all of it where it ran", f"twinlog audit show {run.id}")
    if run.job != "compare" or run.outcome != "bad":
        return see, ("run it again", again)
    repair = f"twinlog audit run repair --set audit={run.id}"
    return (
        see, ("see what a repair would write", repair), ("repair", f"{repair} --set write=yes"),
        ("compare again, as the proof", again),
    )


def _report(report: SentReport, may_read: Callable[[str], bool], knows: Callable[[str], bool]) -> ReportShown:
    order = {kind: place for place, kind in enumerate(report.kinds)}
    counted = [kind for table in report.tables for kind in table.kinds]
    for kind in (*counted, *(kind for places in report.places for kind in places.kinds)):
        order.setdefault(kind, len(order))
    shown = [kind for kind in order if report.kinds.get(kind)]
    kinds = tuple(KindRow(kind, order[kind] % PATTERNS, report.kinds[kind], report.advice.get(kind, "")) for kind in shown)
    rows = tuple(_difference(one, order, may_read) for one in report.differences)
    plots = tuple(plot for places in report.places if (plot := bars_plot(places, order)) is not None)
    hidden = {one.table for one in report.differences if one.key is not None and not may_read(one.table)}
    return ReportShown(
        report, kinds, tuple(_table(one, shown, knows) for one in report.tables), plots, stage_rows(report.stages),
        pace_plot(report.pace), rows, tuple(sorted(hidden)),
        any(row.place for row in rows), any(row.source or row.peer for row in rows),
    )


def _table(one: TableCount, kinds: Sequence[str], knows: Callable[[str], bool]) -> AuditedTable:
    is_equal = one.equal == one.compared and not any(one.kinds.values())
    return AuditedTable(
        one.name, table_path(one.name) if knows(one.name) else "", "ok" if is_equal else "bad", one.compared, one.equal,
        tuple(one.kinds.get(kind, 0) for kind in kinds),
    )


def _difference(one: FoundDifference, order: dict[str, int], may_read: Callable[[str], bool]) -> DifferenceRow:
    is_seen = may_read(one.table)
    key = one.key if one.key is not None and is_seen else ""
    why = "" if key else "" if one.place else f"needs reader:{one.table}" if one.key is not None else "none, or too long"
    link = f"{table_path(one.table)}?{urlencode({'key': key})}" if key and not key.startswith("0x") else ""
    return DifferenceRow(
        one.kind, order.get(one.kind, 0) % PATTERNS, one.table, key or "", why, link, one.place, one.source_version or "",
        one.peer_version or "",
    )
