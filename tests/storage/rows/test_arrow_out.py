"""Rows that leave as an Arrow stream: sent in again, they are the same bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from storage.engine import StoredRow
from storage.rows.arrow import arrow_records
from storage.rows.arrow_out import ArrowOut
from storage.rows.codec import RowCodec
from tests.storage.rows.strategies import stored_rows, table, tables


@st.composite
def codecs_and_rows(draw: st.DrawFn) -> tuple[RowCodec, list[dict[str, Any]], int]:
    codec = RowCodec(draw(tables()))
    return codec, draw(st.lists(stored_rows(codec.schema), max_size=6)), draw(st.integers(0, 6))


@given(codecs_and_rows())
def test_what_comes_out_goes_in_again(drawn: tuple[RowCodec, list[dict[str, Any]], int]) -> None:
    codec, rows, cut = drawn
    stored = [StoredRow(*codec.encode_json_row(row, native=True), version) for version, row in enumerate(rows)]
    out = ArrowOut(codec, None)
    body = out.part(stored[:cut]) + out.part(stored[cut:]) + out.end()
    records = arrow_records(body, codec, rows_max=10)
    assert [(record.key, record.value) for record in records] == [(row.key, row.value) for row in stored]


@given(codecs_and_rows(), st.data())
def test_some_columns(drawn: tuple[RowCodec, list[dict[str, Any]], int], data: st.DataObject) -> None:
    codec, rows, _ = drawn
    names = [column.name for column in codec.schema.columns]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    stored = [StoredRow(*codec.encode_json_row(row, native=True), 1) for row in rows]
    out = ArrowOut(codec, chosen)
    read = pa.ipc.open_stream(out.part(stored) + out.end()).read_all()
    assert read.column_names == [name for name in names if name in chosen]
    assert read.num_rows == len(rows)


def test_a_stream_that_is_cut_off_is_seen_as_one() -> None:
    """Whoever reads it must not take a part for the whole."""
    codec = RowCodec(table([{"name": "k", "type": "int64"}], ["k"]))
    out = ArrowOut(codec, None)
    part = out.part([StoredRow(*codec.encode_json_row({"k": 1}), 1)])
    assert not part.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    assert out.end() == b"\xff\xff\xff\xff\0\0\0\0"
