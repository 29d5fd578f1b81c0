"""P3, I3: each row behaves like one atomic register, across every change of the active.

Registers with unique values are decided by the zones of Gibbons and Korach in O(n log n): a value's zone reaches from the
first moment by which it must have been there to the last at which it still was; no two such zones may overlap, and none may
hold a value's whole life inside. Rows with conditions, deletes or repeated values go to the search of search.py.
What always holds: an unknown write may take effect until recovery was declared done, once, or never; a definite reject never.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import inf
from typing import Any

from chaos.checkers.rows.facts import KeyFacts, TableFacts, Write, facts_of
from chaos.checkers.rows.search import Undecided, possible
from chaos.checkers.violation import Violation
from chaos.history.history import Call, History

NAME = "linearizable"
_Zone = tuple[float, float, Any, list[Call]]


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    for table in facts_of(history).tables.values():
        if NAME not in table.use.checks:
            continue
        for key, facts in table.keys.items():
            found += (_check_zones if facts.plain else _check_search)(table, key, facts)
    return found


def _check_zones(table: TableFacts, key: str, facts: KeyFacts) -> list[Violation]:
    """One register. A zone is (first return, last invocation) over a value's write and reads."""
    readers = {seen.value: seen for seen in facts.seen}
    must: list[_Zone] = []  # value stood from the first to the second time
    free: list[_Zone] = []  # value stood for a moment anywhere in between
    if (absent := readers.pop(None, None)) is not None:
        must.append((-inf, absent.invoked_s, None, [absent.last_call]))
    for write in facts.writes:
        if write.result == "not_applied":
            continue
        seen = readers.pop(write.value, None)
        if write.lost or (write.result == "unknown" and seen is None):
            continue
        first, last, calls = write.end_s, write.invoked_s, [write.call]
        if seen is not None:
            if seen.returned_s < write.invoked_s:
                return [_told(table, key, f"value {write.value!r} was read before it was written", [seen.call, write.call])]
            first, last = min(first, seen.returned_s), max(last, seen.invoked_s)
            calls += [seen.call, seen.last_call]
        (must if first < last else free).append((min(first, last), max(first, last), write.value, calls))
    if readers:
        value, seen = next(iter(readers.items()))
        return [_told(table, key, f"value {value!r} was read, which nobody wrote there", [seen.call])]
    return _overlaps(table, key, must, free)


def _overlaps(table: TableFacts, key: str, must: list[_Zone], free: list[_Zone]) -> list[Violation]:
    must.sort(key=lambda zone: zone[0])
    for before, after in pairwise(must):
        if after[0] < before[1]:
            return [_clash(table, key, before, after)]
    at = 0
    for zone in sorted(free, key=lambda zone: zone[0]):
        while at < len(must) and must[at][1] <= zone[0]:
            at += 1
        if at < len(must) and must[at][0] < zone[0] and zone[1] < must[at][1]:
            return [_clash(table, key, must[at], zone)]
    return []


def _clash(table: TableFacts, key: str, stood: _Zone, other: _Zone) -> Violation:
    calls = stood[3] + other[3]
    old = "no row" if stood[2] is None else f"value {stood[2]!r}"
    return _told(table, key, f"{old} was still seen after value {other[2]!r} had replaced it, or again after it", calls)


def _check_search(table: TableFacts, key: str, facts: KeyFacts) -> list[Violation]:
    try:
        if possible(table, facts):
            return []
        sentence = "no order of these calls explains the answer that each got"
    except Undecided as error:
        sentence = str(error)
    writes: Iterable[Write] = (write for write in facts.writes if write.result != "not_applied")
    calls = [*(write.call for write in writes), *(seen.call for seen in facts.seen), *(each.call for each in facts.refusals)]
    return [_told(table, key, sentence, calls)]


def _told(table: TableFacts, key: str, what: str, calls: list[Call]) -> Violation:
    ids = tuple(dict.fromkeys(call.id for call in sorted(calls, key=lambda call: call.invoked_s)))
    times = sorted({time for call in calls for time in (call.invoked_s, call.returned_s) if time is not None})
    return Violation("P3", NAME, f"Row {key} of {table.use.name} is no atomic register: {what}.", ids, tuple(times))
