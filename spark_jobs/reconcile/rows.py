"""The fate of a tail's rows, as functions from DataFrames to DataFrames.

What always holds: a row is judged at each site by itself, and the worse of both counts:

| outcome | at the site stands |
|---|---|
| applied | this very version; of a delete: no row |
| superseded | a later version of the row; or none, and a later delete is in the log, or the table was dropped |
| lost | neither |

A delete leaves nothing behind in storage, so a row that is not there is superseded only where a delete is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.compare.rows import key_text, row_json
from storage.rows.codec import RowCodec
from storage.rows.schema import decode_schema
from twinlog.decoding import decoded
from twinlog.errors import LogError

OUTCOMES = APPLIED, SUPERSEDED, LOST = "applied", "superseded", "lost"
CHANGES = (
    "table bigint, key binary, operation string, value binary, version bigint, seq bigint, epoch bigint, records int, "
    "gone boolean"
)
RECONCILED = (
    "table string, key binary, key_text string, kind string, operation string, version bigint, seq bigint, epoch bigint, "
    "records int, row string, source_kind string, source_version bigint, source_row string, peer_kind string, "
    "peer_version bigint, peer_row string"
)
_SIDES = "source", "peer"
_TYPES = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
_SHOWN = pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in RECONCILED.split(", "))])
_UNSIGNED = (1 << 64) - 1


def judged(changes: DataFrame, source: DataFrame, peer: DataFrame, deletes: DataFrame) -> DataFrame:
    """CHANGES (`gone`: the table was dropped since) with `kind` and what stands at both sites: snapshot_source.ROWS.

    `deletes`: table bigint, key binary, deleted bigint: the newest version at which a row is known to have been deleted.
    """
    found = changes.join(deletes, ["table", "key"], how="left")
    for side, rows in zip(_SIDES, (source, peer), strict=True):
        there = rows.select("table", "key", f.col("version").alias(f"{side}_version"), f.col("row").alias(f"{side}_value"))
        found = found.join(there, ["table", "key"], how="left").withColumn(f"{side}_kind", _outcome(side))
    kinds = [f.col(f"{side}_kind") for side in _SIDES]
    worse = f.when(_any(kinds, LOST), LOST).when(_any(kinds, SUPERSEDED), SUPERSEDED).otherwise(APPLIED)
    return found.withColumn("kind", worse)


def _any(kinds: list[Column], outcome: str) -> Column:
    return (kinds[0] == outcome) | (kinds[1] == outcome)


def _outcome(side: str) -> Column:
    there, value = f.col(f"{side}_version"), f.col(f"{side}_value")
    removed = f.col("gone") | f.coalesce(f.col("deleted") > f.col("version"), f.lit(False))
    later = (there > f.col("version")) | (there.isNull() & removed)
    whole = (f.col("operation") != "upsert") | f.col("value").isNull() | (f.col("value") == value)
    deleted = (f.col("operation") == "delete") & there.isNull()
    stands = (f.col("operation") != "delete") & (there == f.col("version")) & whole
    return f.when(deleted | stands, APPLIED).when(later, SUPERSEDED).otherwise(LOST)


def shown(rows: DataFrame, schemas: Mapping[int, bytes]) -> DataFrame:
    """Returns the rows of `judged` as people read them: RECONCILED. `schemas`: encoded, of the known tables."""
    return rows.mapInArrow(partial(_shown, dict(schemas)), RECONCILED)


def _shown(schemas: Mapping[int, bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    codecs = {number: RowCodec(decode_schema(schema)) for number, schema in schemas.items()}
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            number, key = row["table"] & _UNSIGNED, row["key"]
            codec = codecs.get(number)
            told = {name: row[name] for name in _SHOWN.names if name in row}
            told["table"] = f"table {number}" if codec is None else codec.schema.name
            told["key_text"] = f"0x{key.hex()}" if codec is None else key_text(codec, key)
            told["row"] = _told(codec, key, row["value"], row["operation"])
            for side in _SIDES:
                told[f"{side}_row"] = _told(codec, key, row[f"{side}_value"], "upsert")
            found.append(told)
        yield pa.RecordBatch.from_pylist(found, schema=_SHOWN)


_changed: Callable[[bytes], dict[int, object]] = msgspec.msgpack.Decoder(dict[int, object]).decode


def _told(codec: RowCodec | None, key: bytes, value: bytes | None, operation: str) -> str | None:
    """A row as JSON; of an update only key and changed columns."""
    if value is None or (codec is not None and operation != "update"):
        return None if value is None or codec is None else row_json(codec, key, value)
    if codec is None:
        return msgspec.json.encode({"bytes": value.hex()}).decode()
    name = codec.schema.name
    numbers = decoded(_changed, value, lambda what: LogError(f"an update of {name} does not decode: {what}")).keys()
    names = [each.name for each in codec.schema.columns if each.id in numbers or each.name in codec.keys.names]
    return msgspec.json.encode(codec.decode_row(key, value, names)).decode()
