"""Scans keep what the data API says of them, and no more: key order, bounds, each row once, and one moment if they promise it.

A plain scan is read in pieces: each of its rows is a read of its own (linearizable.py), and nothing is said of them together.
With `as_of` all rows are of one version: none is newer, and none that was acknowledged up to it is missing or older.
With `snapshot` there is a moment at which all rows stood as shown: none was replaced before another one was written.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from chaos.checkers.rows.facts import TableFacts, facts_of
from chaos.checkers.violation import Violation
from chaos.history.history import Call, History

NAME = "scans"


class _Acknowledged(NamedTuple):
    """The acknowledged writes of a row: (version, when), by version; for each the earliest time of it and the later ones."""

    writes: list[tuple[int, float]]
    earliest_s: list[float]


_Ledger = dict[str, _Acknowledged]


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    for table in facts_of(history).tables.values():
        if NAME in table.use.checks and (table.scans or table.past):
            of_one_moment = [call for call in table.scans if call.operation.as_of is not None or call.operation.snapshot]
            past = of_one_moment or table.past
            ledger = _ledger(table) if past else {}
            found += [violation for call in table.scans for violation in _check(table, call, ledger)]
            found += [violation for call in table.past for violation in _check_read(table, call, ledger)]
    return found


def _ledger(table: TableFacts) -> _Ledger:
    """Rows that were ever deleted, or may have been, are left out."""
    found = {}
    for key, facts in table.keys.items():
        if not facts.deletes:
            writes = sorted((write.version, write.end_s) for write in facts.writes if write.result == "ok" and not write.lost)
            found[key] = _Acknowledged(writes, list(accumulate((end_s for _, end_s in reversed(writes)), min))[::-1])
    return found


def _check(table: TableFacts, call: Call, ledger: _Ledger) -> list[Violation]:
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    rows = outcome.rows
    if operation.snapshot:
        found = _apart(table, call, ledger)
        if found:
            return found
    if not rows:
        return _missing(table, call, ledger) if operation.as_of is not None else []
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
    return _missing(table, call, ledger)


def _check_read(table: TableFacts, call: Call, ledger: _Ledger) -> list[Violation]:
    """A read of one row as of a version is held to what a scan of that row alone would be."""
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    assert operation.as_of is not None
    for row in outcome.rows:
        if row.version > operation.as_of:
            return [_told(table, call, f"as of version {operation.as_of} shows row {row.key} at {row.version}")]
    alone = {operation.key: ledger[operation.key]} if operation.key in ledger else {}
    return _missing(table, call, alone)


def _missing(table: TableFacts, call: Call, ledger: _Ledger) -> list[Violation]:
    """Acknowledged before the scan began, not newer than its version: there, or superseded."""
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    assert operation.as_of is not None
    if not outcome.complete:
        return []
    shown = {row.key: row.version for row in outcome.rows}
    start, end, until = operation.start or "", operation.end, (operation.as_of, inf)
    for key, (writes, _) in ledger.items():
        if key < start or (end is not None and key >= end):
            continue
        at = bisect_right(writes, until) - 1
        while at >= 0 and writes[at][1] >= call.invoked_s:
            at -= 1
        if at < 0 or shown.get(key, 0) >= writes[at][0]:
            continue
        if key in shown:
            return [_told(table, call, f"shows row {key} at {shown[key]}, but {writes[at][0]} was acknowledged before")]
        return [_told(table, call, f"lacks row {key}, which was acknowledged at {writes[at][0]} before")]
    return []


def _apart(table: TableFacts, call: Call, ledger: _Ledger) -> list[Violation]:
    """A row that the scan shows, or misses, was replaced for sure before another one that it shows was asked for."""
    operation, outcome = call.operation, call.outcome
    assert outcome is not None
    shown = {row.key: row.version for row in outcome.rows}
    begun_s, newest = -inf, ""
    for row in outcome.rows:
        write = table.by_value.get(table.value_of(row))
        if write is not None and write.invoked_s > begun_s:
            begun_s, newest = write.invoked_s, row.key
    if not outcome.complete:
        ledger = {key: ledger[key] for key in shown.keys() & ledger.keys()}
    for key, (writes, earliest_s) in ledger.items():
        if key < (operation.start or "") or (operation.end is not None and key >= operation.end):
            continue
        at = bisect_right(writes, (shown.get(key, 0), inf))
        if at < len(writes) and earliest_s[at] < begun_s:
            return [_told(table, call, f"is of one moment and shows row {newest}, but not what had replaced row {key} before")]
    return []


def _told(table: TableFacts, call: Call, what: str) -> Violation:
    assert call.returned_s is not None
    sentence = f"The {call.operation.kind} of {table.use.name} by call {call.id} {what}."
    return Violation("P3", NAME, sentence, (call.id,), (call.invoked_s, call.returned_s))
