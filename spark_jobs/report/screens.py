"""The screens of an audit on a terminal: its outcome, and the list of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.report.folder import REPORT, SPARK_LOG, AuditReport, first_findings
from spark_jobs.report.page import verdict

_COLOURS = {"good": "green", "bad": "red", "failed": "yellow"}
# of findings, as far as they are there
_DIGEST_COLUMNS = ("kind", "table", "site", "key_text", "segment", "offset", "seq", "action", "state", "reason", "detail")


def show_audit(console: Console, audit: AuditReport, findings_max: int) -> None:
    """Outcome, counters, findings by kind with what to do, the first `findings_max` findings, and where the rest is."""
    summary = audit.summary
    colour = _COLOURS.get(str(summary["outcome"]), "yellow")
    console.print(f"[bold {colour}]{escape(verdict(summary))}[/]   {escape(summary['id'])}   {summary['took_s']:,.1f} s")
    if summary["outcome"] == "failed":
        error = summary["error"]
        console.print(f"[bold red]{error['code']}[/]: {escape(error['message'])}")
        console.print(f"[dim]Spark's log: {escape(str(audit.path / SPARK_LOG))}[/]", soft_wrap=True)
        return
    barrier = summary["barrier"]
    if barrier:
        console.print(f"[dim]at sequence {barrier['seq']:,} of epoch {barrier['epoch']}; tables {_names(summary['tables'])}[/]")
    figures = Table(box=None, pad_edge=False, show_header=False)
    figures.add_column(style="dim")
    figures.add_column(justify="right")
    for name, count in summary["counters"].items():
        figures.add_row(escape(name), f"{count:,}")
    console.print(figures)
    for remark in summary["remarks"]:
        console.print(f"[yellow]![/] {escape(remark)}")
    for kind, count in summary["kinds"].items():
        console.print(f"[bold red]{count:,} {escape(kind)}[/]  {escape(summary['advice'].get(kind, ''))}")
    _show_findings(console, first_findings(audit.path, findings_max), summary["findings"])
    console.print(f"[dim]{escape(str(audit.path / REPORT))}[/]", soft_wrap=True)


def _show_findings(console: Console, findings: Sequence[Mapping[str, Any]], found: int) -> None:
    if not findings:
        return
    names = [name for name in _DIGEST_COLUMNS if any(row.get(name) not in (None, "") for row in findings)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name.removesuffix("_text"), overflow="fold", justify="right" if name in ("offset", "seq") else "left")
    for row in findings:
        table.add_row(*(escape(_cell(row.get(name))) for name in names))
    console.print()
    console.print(table)
    if found > len(findings):
        console.print(f"[dim]the first {len(findings):,} of {found:,}[/]")


def show_history(console: Console, folder: Path, audits: Sequence[AuditReport], others: Sequence[Path]) -> None:
    if not audits:
        console.print(f"No audit in {escape(str(folder))} yet: `twinlog audit run compare --config FILE` makes one.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("audit", "outcome", "findings", "took", "tables"):
        table.add_column(title, justify="right" if title in ("findings", "took") else "left", overflow="fold")
    for audit in audits:
        summary = audit.summary
        colour = _COLOURS.get(str(summary["outcome"]), "yellow")
        table.add_row(
            escape(audit.path.name), f"[{colour}]{escape(str(summary['outcome']))}[/]", f"{summary['findings']:,}",
            f"{summary['took_s']:,.1f} s", escape(_names(summary["tables"])),
        )
    if audits:
        console.print(table)
    for path in others:
        console.print(f"[yellow]![/] {escape(path.name)} is half-written or cannot be read: no audit")


def _names(tables: Sequence[str]) -> str:
    shown = ", ".join(tables[:4])
    return f"{shown} and {len(tables) - 4} more" if len(tables) > 4 else shown or "none"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
