"""The page of an audit: one HTML file that needs nothing beside it, for a person who asks what was found and what to do.

What always holds: every text that comes from data or from a site is escaped; no script, no address that is fetched; at most
ROWS_MAX findings are shown, with the way to all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from spark_jobs.job import Chart
from spark_jobs.report.folder import FINDINGS, SPARK_LOG, SUMMARY
from spark_jobs.report.plots import svg
from twinlog.decoding import OBJECT, or_none

ROWS_MAX = 200
CELL_CHARS_MAX = 600
_PAIRED = ("source_row", "peer_row")  # JSON of the same row on both sites: what differs in it is marked
_LONG = ("key_text", "detail")
_VERDICTS = {
    "compare": ("Both sites are equal", "The sites differ"),
    "reconcile": ("Nothing that was put aside is lost", "Rows that were put aside are lost"),
    "replay": ("The new storage is made", ""),
    "log-audit": ("The logs are sound", "The logs have faults"),
    "repair": ("No row is left to repair", "Rows are left to repair"),
}


def verdict(summary: Mapping[str, Any]) -> str:
    """The outcome in a few words."""
    good, bad = _VERDICTS.get(str(summary["job"]), ("Nothing to repair", "Something to repair"))
    return {"good": good, "bad": bad}.get(str(summary["outcome"]), "The audit could not be done")


def render(summary: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], charts: Sequence[Chart]) -> str:
    """The page. `findings`: the first of them; how many there are stands in the summary."""
    title = f"{verdict(summary)}: {summary['job']} of {summary['pair']}"
    parts = [
        _head(summary), _counters(summary["counters"]), _remarks(summary["remarks"]), _kinds(summary),
        *(_chart(chart, number) for number, chart in enumerate(charts)), _table(findings, summary["findings"]),
        _facts(summary), _files(summary),
    ]
    return (
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part) + "\n</main></body></html>\n"
    )


def _head(summary: Mapping[str, Any]) -> str:
    barrier = summary["barrier"]
    at = f"at sequence {barrier['seq']:,} of epoch {barrier['epoch']}" if barrier else "of the logs as they are"
    when = _moment(summary["started_at"])
    mark = "good" if summary["outcome"] == "good" else "bad"
    return (
        f"<header class=\"{mark}\"><p class=\"kicker\">twinlog {escape(summary['job'])} · pair {escape(summary['pair'])}</p>"
        f"<h1>{escape(verdict(summary))}</h1>"
        f"<p>{_many(summary['findings'], 'finding')}, {escape(at)}, {escape(when)}, in {summary['took_s']:,.1f} s.</p></header>"
    )


def _counters(counters: Mapping[str, int]) -> str:
    if not counters:
        return ""
    cards = "".join(f"<div><dt>{escape(name)}</dt><dd>{count:,}</dd></div>" for name, count in counters.items())
    return f"<section><h2>Counters</h2><dl class=\"cards\">{cards}</dl></section>"


def _remarks(remarks: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return f"<section><h2>To know</h2><ul>{lines}</ul></section>" if lines else ""


def _kinds(summary: Mapping[str, Any]) -> str:
    """Each kind of finding, how many, and what to do about it."""
    if not summary["kinds"]:
        return ""
    lines = "".join(
        f"<div><dt>{escape(kind)} <span class=\"count\">{count:,}</span></dt>"
        f"<dd>{escape(summary['advice'].get(kind, ''))}</dd></div>"
        for kind, count in summary["kinds"].items()
    )
    return f"<section><h2>What it means, and what to do</h2><dl class=\"kinds\">{lines}</dl></section>"


def _chart(chart: Chart, number: int) -> str:
    if not any(series.y for series in chart.series) and not chart.spans:
        return ""
    note = f"<p class=\"note\">{escape(chart.note)}</p>" if chart.note else ""
    drawn = f"<div class=\"wide\" role=\"img\" aria-label=\"{escape(chart.title)}\">{svg(chart, number)}</div>"
    return f"<section><h2>{escape(chart.title)}</h2>{note}{drawn}</section>"


def _table(findings: Sequence[Mapping[str, Any]], found: int) -> str:
    if not findings:
        return ""
    rows = [dict(row) for row in findings[:ROWS_MAX]]
    hidden = {name for name in rows[0] if all(row.get(name) in (None, "") for row in rows)}
    if "key_text" in rows[0]:
        hidden.add("key")  # the same for a machine: it stays in the file
    names = [name for name in rows[0] if name not in hidden]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(name, row) for name in names)}</tr>" for row in rows)
    more = (
        f"<p class=\"note\">The first {len(rows):,} of {found:,}; all of them are in <code>{FINDINGS}</code> beside this"
        " page.</p>" if found > len(rows) else f"<p class=\"note\">Also in <code>{FINDINGS}</code> beside this page.</p>"
    )
    return (
        f"<section><h2>Findings</h2>{more}<div class=\"wide\"><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _cell(name: str, row: Mapping[str, Any]) -> str:
    value = row.get(name)
    if value is None:
        return "<td class=\"none\">-</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int):
        return f"<td class=\"number\">{value:,}</td>"
    if name in _PAIRED:
        return f"<td class=\"row\">{_row(row, name)}</td>"
    text = value.hex() if isinstance(value, bytes) else str(value)
    kind = "key" if name in _LONG else ""
    return f"<td class=\"{kind}\">{escape(_cut(text))}</td>"


def _row(row: Mapping[str, Any], name: str) -> str:
    """A row's columns, those that differ on the other side marked and first."""
    here, there = (_columns(row.get(each)) for each in (name, _PAIRED[1 - _PAIRED.index(name)]))
    if here is None:
        return escape(_cut(str(row[name])))
    differing = [column for column in here if there is not None and there.get(column, here) != here[column]]
    shown = [f"<mark>{escape(column)} {escape(_cut(_value(here[column])))}</mark>" for column in differing]
    same = ", ".join(f"{column} {_value(here[column])}" for column in here if column not in differing)
    return "<br>".join([*shown, f"<span class=\"same\">{escape(_cut(same))}</span>"] if same else shown)


def _columns(text: Any) -> dict[str, Any] | None:
    return or_none(OBJECT, text)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"


def _facts(summary: Mapping[str, Any]) -> str:
    barrier = summary["barrier"]
    facts = [
        ("Audit", summary["id"]), ("Started", _moment(summary["started_at"])), ("Finished", _moment(summary["finished_at"])),
        ("Tables", ", ".join(summary["tables"]) or "none"),
        ("Barrier", f"{barrier['name']}, epoch {barrier['epoch']}, sequence {barrier['seq']:,}" if barrier else "none"),
        *((f"Site {name}", _site(site)) for name, site in summary["sites"].items()),
        ("Spark", f"{summary['spark']['version']} on {summary['spark']['master']}"), ("By", summary["by"]),
    ]
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts)
    return f"<section><h2>How it was made</h2><div class=\"wide\"><table class=\"facts\">{lines}</table></div></section>"


def _site(site: Mapping[str, Any]) -> str:
    return ", ".join(str(site[name]) for name in ("role", "url", "engine", "place") if site.get(name))


def _files(summary: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<tr><td><code>{escape(file['name'])}</code></td><td class=\"number\">{file['rows']:,} rows</td>"
        f"<td class=\"number\">{file['bytes']:,} bytes</td></tr>" for file in summary["files"]
    )
    return (
        "<section><h2>Files beside this page</h2><p class=\"note\">Parquet opens with <code>pandas.read_parquet</code>, "
        f"<code>spark.read.parquet</code>, DuckDB. <code>{SUMMARY}</code> is for programs, <code>{SPARK_LOG}</code> is what "
        f"Spark said.</p><div class=\"wide\"><table class=\"facts\">{lines}</table></div></section>"
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s") if count else f"no {noun}s"


def _moment(text: str) -> str:
    return text.replace("T", " ").partition(".")[0].removesuffix("Z").removesuffix("+00:00") + " UTC"


_STYLE = """
:root { --ink: #1c2430; --soft: #5c6878; --line: #d9dee6; --paper: #f5f7fa; --card: #ffffff; --good: #1f8a5b; --bad: #c23b3b;
  --mark: #ffe3b0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --soft: #9aa7b8; --line: #313b49; --paper: #12171e; --card: #1a212b; --good: #49c58d; --bad: #ff7b74;
    --mark: #5c4310; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 16px; }
header, section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 18px;
  margin-bottom: 14px; }
header { border-left: 6px solid var(--bad); }
header.good { border-left-color: var(--good); }
header h1 { margin: 0; font-size: 1.7rem; line-height: 1.2; color: var(--bad); }
header.good h1 { color: var(--good); }
header p { margin: 6px 0 0; }
.kicker { margin: 0 0 2px; color: var(--soft); font-size: .85rem; }
h2 { font-size: 1.05rem; margin: 0 0 8px; }
.note, .none, .same { color: var(--soft); }
.note { margin: 0 0 8px; font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(168px, 1fr)); gap: 10px; margin: 0; }
.cards div { border: 1px solid var(--line); border-radius: 6px; padding: 8px 10px; }
.cards dt { color: var(--soft); font-size: .72rem; letter-spacing: .03em; overflow-wrap: anywhere; }
.cards dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.kinds { margin: 0; }
.kinds div { margin-bottom: 8px; }
.kinds dt { font-weight: 600; }
.kinds dd { margin: 0; }
.count { color: var(--bad); margin-left: 4px; }
.wide { overflow-x: auto; }
.wide > svg { display: block; width: 100%; min-width: 540px; max-width: 900px; height: auto; }
table { border-collapse: collapse; font-size: .86rem; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 70px; }
td.key { min-width: 190px; }
td.row { min-width: 240px; }
td.number { text-align: right; padding-right: 14px; font-variant-numeric: tabular-nums; white-space: nowrap; }
table.facts { width: auto; }
table.facts th { color: var(--soft); font-weight: 400; white-space: nowrap; padding-right: 18px; }
mark { background: var(--mark); color: inherit; padding: 0 3px; border-radius: 3px; }
code { font: .9em ui-monospace, monospace; }
ul { margin: 0; padding-left: 20px; }
@media print { body { background: none; } header, section { break-inside: avoid; border-color: #bbb; } }
""".strip()
