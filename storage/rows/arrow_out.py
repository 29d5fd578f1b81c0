"""Rows of a table as an Arrow stream, batch by batch.

| column | Arrow type |
|---|---|
| bool, int32, int64, float32, float64, string, bytes | bool, int32, int64, float, double, string, binary |
| timestamp | timestamp in microseconds, UTC |
| decimal | decimal256 with 76 digits, 38 of them behind the point: it holds each value that a column holds |
| json | string that holds JSON text |

What always holds: what comes out, sent in again (arrow.py), gives the same rows, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.types import DECIMAL_DIGITS_MAX

_TYPES = {
    "bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(), "timestamp": pa.timestamp("us", tz="UTC"),
    "decimal": pa.decimal256(2 * DECIMAL_DIGITS_MAX, DECIMAL_DIGITS_MAX), "json": pa.string(),
}
_encode_json = msgspec.json.Encoder().encode


def _json_text(value: Any) -> str:
    return _encode_json(value).decode()


_CONVERT: dict[str, Callable[[Any], Any]] = {"decimal": Decimal, "json": _json_text}


class MadeBytes:
    """The file into which a stream of Arrow writes; `taken` hands on what it has made since."""

    def __init__(self) -> None:
        self._made: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        self._made.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        made, self._made = self._made, []
        return b"".join(made)


class ArrowOut:
    """One stream of the `columns` of a table (None: all), in the order of its schema."""

    def __init__(self, codec: RowCodec, columns: Sequence[str] | None) -> None:
        self._columns = [column for column in codec.schema.columns if columns is None or column.name in columns]
        self._decode = codec.decoder(columns, native=True)
        fields = [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in self._columns]
        self._schema = pa.schema(fields)
        self._made = MadeBytes()
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._made, "w"), self._schema)

    def part(self, rows: Sequence[StoredRow]) -> bytes:
        """Returns the next bytes: these rows as one batch, and before the first one the schema."""
        if rows:
            decoded = [self._decode(row.key, row.value) for row in rows]
            arrays = [self._array(column.name, column.type, decoded) for column in self._columns]
            self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        return self._made.taken()

    def end(self) -> bytes:
        """Returns the last bytes. A stream without them was cut off."""
        self._stream.close()
        return self._made.taken()

    def _array(self, name: str, kind: str, rows: list[dict[str, Any]]) -> pa.Array:
        convert = _CONVERT.get(kind)
        values = [row[name] for row in rows]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, _TYPES[kind])
