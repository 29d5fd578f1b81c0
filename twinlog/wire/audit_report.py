"""The documents that an audit sends to a site besides the note of its end: its progress, and its report.

What always holds: a report has no row and no value; the keys in it, which are part of rows, are shown to those alone who may
read their table; every member has a bound, and the whole has one. A member that this release does not know is left out, so
that a site takes the report of a newer release; a site of an older one has no route for it, and keeps the note alone.
Source: docs/decisions (audits on the page).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from twinlog.errors import InvalidInput

REPORT_BYTES_MAX = 32_768  # a site keeps those of REPORTS_MAX runs beside notes that role changes write
TABLES_MAX, DIFFERENCES_MAX, PLACES_MAX, BUCKETS_MAX, STAGES_MAX, PACE_MAX, KINDS_MAX = 100, 100, 8, 50, 32, 60, 24
VERSION = 1

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Kind = Annotated[str, Meta(min_length=1, max_length=40)]
Version = Annotated[str, Meta(max_length=20, pattern=r"^[0-9]*$")]
AUDIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # of one that has a report: it stands in a path


class TableCount(Struct, frozen=True):
    """The rows of a table: those that were compared, those that are the same at both sites, and the others by kind."""

    name: Name
    compared: Count
    equal: Count
    kinds: Annotated[dict[Kind, Count], Meta(max_length=KINDS_MAX)]


class KeyShares(Struct, frozen=True):
    """The places of a table's differences: of each kind a count for each equal share of its ranges of keys, in their order."""

    table: Name
    kinds: Annotated[dict[Kind, Annotated[list[Count], Meta(max_length=BUCKETS_MAX)]], Meta(max_length=KINDS_MAX)]


class FoundDifference(Struct, frozen=True):
    """One of the first differences. `key` is as a path has it; null: it is of no row, is too long, or the caller may not read
    its table. `place`: of a fault in a log. Versions are decimal text; null: that site has no such row."""

    kind: Kind
    table: Annotated[str, Meta(max_length=128)]
    key: Annotated[str, Meta(max_length=300)] | None
    place: Annotated[str, Meta(max_length=300)]
    source_version: Version | None
    peer_version: Version | None


class Stage(Struct, frozen=True):
    """A part of the work, and how long it took."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    took_s: Seconds


class Pace(Struct, frozen=True):
    """So many rows had been looked at, so many seconds after the beginning."""

    at_s: Seconds
    rows: Count


class Failure(Struct, frozen=True):
    """The reason why an audit could not be done."""

    code: Kind
    message: Annotated[str, Meta(max_length=500)]


class ReportBody(Struct, frozen=True):
    """The findings and durations of an audit, within bounds. `tables_count`, `differences_count`: how many there are; the first
    of them are here. `source`, `peer`: the site that was the active, and the other one."""

    version: Annotated[int, Meta(ge=1)]
    source: Annotated[str, Meta(max_length=40)] = ""
    peer: Annotated[str, Meta(max_length=40)] = ""
    tables_count: Count = 0
    tables: Annotated[list[TableCount], Meta(max_length=TABLES_MAX)] = []
    kinds: Annotated[dict[Kind, Count], Meta(max_length=KINDS_MAX)] = {}
    advice: Annotated[dict[Kind, Annotated[str, Meta(max_length=400)]], Meta(max_length=KINDS_MAX)] = {}
    counters: Annotated[dict[Kind, Count], Meta(max_length=KINDS_MAX)] = {}
    differences_count: Count = 0
    differences: Annotated[list[FoundDifference], Meta(max_length=DIFFERENCES_MAX)] = []
    places: Annotated[list[KeyShares], Meta(max_length=PLACES_MAX)] = []
    stages: Annotated[list[Stage], Meta(max_length=STAGES_MAX)] = []
    pace: Annotated[list[Pace], Meta(max_length=PACE_MAX)] = []
    remarks: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=20)] = []
    failure: Failure | None = None


class SentReport(ReportBody, frozen=True):
    """A report as it is kept and shown: every member is there."""


class ProgressBody(Struct, frozen=True):
    """The progress of an audit. `done`, `total`: of the present phase, in `unit`; null: not known. `elapsed_s`: since it began.
    `is_stopped`: a signal ended it, and it leaves nothing. A member that this release does not know is left out."""

    job: Annotated[str, Meta(min_length=1, max_length=40)]
    phase: Annotated[str, Meta(min_length=1, max_length=100)]
    elapsed_s: Seconds
    done: Count | None = None
    total: Count | None = None
    unit: Literal["rows", "tasks"] = "rows"
    by: Annotated[str, Meta(max_length=200)] = ""
    is_stopped: bool = False


class AuditProgress(ProgressBody, frozen=True):
    """A report of progress as it is shown: every member is there."""


_encode = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(SentReport).decode


def encoded_report(report: SentReport) -> bytes:
    """Raises InvalidInput for one that is too long as a whole."""
    document = _encode(report)
    if len(document) > REPORT_BYTES_MAX:
        raise InvalidInput(
            f"the report has {len(document):,} bytes, and a site keeps {REPORT_BYTES_MAX:,} of one: send fewer "
            "differences, tables or places", limit=REPORT_BYTES_MAX,
        )
    return document


def as_seen_by(report: SentReport, may_read: Callable[[str], bool]) -> tuple[SentReport, int]:
    """Returns it without the keys of tables that the caller may not read, and how many they are."""
    shown = [one if one.key is None or may_read(one.table) else replace(one, key=None) for one in report.differences]
    hidden = sum(before is not after for before, after in zip(report.differences, shown, strict=True))
    return replace(report, differences=shown), hidden
