"""Roles and grants: what a caller may do, as texts such as `writer:orders_*` or `operator`.

What always holds: what no grant says is not allowed; a role of tables has a pattern, in which `*` stands for any text, and
one of the pair has none; no role includes another one; `replicator`, the other site's, cannot be written in a grant.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from twinlog.errors import InvalidInput

READER, WRITER, ADMIN = "reader", "writer", "admin"
OPERATOR, AUDITOR, METRICS = "operator", "auditor", "metrics"
REPLICATOR = "replicator"
OF_TABLES = (READER, WRITER, ADMIN)
OF_THE_PAIR = (OPERATOR, AUDITOR, METRICS)
_PATTERN = re.compile(r"[A-Za-z0-9_*]{1,128}")


@dataclass(frozen=True, slots=True)
class Grants:
    """`tables`: the pairs of a role and a pattern; `pair`: the roles that concern no table."""

    tables: frozenset[tuple[str, str]] = frozenset()
    pair: frozenset[str] = frozenset()

    def on(self, role: str, table: str) -> bool:
        return any(held == role and fnmatchcase(table, pattern) for held, pattern in self.tables)

    def anywhere(self, role: str) -> bool:
        """True where `role` is held on any table at all."""
        return any(held == role for held, _ in self.tables)

    def texts(self) -> list[str]:
        return sorted([*(f"{role}:{pattern}" for role, pattern in self.tables), *self.pair])


@lru_cache(maxsize=1000)
def knowing(grants: Grants) -> Callable[[str], bool]:
    """Returns what says of a table's name whether any role is held on it, by one expression for all patterns."""
    patterns = sorted({translate(pattern) for _, pattern in grants.tables})
    if not patterns:
        return lambda table: False
    fits = re.compile("|".join(patterns)).match
    return lambda table: fits(table) is not None


EVERYTHING = Grants(frozenset((role, "*") for role in OF_TABLES), frozenset(OF_THE_PAIR))


def joined(several: Iterable[Grants]) -> Grants:
    """Returns the grants that any of them has."""
    held = list(several)
    return Grants(frozenset().union(*(each.tables for each in held)), frozenset().union(*(each.pair for each in held)))


def parse_grants(texts: Iterable[str]) -> Grants:
    """Raises InvalidInput that names the text which is no grant."""
    tables, pair = set(), set()
    for text in texts:
        role, separator, pattern = text.partition(":")
        if role in OF_TABLES and separator and _PATTERN.fullmatch(pattern):
            tables.add((role, pattern))
        elif role in OF_THE_PAIR and not separator:
            pair.add(role)
        else:
            raise InvalidInput(_no_grant(text, role, separator))
    return Grants(frozenset(tables), frozenset(pair))


def _no_grant(text: str, role: str, separator: str) -> str:
    shown = repr(text[:80])
    if role in OF_TABLES:
        what = "names no table" if not separator else "has a pattern that no table fits"
        return f"the grant {shown} {what}: write {role}:TABLE or {role}:PREFIX_*, and {role}:* for every table"
    if role == REPLICATOR:
        return f"the grant {shown} is the other site's, whom its certificate alone proves: leave it out"
    known = ", ".join([*(f"{one}:TABLE" for one in OF_TABLES), *OF_THE_PAIR])
    return f"{shown} is no grant: write one of {known}"
