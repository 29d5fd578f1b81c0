"""P6, I5: once healed and drained, both sites hold the same rows at the same versions, and end at the same sequence."""

from __future__ import annotations

from itertools import pairwise

from chaos.checkers.violation import Violation
from chaos.history.history import Dump, History

NAME = "convergence"
SHOWN_MAX = 5


def check(history: History) -> list[Violation]:
    if history.moment("drained") is None:
        return []
    return [violation for one, other in pairwise(history.dumps) for violation in _compare(one, other)]


def _compare(one: Dump, other: Dump) -> list[Violation]:
    times = (min(one.at_s, other.at_s), max(one.at_s, other.at_s))
    found: list[Violation] = []
    if one.applied != other.applied:
        sentence = f"Site {one.site} has applied {one.applied}, site {other.site} {other.applied}, although both are drained."
        found.append(Violation("P6", NAME, sentence, (), times))
    for table in sorted(one.tables.keys() | other.tables.keys()):
        if table not in one.tables or table not in other.tables:
            lacking = other.site if table in one.tables else one.site
            found.append(Violation("P6", NAME, f"Site {lacking} has no table {table}, the other site has.", (), times))
            continue
        here, there = one.tables[table], other.tables[table]
        if here == there:
            continue
        keys = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        told = ", ".join(keys[:SHOWN_MAX]) + (", ..." if len(keys) > SHOWN_MAX else "")
        sentence = f"{len(keys)} rows of {table} differ between site {one.site} and site {other.site}: {told}."
        found.append(Violation("P6", NAME, sentence, (), times))
    return found
