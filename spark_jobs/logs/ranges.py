"""Filters on a log's views, as ranges of columns: which files and frames need not be looked at.

What always holds: a range only says what surely is not wanted; Spark applies every filter itself again. Filters of other
columns and shapes change nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql.datasource import Filter

from spark_jobs.asked import ColumnRange, column_of


@dataclass(slots=True)
class Ranges:
    epoch: ColumnRange = field(default_factory=ColumnRange)
    seq: ColumnRange = field(default_factory=ColumnRange)
    table: ColumnRange = field(default_factory=ColumnRange)
    segment: ColumnRange = field(default_factory=ColumnRange)

    def add(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            if (column := column_of(each)) in ("epoch", "seq", "table", "segment"):
                getattr(self, column).narrow_by(each)
