"""A read of a view whose filters are pushed down: `read_where`.

What always holds: every scan of what `read_where` returns pushes the same filters, whatever it is joined with, filtered by or
used for later. Spark needs that: to 4.3.0 it keeps the last pushed filters with the loaded view, not with the scan, so another
query over the same `load()` gets the rows of these (docs/decisions/2026-11-22-filters-pushed-into-views.md). Without the option
`push` a view therefore reads everything, and Spark filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from spark_jobs.asked import PUSH
from spark_jobs.job import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALWAYS_TRUE = "spark_partition_id() >= 0"  # Spark moves no filter past one whose value its rows do not decide


def read_where(
    spark: SparkSession, condition: str, options: Mapping[str, str], columns: StructType | str | None = None
) -> DataFrame:
    """The rows of a view for which the SQL `condition` is true. `options`: of the view; `columns`: a schema of these alone."""
    reader = spark.read.format(FORMAT).options(**options).option(PUSH, "yes")
    return (reader if columns is None else reader.schema(columns)).load().where(condition).where(_ALWAYS_TRUE)
