"""The columns and filters that a read asks of a view: columns by its schema, filters because Spark pushes them down.

What always holds: a ColumnRange excludes only what no filter wants; `kept` keeps exactly the rows for which every filter is
true, as Spark would: a comparison with null is true for no row. Bytes are compared one by one, as numbers without a sign.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from twinlog.errors import InvalidInput

PUSH = "push"  # an option of read_where (reading.py), which says why it is none for others
_COMPARED = {
    EqualTo: pc.equal, GreaterThan: pc.greater, GreaterThanOrEqual: pc.greater_equal, LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_APPLIED = (*_COMPARED, EqualNullSafe, In, IsNull, IsNotNull)


def pushes(options: Mapping[str, str]) -> bool:
    """Returns whether the reader may leave out what the filters do not want."""
    return options.get(PUSH) == "yes"


def check_columns(asked: StructType, known: StructType) -> None:
    """Raises InvalidInput when `asked`, a schema given to the read, is no part of what the view has."""
    columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in known)
    if not len(asked):
        raise InvalidInput(f"the schema names no column; the view has {columns}")
    for field in asked:
        if field.name not in known.names or known[field.name].dataType != field.dataType:
            raise InvalidInput(f"the view has no column {field.name} {field.dataType.simpleString()}; it has {columns}")


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

    def narrow_by(self, each: Filter) -> None:
        """Takes a filter of this column. A strict bound counts as an inclusive one: that is no narrower than it may be."""
        match each:
            case EqualTo(value=value):
                self.only([] if value is None else [value])
            case EqualNullSafe(value=value) if value is not None:
                self.only([value])
            case In(value=values):
                self.only([value for value in values if value is not None])
            case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
                self.narrow(low=value)
            case LessThan(value=value) | LessThanOrEqual(value=value):
                self.narrow(high=value)


def column_of(each: Filter) -> str | None:
    """The column of a filter; None for a part of a column."""
    path: tuple[str, ...] = getattr(each.child if isinstance(each, Not) else each, "attribute", ())
    return path[0] if len(path) == 1 else None


def can_keep(each: Filter) -> bool:
    """Returns whether `kept` can apply the filter."""
    return column_of(each) is not None and isinstance(each.child if isinstance(each, Not) else each, _APPLIED)


def kept(batch: pa.RecordBatch, filters: Iterable[Filter]) -> pa.RecordBatch:
    """The rows of `batch` for which every filter is true. `filters`: such as `can_keep`, on columns of the batch."""
    for each in filters:
        batch = batch.filter(_mask(batch.column(column_of(each)), each))  # null counts as false
    return batch


def _mask(column: pa.Array, each: Filter) -> pa.Array:
    """True, false or null for each value of the column."""
    match each:
        case Not(child=child):
            return pc.invert(_mask(column, child))
        case IsNull():
            return pc.is_null(column)
        case IsNotNull():
            return pc.is_valid(column)
        case EqualNullSafe(value=value):
            return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
        case In(value=values):
            found = pc.is_in(column, value_set=pa.array([value for value in values if value is not None], column.type))
            unknown = pa.scalar(None, pa.bool_())
            missed = unknown if None in values else pa.scalar(False)
            return pc.if_else(pc.is_null(column), unknown, pc.if_else(found, pa.scalar(True), missed))
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _COMPARED[type(each)](column, pa.scalar(each.value, column.type))
    raise InvalidInput(f"the filter {each} cannot be applied to a batch")
