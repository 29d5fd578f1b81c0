"""Makes what both sites get at the end of an audit: the note of its outcome, and its report.

What always holds: the report has no row and no value, only keys, and fits the bounds of the sites: what does not fit is left
out from the end, and the counts say how many there are; the message of an error that is not twinlog's own, which may quote
rows, stays in the audit's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from spark_jobs.job import TableTally
from twinlog.errors import InvalidInput
from twinlog.wire.audit_report import (
    BUCKETS_MAX,
    DIFFERENCES_MAX,
    KINDS_MAX,
    PACE_MAX,
    PLACES_MAX,
    STAGES_MAX,
    TABLES_MAX,
    VERSION,
    Failure,
    FoundDifference,
    KeyShares,
    Pace,
    SentReport,
    Stage,
    TableCount,
    encoded_report,
)

KEY_CHARS_MAX, PLACE_CHARS_MAX, NAME_CHARS_MAX, KIND_CHARS_MAX = 300, 300, 128, 40
NOT_OWN = "an error of Spark's or of a library: the folder of the audit has its message"
_UNSIGNED = (1 << 64) - 1


def note_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of POST /v1/audits, which is the same in every release: an older site refuses a member more."""
    barrier = summary["barrier"]
    return {
        "id": summary["id"], "job": summary["job"], "barrier": barrier["name"] if barrier else None,
        "started_at": summary["started_at"], "finished_at": summary["finished_at"], "outcome": summary["outcome"],
        "differences": summary["findings"], "tables": summary["tables"], "by": summary["by"],
    }


def report_of(
    summary: Mapping[str, Any], findings: Iterable[Mapping[str, Any]], tallies: Sequence[TableTally],
    stages: Sequence[tuple[str, float]], pace: Sequence[tuple[float, int]], *, is_own_error: bool = True,
) -> SentReport:
    """Returns the report. `findings`: the first of them. `is_own_error`: the error's message is one of twinlog's own."""
    roles = {site.get("role"): name for name, site in summary["sites"].items()}
    counted = sorted(tallies, key=lambda one: (one.equal == one.compared, one.name))  # those that differ first
    worst = sorted((one for one in tallies if one.places), key=lambda one: -sum(one.kinds.values()))
    error = summary["error"]
    made = SentReport(
        version=VERSION, source=roles.get("active", ""), peer=roles.get("standby", ""), tables_count=len(tallies),
        tables=[_count(one) for one in counted[:TABLES_MAX]],
        kinds=_counts(summary["kinds"]), advice={kind[:KIND_CHARS_MAX]: text[:400] for kind, text in _first(summary["advice"])},
        counters=_counts(summary["counters"]), differences_count=summary["findings"],
        differences=[_difference(one) for one in _some(findings, DIFFERENCES_MAX)],
        places=[_places(one) for one in worst[:PLACES_MAX]],
        stages=_stages(stages), pace=_pace(pace),
        remarks=[str(remark)[:300] for remark in summary["remarks"][:20]],
        failure=None if error is None else _failure(error, is_own_error=is_own_error),
    )
    return _fitting(made)


def _some(findings: Iterable[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    return [one for one, _ in zip(findings, range(limit), strict=False)]


def _first(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(found.items())[:KINDS_MAX]


def _counts(found: Mapping[str, int]) -> dict[str, int]:
    return {name[:KIND_CHARS_MAX]: max(0, int(count)) for name, count in _first(found)}


def _count(one: TableTally) -> TableCount:
    return TableCount(one.name[:NAME_CHARS_MAX], one.compared, one.equal, _counts(one.kinds))


def _places(one: TableTally) -> KeyShares:
    return KeyShares(one.name[:NAME_CHARS_MAX], {kind: list(_merged(counts)) for kind, counts in one.places.items()})


def _merged(counts: Sequence[int]) -> list[int]:
    """Returns BUCKETS_MAX equal shares at most."""
    shares = min(len(counts), BUCKETS_MAX)
    merged = [0] * shares
    for place, count in enumerate(counts):
        merged[place * shares // len(counts)] += count
    return merged


def _difference(finding: Mapping[str, Any]) -> FoundDifference:
    key = finding.get("key_text")
    at = [finding.get("site"), finding.get("log"), finding.get("segment"), finding.get("offset")]
    place = "" if at[0] is None else f"{at[1]} of site {at[0]}" + (f", {at[2]} at {at[3]}" if at[2] else "")
    return FoundDifference(
        str(finding["kind"])[:KIND_CHARS_MAX], str(finding.get("table") or "")[:NAME_CHARS_MAX],
        None if key is None or len(key) > KEY_CHARS_MAX else key, place[:PLACE_CHARS_MAX],
        _version(finding.get("source_version")), _version(finding.get("peer_version")),
    )


def _version(version: Any) -> str | None:
    return None if version is None else str(int(version) & _UNSIGNED)


def _stages(stages: Sequence[tuple[str, float]]) -> list[Stage]:
    """Returns the longest of them, in their order, where there are too many."""
    kept = sorted(sorted(range(len(stages)), key=lambda place: -stages[place][1])[:STAGES_MAX])
    return [Stage(stages[place][0][:100], round(max(0.0, stages[place][1]), 3)) for place in kept]


def _pace(pace: Sequence[tuple[float, int]]) -> list[Pace]:
    """Returns PACE_MAX of them at most, the last one always."""
    step = max(1, -(-len(pace) // PACE_MAX))
    kept = list(reversed(list(reversed(pace))[::step]))
    return [Pace(round(max(0.0, at_s), 3), max(0, rows)) for at_s, rows in kept]


def _failure(error: Mapping[str, Any], *, is_own_error: bool) -> Failure:
    return Failure(str(error["code"])[:KIND_CHARS_MAX], str(error["message"])[:500] if is_own_error else NOT_OWN)


def _fitting(report: SentReport) -> SentReport:
    """Leaves out half of the differences, then of the tables, until the sites take it."""
    while True:
        try:
            encoded_report(report)
        except InvalidInput:
            if report.differences:
                report = replace(report, differences=report.differences[: len(report.differences) // 2])
            elif report.tables:
                report = replace(report, tables=report.tables[: len(report.tables) // 2])
            else:
                report = replace(report, places=[], remarks=[], advice={}, pace=[], stages=[])
        else:
            return report
