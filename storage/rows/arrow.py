"""A bulk body: an Arrow IPC stream as upsert records, column by column.

What always holds: the records are those that RowCodec makes of the same rows one by one, byte for byte, in the stream's
order; the stream is whole (it ends with its end mark, nothing follows) and sound (offsets, dictionary places and UTF-8
are checked before use); it is all or nothing, and the error names column and row. Source: product.md section 2.

Measured on one core: the flights table, 19 columns with 4 in the key, 670,000 rows a second; six columns 2.5 million.
This module is pure.
"""

from __future__ import annotations

from array import array as packed
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from storage.log.record import Record, RecordKind
from storage.rows.arrow_columns import Values, check_type, fault, is_binary, is_text, is_view, plain_array, stored_array
from storage.rows.arrow_sizes import check_declared_bytes
from storage.rows.codec import RowCodec
from storage.rows.compiled import columns_encoder
from storage.rows.keys import PARTS
from storage.rows.schema import Column
from twinlog.errors import InvalidInput, MalformedBody, TooLarge, words

DECODED_BYTES_MAX = 32 << 20
_END_MARK_BYTES = 8
_VIEW_BYTES = 16
_SWAPPED = {8: "q", 4: "i"}  # array type codes by width


def arrow_records(
    stream: bytes, codec: RowCodec, *, rows_max: int, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> list[Record]:
    """One UPSERT record for each row of `stream`.

    `decoded_bytes_max` bounds what a small, compressed or dictionary-encoded stream may grow to. Raises MalformedBody,
    TooLarge, InvalidInput (fields `column`, `problem`, `row` counted from 0).
    """
    table = _read(stream, codec, rows_max, decoded_bytes_max)
    count = table.num_rows
    if count == 0:
        return []
    columns = {column.name: column for column in codec.schema.columns}
    _check_defaults(codec, set(table.column_names), count, decoded_bytes_max)
    stored: dict[str, Values] = {}
    for name in table.column_names:
        whole = table.column(name).combine_chunks()
        if isinstance(whole, pa.ChunkedArray):
            raise TooLarge(f"column {name!r} of the Arrow stream is too large for one array", column=name)
        stored[name] = stored_array(columns[name], plain_array(whole), in_key=name in codec.keys.names)
    keys = _keys(codec, stored)
    values = _values(codec, stored, count)
    _check_rows(codec, keys, values)
    return list(map(Record, repeat(int(RecordKind.UPSERT)), repeat(codec.schema.id), keys, values))


def _read(stream: bytes, codec: RowCodec, rows_max: int, decoded_bytes_max: int) -> pa.Table:
    """The whole stream as one table whose columns fit the schema, with every array validated."""
    source = pa.BufferReader(stream)
    batches, rows, decoded_bytes = [], 0, 0
    try:
        check_declared_bytes(stream, decoded_bytes_max)
        reader = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        _check_columns(codec, reader.schema)
        while True:
            before = source.tell()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            batch.validate(full=True)
            rows += batch.num_rows
            decoded_bytes += sum(map(_decoded_bytes, batch.columns))
            if rows > rows_max:
                raise TooLarge(f"the Arrow stream has more than {rows_max} rows", rows_max=rows_max)
            if decoded_bytes > decoded_bytes_max:
                raise TooLarge(
                    f"the Arrow stream decodes to more than {decoded_bytes_max} bytes", bytes_max=decoded_bytes_max
                )
            if batch.num_rows:  # millions of empty ones fit into a body
                batches.append(batch)
        if source.tell() - before != _END_MARK_BYTES or source.tell() != len(stream):
            raise MalformedBody(
                "the body does not end with the end mark of an Arrow IPC stream: it is cut short, or something follows"
            )
        return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a name that is no UTF-8
        raise MalformedBody(f"the body is not a sound Arrow IPC stream: {words(error)}") from error


def _decoded_bytes(array: pa.Array) -> int:
    """Returns about what `array` takes once a dictionary or views are replaced by their values."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if is_view(array.type):
        return _view_bytes(array)
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    kind = array.type.value_type
    if not (is_text(kind) or is_binary(kind)):
        return int(array.indices.nbytes) + 8 * len(array)
    lengths = pc.binary_length(array.dictionary.cast(pa.large_binary()))
    return int(array.indices.nbytes) + (pc.sum(lengths.take(array.indices)).as_py() or 0)


def _view_bytes(array: pa.Array) -> int:
    """Returns the length of all values: any number of views may show the same bytes. A view is 16 bytes, its length first."""
    views = memoryview(array.buffers()[1]).cast("B")[_VIEW_BYTES * array.offset : _VIEW_BYTES * (array.offset + len(array))]
    lengths = views.cast("i")[::4].tolist()  # the buffer may be longer, by any number of bytes
    if array.null_count:
        return sum(length for length, valid in zip(lengths, array.is_valid().to_pylist(), strict=True) if valid)
    return sum(lengths)


def _check_columns(codec: RowCodec, arrow_schema: pa.Schema) -> None:
    """Raises InvalidInput that names the column when stream and schema do not fit."""
    columns = {column.name: column for column in codec.schema.columns}
    for field in arrow_schema:
        column = columns.get(field.name)
        if column is None:
            names = ", ".join(list(columns)[:20])
            problem = f"is not a column of table {codec.schema.name!r}; columns are {names}"
            raise InvalidInput(f"column {field.name[:128]!r}: {problem}", column=field.name[:128], problem=problem)
        if len(arrow_schema.get_all_field_indices(field.name)) > 1:
            raise fault(column, "is in the Arrow stream twice")
        check_type(column, field.type)
    for column in codec.key_columns:
        if column.name not in arrow_schema.names:
            raise fault(column, "is missing, and is part of the primary key")
    for column in codec.value_columns:
        if column.name not in arrow_schema.names and not column.nullable and column.default is None:
            raise fault(column, f"is missing, and table {codec.schema.name!r} has no default for it")


def _check_defaults(codec: RowCodec, given: set[str], count: int, bytes_max: int) -> None:
    """Raises TooLarge where the defaults of columns that the stream leaves out make more of it than may be."""
    defaults = [column.default for column in codec.value_columns if column.name not in given]
    if count * sum(len(one) for one in defaults if isinstance(one, str | bytes)) > bytes_max:
        raise TooLarge(f"with its columns' defaults the Arrow stream becomes more than {bytes_max} bytes", bytes_max=bytes_max)


def _keys(codec: RowCodec, stored: dict[str, Values]) -> list[bytes]:
    parts: list[Any] = []
    for column in codec.key_columns:
        parts.extend(_key_parts(column, stored[column.name]))
    keys = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    longest = pc.max(pc.binary_length(keys)).as_py()
    if longest > codec.keys.bytes_max:
        raise codec.keys.too_large(longest)
    made: list[bytes] = keys.to_pylist()
    return made


def _key_parts(column: Column, values: Values) -> list[Any]:
    """Returns what `column` adds to the keys (keys.py): arrays of large_binary, and scalars that all rows share."""
    if column.type in ("int64", "timestamp"):
        return [big_endian(_flip_sign(values), 8)]
    if column.type == "int32":
        return [big_endian(_flip_sign(values.cast(pa.int32())), 4)]
    if column.type in ("string", "bytes"):
        raw = values.cast(pa.large_binary())
        if pc.any(pc.match_substring(raw, b"\0")).as_py():
            raw = pc.replace_substring(raw, b"\0", b"\0\xff")
        return [raw, pa.scalar(b"\0\1", pa.large_binary())]
    put = PARTS[column.type][0]
    listed = values if isinstance(values, list) else values.to_pylist()
    return [pa.array(map(put, listed), pa.large_binary())]


def _flip_sign(values: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(values, pa.scalar(-(1 << (values.type.bit_width - 1)), values.type))


def big_endian(values: pa.Array, width: int) -> pa.Array:
    """Integers of `width` bytes, none null, as large_binary in big endian."""
    swapped = packed(_SWAPPED[width])
    start = values.offset * width
    swapped.frombytes(memoryview(values.buffers()[1])[start : start + len(values) * width])
    swapped.byteswap()
    fixed = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(swapped.tobytes())])
    return fixed.cast(pa.large_binary())


def _values(codec: RowCodec, stored: dict[str, Values], count: int) -> list[bytes]:
    if not codec.value_columns:
        return [msgspec.msgpack.encode({})] * count
    lists = []
    for column in codec.value_columns:
        values = stored.get(column.name)
        if values is None:
            values = [column.default] * count
        lists.append(values if isinstance(values, list) else values.to_pylist())
    return columns_encoder(codec.value_columns)(lists)


def _check_rows(codec: RowCodec, keys: list[bytes], values: list[bytes]) -> None:
    if max(map(len, keys)) + max(map(len, values)) > codec.row_bytes_max:
        longest = max(len(key) + len(value) for key, value in zip(keys, values, strict=True))
        if longest > codec.row_bytes_max:
            raise codec.too_large(longest)
