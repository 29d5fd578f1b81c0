"""Filters that Spark pushes down, as ranges of columns: which files and frames need not be looked at.

What always holds: a range only says what surely is not wanted; Spark applies every filter itself again. Filters of other
columns and shapes change nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)


@dataclass(slots=True)
class ColumnRange:
    """The wanted part of one column: bounds, inclusive; None: open. `values`: the only ones; None: all."""

    low: Any = None
    high: Any = None
    values: frozenset[Any] | None = None

    def has(self, value: Any) -> bool:
        return self.meets(value, value) and (self.values is None or value in self.values)

    def meets(self, first: Any, last: Any) -> bool:
        """Returns whether something in first .. last may be wanted. None: unbounded on that side."""
        below = self.low is not None and last is not None and last < self.low
        above = self.high is not None and first is not None and first > self.high
        return not below and not above and self.values != frozenset()

    def narrow(self, low: Any = None, high: Any = None) -> None:
        if low is not None and (self.low is None or low > self.low):
            self.low = low
        if high is not None and (self.high is None or high < self.high):
            self.high = high

    def only(self, values: Collection[Any]) -> None:
        found = frozenset(values)
        self.values = found if self.values is None else self.values & found
        if found:
            self.narrow(min(found), max(found))


@dataclass(slots=True)
class Ranges:
    epoch: ColumnRange = field(default_factory=ColumnRange)
    seq: ColumnRange = field(default_factory=ColumnRange)
    table: ColumnRange = field(default_factory=ColumnRange)
    segment: ColumnRange = field(default_factory=ColumnRange)

    def add(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            column: tuple[str, ...] = getattr(each, "attribute", ())
            if len(column) == 1 and column[0] in ("epoch", "seq", "table", "segment"):
                _narrow(getattr(self, column[0]), each)


def _narrow(found: ColumnRange, each: Filter) -> None:
    """A strict bound is taken as an inclusive one: that is no narrower than it may be."""
    match each:
        case EqualTo(value=value):
            found.only([] if value is None else [value])
        case In(value=values):
            found.only([value for value in values if value is not None])
        case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            found.narrow(low=value)
        case LessThan(value=value) | LessThanOrEqual(value=value):
            found.narrow(high=value)
