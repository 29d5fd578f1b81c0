"""Scans keep what the data API says of them, and no more: key order, bounds, each row once, and one moment with `as_of`.

A plain scan is read in pieces: each of its rows is a read of its own (linearizable.py), and nothing is said of them together.
With `as_of` all rows are of one version: none is newer, and none that was acknowledged up to it is missing or older.
"""

from __future__ import annotations

from itertools import pairwise

from chaos.checkers.facts import TableFacts, facts_of
from chaos.checkers.violation import Violation
from chaos.history import Call, History

NAME = "scans"


def check(history: History) -> list[Violation]:
    return [
        violation for table in facts_of(history).tables.values() if NAME in table.use.checks
        for call in table.scans for violation in _check(table, call)
    ]


def _check(table: TableFacts, call: Call) -> list[Violation]:
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    rows = outcome.rows
    if not rows:
        return _missing(table, call) if operation.as_of is not None else []
    ordered = rows if not operation.reverse else rows[::-1]
    for before, after in pairwise(ordered):
        if before.key >= after.key:
            return [_told(table, call, f"has row {after.key} where its order does not allow it")]
    if operation.start is not None and ordered[0].key < operation.start:
        return [_told(table, call, f"shows row {ordered[0].key}, which lies before its start")]
    if operation.end is not None and ordered[-1].key >= operation.end:
        return [_told(table, call, f"shows row {ordered[-1].key}, which does not lie before its end")]
    if operation.limit is not None and len(rows) > operation.limit:
        return [_told(table, call, f"shows {len(rows)} rows; {operation.limit} was the limit")]
    if operation.as_of is None:
        return []
    for row in rows:
        if row.version > operation.as_of:
            return [_told(table, call, f"as of version {operation.as_of} shows row {row.key} at {row.version}")]
    return _missing(table, call)


def _missing(table: TableFacts, call: Call) -> list[Violation]:
    """Acknowledged before the scan began, not newer than its version: there, or superseded."""
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    assert operation.as_of is not None
    if not outcome.complete:
        return []
    shown = {row.key: row.version for row in outcome.rows}
    for key, facts in table.keys.items():
        if (operation.start is not None and key < operation.start) or (operation.end is not None and key >= operation.end):
            continue
        newest = max(
            (write for write in facts.writes if write.result == "ok" and not write.lost
             and write.end_s < call.invoked_s and 0 < write.version <= operation.as_of),
            key=lambda write: write.version, default=None,
        )
        if newest is None:
            continue
        if key in shown:
            if shown[key] < newest.version:
                return [_told(table, call, f"shows row {key} at {shown[key]}, but {newest.version} was acknowledged before")]
        elif newest.value is not None and not any(w.value is None and w.result != "not_applied" for w in facts.writes):
            return [_told(table, call, f"lacks row {key}, which was acknowledged at {newest.version} before")]
    return []


def _told(table: TableFacts, call: Call, what: str) -> Violation:
    assert call.returned_s is not None
    sentence = f"The scan of {table.use.name} by call {call.id} {what}."
    return Violation("P3", "scans", sentence, (call.id,), (call.invoked_s, call.returned_s))
