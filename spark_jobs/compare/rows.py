"""Rows of both sites compared, as functions from DataFrames to DataFrames.

What always holds: a row is the same when key, version and stored bytes are; a difference says what is wrong with it:

| kind | the row |
|---|---|
| missing | is not on the peer |
| extra | is not on the source |
| stale | is of another version on the peer |
| damaged | is of the same version, and of other bytes |
| missing table, extra table | (no row: the whole table is on one site only; its rows follow one by one) |

Only rows that differ are decoded, and only that needs Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from storage.rows.codec import RowCodec
from storage.rows.schema import decode_schema

KINDS = MISSING, EXTRA, STALE, DAMAGED = "missing", "extra", "stale", "damaged"
MISSING_TABLE, EXTRA_TABLE = "missing table", "extra table"
DIFFERENCES = (
    "table string, key binary, key_text string, kind string, source_version bigint, peer_version bigint, "
    "source_row string, peer_row string, range int"
)
_SHOWN = pa.schema([
    ("id", pa.int64()), ("table", pa.string()), ("key", pa.binary()), ("key_text", pa.string()), ("kind", pa.string()),
    ("source_version", pa.int64()), ("peer_version", pa.int64()), ("source_row", pa.string()), ("peer_row", pa.string()),
    ("range", pa.int32()),
])
_UNSIGNED = (1 << 64) - 1


def differing_rows(source: DataFrame, peer: DataFrame) -> DataFrame:
    """The rows (snapshot_source.ROWS, of the same ranges) that are not the same on both sides, in key order.

    table bigint, range int, key binary, kind string, source_version, peer_version bigint, source_value, peer_value binary.
    """
    ours = source.select("table", "range", "key", f.col("version").alias("source_version"), f.col("row").alias("source_value"))
    theirs = peer.select("table", "range", "key", f.col("version").alias("peer_version"), f.col("row").alias("peer_value"))
    kind = (
        f.when(f.col("peer_version").isNull(), MISSING)
        .when(f.col("source_version").isNull(), EXTRA)
        .when(f.col("source_version") != f.col("peer_version"), STALE)
        .when(f.col("source_value") != f.col("peer_value"), DAMAGED)
    )
    joined = ours.join(theirs, ["table", "range", "key"], how="full_outer").withColumn("kind", kind)
    return joined.where(f.col("kind").isNotNull()).orderBy("table", "key").select(
        "table", "range", "key", "kind", "source_version", "peer_version", "source_value", "peer_value"
    )


def shown_rows(rows: DataFrame, schemas: Mapping[int, bytes]) -> DataFrame:
    """Returns the rows of `differing_rows` as people read them: DIFFERENCES behind the table's `id`. `schemas` are encoded."""
    return rows.mapInArrow(partial(_shown, dict(schemas)), f"id bigint, {DIFFERENCES}")


def _shown(schemas: Mapping[int, bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    codecs: dict[int, RowCodec] = {}
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            number, key = row["table"] & _UNSIGNED, row["key"]
            codec = codecs.get(number)
            if codec is None:
                codec = codecs[number] = RowCodec(decode_schema(schemas[number]))
            found.append({
                "id": row["table"], "table": codec.schema.name, "key": key, "key_text": key_text(codec, key),
                "kind": row["kind"], "source_version": row["source_version"], "peer_version": row["peer_version"],
                "source_row": row_json(codec, key, row["source_value"]), "peer_row": row_json(codec, key, row["peer_value"]),
                "range": row["range"],
            })
        yield pa.RecordBatch.from_pylist(found, schema=_SHOWN)


def key_text(codec: RowCodec, key: bytes) -> str:
    """A key as it stands in a path; one that does not decode as 0x and its hex."""
    return _unless_damaged(lambda: codec.keys.path_from_key(key)) or f"0x{key.hex()}"


def row_json(codec: RowCodec, key: bytes, value: bytes | None) -> str | None:
    """A row as JSON, as the gateway answers it; one whose bytes do not decode as {"damaged_bytes": hex}."""
    if value is None:
        return None
    whole = _unless_damaged(lambda: msgspec.json.encode(codec.decode_row(key, value)).decode())
    return whole or msgspec.json.encode({"damaged_bytes": value.hex()}).decode()


def _unless_damaged(decoded: Callable[[], str]) -> str | None:
    try:
        return decoded()
    except Exception:  # damaged bytes may break any step of a decoder
        return None
