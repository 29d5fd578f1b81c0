"""The job `repair`: writes the rows that a `compare` found different, through the active, as ordinary writes.

Settings: `audit` (name, its beginning, or folder, of a compare that found differences), `write` (yes: write; without it
nothing is written, and it says what would be), `truth` (the site whose rows are right; without it the active's, where it
was the active at the comparison too, and rows of the kind `damaged` are left).

What always holds: nothing is written without `write=yes`; a row that has changed since the audit is left as it is. Findings
are the rows that still differ when it ends: all of them in a dry run. `repairs` has the end of every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_jobs.audit.gateways import Gateways
from spark_jobs.job import JobProgress, JobRequest, Outcome
from spark_jobs.repair.planning import Left, Write, plan_write
from spark_jobs.repair.writing import PATIENCE, Done, RowsAtActive
from spark_jobs.report.folder import FINDINGS, AuditReport, find_audit
from twinlog import Client
from twinlog.errors import InvalidInput, Refused

ROWS_MAX = 100_000  # more is not a matter of rows
REPAIRS = (
    "table string, key binary, key_text string, kind string, action string, state string, reason string, "
    "version bigint, receipt string"
)
_Line = tuple[Any, ...]


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    """Raises InvalidInput, NotFound, Refused, Unavailable: then nothing was written."""
    audit, truth, writes = _asked(request)
    findings = _findings(audit, request.tables)
    with closing(Gateways({site.name: site for site in request.sites})) as gateways:
        active = gateways.active()
    sides = {str(site["role"]): name for name, site in audit.summary["sites"].items()}
    names = {sides["active"]: "source", sides["standby"]: "peer"}
    plans = [plan_write(finding, active=names[active], truth=names[truth] if truth else None) for finding in findings]
    progress.step(f"{'writing' if writes else 'looking at'} {len(plans):,} rows at site {active}")
    at = next(site for site in request.sites if site.name == active)
    with Client({active: at.url}, PATIENCE, tls=at.tls) as client:
        done = list(_performed(RowsAtActive(client, active), plans, request.folder.name, progress, writes=writes))
    lines = [_line(*each) for each in zip(findings, plans, done, strict=True)]
    states = Counter(each.state for each in done)
    left = [line for line, each in zip(lines, done, strict=True) if each.state != "written"]
    return Outcome(
        good=not left,
        counters={"ROWS": len(lines), **{state.upper().replace(" ", "_"): count for state, count in sorted(states.items())}},
        findings=spark.createDataFrame(left, REPAIRS),
        tables=tuple(sorted({str(finding["table"]) for finding in findings})),
        frames={"repairs": spark.createDataFrame(lines, REPAIRS)},
        remarks=tuple(_remarks(audit, active, done, writes=writes)),
    )


def _asked(request: JobRequest) -> tuple[AuditReport, str | None, bool]:
    options = request.options
    if options.get("write", "no") not in ("yes", "no"):
        raise InvalidInput(f"write={options['write']}: it is yes or no")
    names = [site.name for site in request.sites]
    truth = options.get("truth")
    if truth is not None and truth not in names:
        raise InvalidInput(f"truth={truth}: the sites of this pair are {' and '.join(names)}")
    audit = find_audit(request.folder.parent, options["audit"])
    summary = audit.summary
    if summary["job"] != "compare" or summary["outcome"] == "failed":
        raise Refused(f"{audit.path.name} is a {summary['job']} with the outcome {summary['outcome']}: repair needs a compare")
    if summary["pair"] != request.pair or sorted(summary["sites"]) != sorted(names):
        raise Refused(f"{audit.path.name} is of the pair {summary['pair']}, not {request.pair}")
    return audit, truth, options.get("write") == "yes"


def _findings(audit: AuditReport, tables: Sequence[str]) -> list[Mapping[str, Any]]:
    file = pq.ParquetFile(audit.path / FINDINGS)
    if file.metadata.num_rows > ROWS_MAX:
        raise Refused(
            f"{audit.path.name} found {file.metadata.num_rows:,} rows, and more than {ROWS_MAX:,} are not repaired one by one: "
            "fill the site anew (`twinlog rejoin`)"
        )
    return [row for row in file.read().to_pylist() if not tables or row["table"] in tables]


def _performed(
    rows: RowsAtActive, plans: Sequence[Write | Left], name: str, progress: JobProgress, *, writes: bool
) -> Iterator[Done]:
    """One after the other, each where the last one is known; nothing more once the active is gone."""
    ended: Done | None = None
    for number, plan in enumerate(plans):
        if isinstance(plan, Left):
            yield Done("refused", plan.reason)
        elif ended is not None:
            yield Done("to write", f"not tried: {ended.reason}")
        else:
            done = rows.write(plan, f"{name}-{number}".strip(".")) if writes else rows.look(plan)
            ended = done if done.ends else None
            yield done
        progress.rows(number + 1, len(plans))


def _line(finding: Mapping[str, Any], plan: Write | Left, done: Done) -> _Line:
    action = "" if isinstance(plan, Left) else "write" if plan.method == "PUT" else "delete"
    version = None if done.version is None else (done.version & (1 << 64) - 1) - (1 << 64) * (done.version >> 63)
    return (
        finding["table"], finding["key"], finding["key_text"], finding["kind"], action, done.state, done.reason, version,
        done.receipt,
    )


def _remarks(audit: AuditReport, active: str, done: Sequence[Done], *, writes: bool) -> Iterator[str]:
    yield f"differences of {audit.path.name}, written at site {active}" if writes else f"differences of {audit.path.name}"
    if not writes and any(each.state == "to write" for each in done):
        yield "a dry run: nothing was written; --set write=yes writes what is `to write`"
    if any(each.state == "written" for each in done):
        yield "run compare again: the repair is proved by an audit that finds nothing"
