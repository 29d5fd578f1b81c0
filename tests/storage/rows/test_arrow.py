"""Arrow streams against their dumb twin: the rows one by one through RowCodec, byte for byte. And what is refused."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.record import Record, RecordKind
from storage.rows.arrow import arrow_records, big_endian
from storage.rows.arrow_sizes import check_declared_bytes
from storage.rows.codec import RowCodec
from tests.storage.rows.strategies import json_row, stored_in_key, stored_rows, table, tables
from twinlog.errors import InvalidInput, MalformedBody, TooLarge

ARROW: dict[str, list[pa.DataType]] = {
    "bool": [pa.bool_()],
    "int32": [pa.int32(), pa.int64()],
    "int64": [pa.int64()],
    "float32": [pa.float32(), pa.float64()],
    "float64": [pa.float64()],
    "string": [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
               pa.dictionary(pa.int32(), pa.large_string())],
    "bytes": [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int16(), pa.binary())],
    "timestamp": [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")],
    "decimal": [pa.string()],
    "json": [pa.string()],
}


def stream_of(batches: list[pa.RecordBatch], schema: pa.Schema | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def stream(columns: dict[str, pa.Array], **options: Any) -> bytes:
    return stream_of([pa.RecordBatch.from_pydict(columns)], **options)


def records(codec: RowCodec, body: bytes, rows_max: int = 1000, **limits: int) -> list[Record]:
    return arrow_records(body, codec, rows_max=rows_max, **limits)


def arrow_column(type_name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    if type_name == "json":
        return pa.array([None if v is None else msgspec.json.encode(v).decode() for v in values], pa.string())
    if type_name == "decimal":
        return pa.array([None if v is None else Decimal(v) for v in values], pa.decimal256(76, 38))
    return pa.array(values, kind)


@st.composite
def tables_and_many_rows(draw: st.DrawFn) -> tuple[RowCodec, list[dict[str, Any]], list[int], dict[str, pa.DataType]]:
    codec = RowCodec(draw(tables()))
    rows = draw(st.lists(stored_rows(codec.schema), max_size=6))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=2)))
    kinds = {column.name: draw(st.sampled_from(ARROW[column.type])) for column in codec.schema.columns}
    return codec, rows, cuts, kinds


@given(tables_and_many_rows(), st.sampled_from([None, "zstd", "lz4"]))
@settings(deadline=None)
def test_records_are_those_of_the_rows_one_by_one(
    case: tuple[RowCodec, list[dict[str, Any]], list[int], dict[str, pa.DataType]], compression: str | None
) -> None:
    codec, rows, cuts, kinds = case
    batches = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        arrays = {
            column.name: arrow_column(column.type, [row[column.name] for row in rows[start:end]], kinds[column.name])
            for column in reversed(codec.schema.columns)
        }
        batches.append(pa.RecordBatch.from_pydict(arrays))
    made = records(codec, stream_of(batches, compression=compression))
    twin = [codec.encode_json_row(json_row(codec.schema, row)) for row in rows]
    assert made == [Record(RecordKind.UPSERT, codec.schema.id, key, value) for key, value in twin]


CODEC = RowCodec(table(
    [
        {"name": "k", "type": "int64"},
        {"name": "b", "type": "bool"}, {"name": "i", "type": "int32"}, {"name": "l", "type": "int64"},
        {"name": "f", "type": "float32"}, {"name": "d", "type": "float64"}, {"name": "s", "type": "string"},
        {"name": "y", "type": "bytes"}, {"name": "t", "type": "timestamp"}, {"name": "m", "type": "decimal"},
        {"name": "j", "type": "json"}, {"name": "z", "type": "int32", "nullable": False, "default": 5},
    ],
    ["k"],
))
KEYS = pa.array([0, 1, 2])
DAY_S = 86_400


@pytest.mark.parametrize(
    ("column", "array", "sent"),
    [
        ("i", pa.array([1, None, 255], pa.uint8()), [1, None, 255]),
        ("i", pa.array([-1, None, 2**31 - 1], pa.int64()), [-1, None, 2**31 - 1]),
        ("l", pa.array([0, None, 2**63 - 1], pa.uint64()), [0, None, 2**63 - 1]),
        ("l", pa.array([1, 1, None], pa.int16()).dictionary_encode(), [1, 1, None]),
        ("f", pa.array([0.1, None, float("inf")], pa.float64()), [0.1, None, "Infinity"]),
        ("f", pa.array([2**53 + 1, None, 16777217], pa.int64()), [2**53 + 1, None, 16777217]),
        ("d", pa.array([2**53 + 1, None, -1], pa.int64()), [2**53 + 1, None, -1]),
        ("d", pa.array([2**64 - 1, None, 0], pa.uint64()), [2**64 - 1, None, 0]),
        ("d", pa.array([0.5, None, float("nan")], pa.float16()), [0.5, None, "NaN"]),
        ("d", pa.array([-0.0, None, -float("nan")], pa.float64()), [-0.0, None, "NaN"]),
        ("y", pa.array([b"ab", None, b"\0\xff"], pa.binary(2)), ["YWI=", None, "AP8="]),
        ("t", pa.array([0, None, -DAY_S], pa.timestamp("s")),
         ["1970-01-01T00:00:00Z", None, "1969-12-31T00:00:00Z"]),
        ("t", pa.array([1000, None, -1000], pa.timestamp("ns", "Asia/Tokyo")),
         ["1970-01-01T00:00:00.000001Z", None, "1969-12-31T23:59:59.999999Z"]),
        ("t", pa.array([1, None, None], pa.timestamp("ms")), ["1970-01-01T00:00:00.001Z", None, None]),
        ("m", pa.array([Decimal("1.50"), None, Decimal("-0.00")], pa.decimal128(10, 2)), ["1.5", None, "0"]),
        ("m", pa.array([1, None, -20], pa.int8()), [1, None, -20]),
        ("j", pa.array(['{"b": [1, 2.50]}', "null", None], pa.large_string()), [{"b": [1, 2.5]}, None, None]),
        ("s", pa.nulls(3), [None, None, None]),
        ("y", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None, None], pa.binary(16))),
         ["MDAwMDAwMDAwMDAwMDAwMA==", None, None]),
    ],
)
def test_what_each_type_takes(column: str, array: pa.Array, sent: list[Any]) -> None:
    made = records(CODEC, stream({"k": KEYS, column: array}))
    assert [(r.key, r.value) for r in made] == [CODEC.encode_json_row({"k": k, column: v}) for k, v in enumerate(sent)]


@pytest.mark.parametrize(
    ("column", "array", "problem", "row"),
    [
        ("i", pa.array([0, None, 2**31]), "range of int32", 2),
        ("l", pa.array([0, 2**63, 1], pa.uint64()), "range of int64", 1),
        ("f", pa.array([0.0, float("inf"), 3.5e38]), "range of float32", 2),
        ("t", pa.array([0, 1000, 1001], pa.timestamp("ns")), "finer than a microsecond", 2),
        ("t", pa.array([0, 253_402_300_800, 1], pa.timestamp("s")), "years 1 to 9999", 1),
        ("t", pa.array([0, 2**62, 1], pa.timestamp("s")), "years 1 to 9999", 1),
        ("m", pa.array([Decimal(10**38), None, None], pa.decimal256(40, 0)), "38 digits", 0),
        ("j", pa.array(["1", "{", None]), "not JSON text", 1),
        ("j", pa.array(["1", "[" * 40 + "]" * 40, None]), "nested deeper", 1),
        ("j", pa.array(["1", "[" * 100_000, None]), "not JSON text", 1),
        ("z", pa.array([1, None, 2]), "must not be null", 1),
        ("z", pa.nulls(3), "must not be null", 0),
        ("i", pa.array([1.0, 2.0, 3.0]), "takes an integer type", None),
        ("i", pa.array([True, False, True]), "takes an integer type", None),
        ("b", pa.array([1, 0, 1]), "takes bool", None),
        ("s", pa.array([b"a", b"b", b"c"]), "takes a string type", None),
        ("s", pa.array([["a"], [], []]), "takes a string type", None),
        ("t", pa.array([1, 2, 3], pa.date32()), "takes a timestamp type", None),
        ("t", pa.array([1, 2, 3]), "takes a timestamp type", None),
        ("d", pa.array(["1", "2", "3"]), "takes a float or integer type", None),
        ("m", pa.array([1.0, 2.0, 3.0]), "takes a decimal or integer type", None),
        ("colour", pa.array([1, 2, 3]), "is not a column of table 't'", None),
    ],
)
def test_a_bad_column_is_named_and_its_row(column: str, array: pa.Array, problem: str, row: int | None) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        records(CODEC, stream({"k": KEYS, column: array}))
    assert caught.value.fields["column"] == column
    assert caught.value.fields.get("row") == row


def test_rows_are_counted_over_the_whole_stream() -> None:
    batches = [pa.RecordBatch.from_pydict({"k": KEYS, "z": pa.array(z, pa.int32())}) for z in ([1, 2, 3], [1, None, 3])]
    with pytest.raises(InvalidInput, match="row 4 "):
        records(CODEC, stream_of(batches))


def test_keys_are_complete() -> None:
    for type_name, bad, problem in (
        ("float64", pa.array([0.0, float("nan")]), "NaN"), ("string", pa.array(["a", None]), "null"),
        ("decimal", pa.array([1, None]), "null"), ("string", pa.nulls(2), "null"),
    ):
        codec = RowCodec(table([("k", type_name)], ["k"]))
        with pytest.raises(InvalidInput, match=f"'k', row [01] .*{problem}"):
            records(codec, stream({"k": bad}))
    with pytest.raises(InvalidInput, match="'k': is missing"):
        records(CODEC, stream({"i": KEYS}))
    strict = RowCodec(table([{"name": "k", "type": "bool"}, {"name": "v", "type": "bool", "nullable": False}], ["k"]))
    with pytest.raises(InvalidInput, match="'v': is missing"):
        records(strict, stream({"k": pa.array([True])}))


def test_json_text_of_null_is_null() -> None:
    codec = RowCodec(table([("k", "int64"), {"name": "j", "type": "json", "nullable": False}], ["k"]))
    with pytest.raises(InvalidInput, match=r"'j', row 2 .*must not be null"):
        records(codec, stream({"k": KEYS, "j": pa.array(["1", "[]", " null"])}))


@pytest.mark.parametrize("type_name", ["float32", "float64"])
def test_minus_zero_is_zero_in_a_key(type_name: str) -> None:
    codec = RowCodec(table([("k", type_name)], ["k"]))
    (record,) = records(codec, stream({"k": pa.array([-0.0])}))
    assert record.key == codec.encode_json_row({"k": 0.0})[0]


def test_integers_of_a_slice_in_big_endian() -> None:
    assert big_endian(pa.array([1, 2, 3, 4], pa.int32()).slice(1, 2), 4).to_pylist() == [b"\0\0\0\2", b"\0\0\0\3"]


def test_a_column_twice() -> None:
    batch = pa.RecordBatch.from_arrays([KEYS, KEYS, KEYS], names=["k", "l", "l"])
    with pytest.raises(InvalidInput, match="'l': is in the Arrow stream twice"):
        records(CODEC, stream_of([batch]))


def test_limits() -> None:
    body = stream({"k": KEYS})
    assert len(records(CODEC, body, rows_max=3)) == 3
    with pytest.raises(TooLarge, match="more than 2 rows"):
        records(CODEC, body, rows_max=2)
    long = stream({"k": KEYS, "s": pa.array(["a", "b" * 1000, "c"])})
    small = RowCodec(CODEC.schema, row_bytes_max=500)
    with pytest.raises(TooLarge, match="row of table 't' takes"):
        records(small, long)
    assert len(records(RowCodec(CODEC.schema, row_bytes_max=2000), long)) == 3
    with pytest.raises(TooLarge, match=r"key .* of table 't' takes"):
        records(RowCodec(table([("k", "string")], ["k"]), key_bytes_max=9), stream({"k": pa.array(["a", "b" * 8])}))


def test_a_dictionary_does_not_grow_past_the_limit() -> None:
    few = pa.DictionaryArray.from_arrays(pa.array([0] * 999, pa.int32()), pa.array(["x" * 100_000]))
    body = stream({"k": pa.array(range(999)), "s": few})
    assert len(body) < 200_000
    with pytest.raises(TooLarge, match="decodes to more than 50000000 bytes"):
        records(CODEC, body, decoded_bytes_max=50_000_000)
    rare = pa.DictionaryArray.from_arrays(pa.array([1] * 999, pa.int32()), pa.array(["x" * 100_000, "y"]))
    assert len(records(CODEC, stream({"k": pa.array(range(999)), "s": rare}), decoded_bytes_max=50_000_000)) == 999


def test_views_of_the_same_bytes_do_not_grow_past_the_limit() -> None:
    """A thousand rows may show one long text."""
    text = "x" * 100_000
    place = pa.array([text], pa.string_view()).buffers()
    same = pa.Array.from_buffers(pa.string_view(), 999, [None, pa.py_buffer(place[1].to_pybytes() * 999), place[2]])
    body = stream({"k": pa.array(range(999)), "s": same})
    assert len(body) < 200_000
    with pytest.raises(TooLarge, match="decodes to more than 50000000 bytes"):
        records(CODEC, body, decoded_bytes_max=50_000_000)
    assert len(records(CODEC, body, decoded_bytes_max=150_000_000)) == 999
    coded = pa.DictionaryArray.from_arrays(pa.array(range(999), pa.int32()), same)
    with pytest.raises(InvalidInput, match="not dictionary<values=string_view"):
        records(CODEC, stream({"k": pa.array(range(999)), "s": coded}))


def test_a_stream_cut_at_any_byte_is_malformed() -> None:
    batch = pa.RecordBatch.from_pydict({"k": KEYS, "s": pa.array(["a", "b", None])})
    body = stream_of([batch, batch])
    assert len(records(CODEC, body)) == 6
    for length in range(len(body)):
        with pytest.raises(MalformedBody):
            records(CODEC, body[:length])
    for more in (b"\0", body):
        with pytest.raises(MalformedBody):
            records(CODEC, body + more)


def test_a_cut_after_bytes_that_look_like_the_end_mark_is_malformed() -> None:
    batch = pa.RecordBatch.from_pydict({"k": pa.array([0xFFFFFFFF])})
    one = stream_of([batch])[:-8]
    assert one.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    with pytest.raises(MalformedBody, match="end mark"):
        records(CODEC, one)


def _replaced(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) == 1
    return body.replace(old, new)


def test_unsound_buffers_are_malformed() -> None:
    text = _replaced(stream({"k": KEYS, "s": pa.array(["abcdefgh", "x", "y"])}), b"abcdefgh", b"abc\xff\xfegh.")
    ends, far = (77).to_bytes(4, "little") * 3, (10**9).to_bytes(4, "little") * 3
    offsets = _replaced(stream({"k": KEYS, "s": pa.array(["a" * 77, "", ""])}), ends, far)
    places = _replaced(
        stream({"k": KEYS, "s": pa.DictionaryArray.from_arrays(pa.array([91, 91, 91], pa.int8()), pa.array(["a"] * 92))}),
        bytes([91] * 3), bytes([101] * 3),
    )
    for body in (text, offsets, places):
        with pytest.raises(MalformedBody, match="not a sound Arrow IPC stream"):
            records(CODEC, body)


@given(st.binary(max_size=64))
def test_any_bytes_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        records(CODEC, body)


def test_a_changed_byte_never_escapes_the_error_tree() -> None:
    body = stream({"k": KEYS, "s": pa.array(["a", "b", None]).dictionary_encode(), "d": pa.array([1.0, 2.0, None])})
    for place, old in enumerate(body):
        for value in {0, 0x80, old ^ 1} - {old}:
            changed = bytearray(body)
            changed[place] = value
            with contextlib.suppress(InvalidInput):
                records(CODEC, bytes(changed))


def test_empty_streams() -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.dictionary(pa.int8(), pa.string()))])
    assert records(CODEC, stream_of([], schema)) == []
    assert records(CODEC, stream({"k": pa.array([], pa.int64())})) == []


@pytest.mark.parametrize("type_name", ["int32", "timestamp", "float32", "float64", "bool", "decimal", "string", "bytes"])
@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_keys_of_a_slice(type_name: str, data: st.DataObject) -> None:
    codec = RowCodec(table([("k", type_name), ("v", "int64")], ["k"]))
    values = data.draw(st.lists(stored_in_key(type_name), min_size=3, max_size=6))
    array = arrow_column(type_name, values, ARROW[type_name][0])
    batch = pa.RecordBatch.from_pydict({"k": array, "v": pa.array(range(len(values)))}).slice(1, len(values) - 2)
    made = records(codec, stream_of([batch]))
    twin = [codec.encode_json_row({"k": v, "v": i}, native=True) for i, v in enumerate(values)][1:-1]
    assert [(r.key, r.value) for r in made] == twin


def test_a_bomb_is_refused_before_it_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow allocates the declared size of a compressed buffer unseen: it is read from the stream's metadata first."""
    batch = pa.RecordBatch.from_pydict({"k": pa.array([1]), "s": pa.array(["x" * 40_000_000])})
    large = RowCodec(CODEC.schema, row_bytes_max=50_000_000)
    assert len(records(large, stream_of([batch], compression="zstd"), decoded_bytes_max=100_000_000)) == 1
    bombs = [stream_of([batch] * 3, compression=compression) for compression in ("zstd", "lz4")]

    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("the stream was opened, and would have been decompressed")

    monkeypatch.setattr(pa.ipc, "open_stream", opened)
    for body in bombs:
        assert len(body) < 600_000
        with pytest.raises(TooLarge, match="decodes to more"):
            records(CODEC, body, decoded_bytes_max=100_000_000)


@given(
    st.lists(st.lists(st.one_of(st.none(), st.text(max_size=200)), min_size=1, max_size=30), min_size=1, max_size=3),
    st.sampled_from([None, "zstd", "lz4"]), st.booleans(),
)
@settings(deadline=None)
def test_the_declared_bytes_are_those_that_come(columns: list[list[str | None]], compression: str | None, coded: bool) -> None:
    """The bound never says less than what Arrow allocates, and little more."""
    arrays = [pa.array(values, pa.string()) for values in columns]
    batches = [pa.RecordBatch.from_arrays([one.dictionary_encode() if coded else one], ["s"]) for one in arrays]
    body = stream_of(batches, compression=compression, emit_dictionary_deltas=False)
    with pa.ipc.open_stream(body) as reader:
        came = [batch.column(0) for batch in reader]
    size = sum(one.nbytes + (one.dictionary.nbytes if coded else 0) for one in came)
    check_declared_bytes(body, size + 64 * 6 * len(batches))  # each buffer is padded
    with pytest.raises(TooLarge):
        check_declared_bytes(body, 0)
    if size > 64 and not coded:  # a dictionary that comes again is sent once
        with pytest.raises(TooLarge):
            check_declared_bytes(body, size // 2)


@given(st.binary(max_size=40), st.integers(0, 400))
@settings(deadline=None)
def test_damaged_metadata_is_malformed(noise: bytes, place: int) -> None:
    body = bytearray(stream({"k": pa.array([1, 2]), "s": pa.array(["a", "b"])}, compression="zstd"))
    body[place : place + len(noise)] = noise
    with contextlib.suppress(MalformedBody, InvalidInput, TooLarge):
        records(CODEC, bytes(body))


def test_defaults_of_columns_that_are_left_out_count() -> None:
    codec = RowCodec(table(
        [{"name": "k", "type": "int64"}, {"name": "s", "type": "string", "default": "x" * 100_000}], ["k"],
    ))
    assert len(records(codec, stream({"k": pa.array(range(5))}), decoded_bytes_max=1_000_000)) == 5
    with pytest.raises(TooLarge, match="defaults"):
        records(codec, stream({"k": pa.array(range(50))}), decoded_bytes_max=1_000_000)
