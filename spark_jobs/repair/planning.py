"""The writes at the active that make a row equal on both sites: from a finding of `compare`, without any I/O.

What always holds: every write is made only if the active's row is what the audit saw, so a repair never undoes a newer one;
rows are repaired only when somebody has said which site is right, where the audit cannot know: those that are `damaged`, and
all of them once the site that was the standby has become the active, for what it lacks would be taken from the other one too;
whatever is written is an ordinary write, logged and sent to the other site.

Findings name two sides, `source` and `peer`; which of them is the active may have changed since. The right side's row is
written over the active's, also where the two are the same site: that is what sends it to the other one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.compare.rows import DAMAGED, KINDS
from twinlog.decoding import OBJECT, or_none

ABSENT = "If-None-Match"
PRESENT = "If-Match"


@dataclass(frozen=True, slots=True)
class Write:
    """One request. `body`: the row as JSON, of a PUT; `condition`: header and its value."""

    method: Literal["PUT", "DELETE"]
    table: str
    key_text: str  # as it stands in the path
    body: str | None
    condition: tuple[str, str]
    expected: int | None  # version of the active's row as the audit saw it; None: no row


@dataclass(frozen=True, slots=True)
class Left:
    """Not to be repaired by a write, and why."""

    reason: str


def plan_write(finding: Mapping[str, Any], *, active: str, truth: str | None) -> Write | Left:
    """`active`: `source` or `peer`; `truth`: the same, or None: the source, where that can be taken for granted."""
    kind, key_text = str(finding["kind"]), finding["key_text"]
    if kind not in KINDS:
        return Left(f"{kind}: whole tables are not repaired row by row; fill the site anew")
    if kind == DAMAGED and truth is None:
        return Left("the bytes changed below the storage at one site, nobody knows at which: look, then say --set truth=SITE")
    if key_text == f"0x{bytes(finding['key']).hex()}":
        return Left("the key itself does not decode, so no request can name it; fill the site anew")
    if active == "peer" and truth is None:
        return Left("the other site was active when this was found, and nobody knows whose row is right: say --set truth=SITE")
    version, row = finding[f"{active}_version"], finding[f"{truth or active}_row"]
    if row is not None and _is_damaged(row):
        return Left("the row to be written does not decode at that site; say --set truth= the other one, if that is whole")
    expected = None if version is None else int(version)
    condition = (ABSENT, "*") if expected is None else (PRESENT, f'"{expected & (1 << 64) - 1}"')
    return Write("DELETE" if row is None else "PUT", str(finding["table"]), key_text, row, condition, expected)


def _is_damaged(row: str) -> bool:
    return (or_none(OBJECT, row) or {}).keys() == {"damaged_bytes"}
