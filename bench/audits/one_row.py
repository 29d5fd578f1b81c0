"""Measures one row by key out of the view `rows`, and a scan of it all, against Parquet: `python -m bench.audits.one_row`.

A RocksDB storage is filled by the product's engine with rows of about 100 random bytes, and keeps a snapshot. Parquet has the
same rows: key, version and stored bytes, in the order of the keys. The rounds are interleaved; each row that is sought is
another one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.rounds import Rounds, told
from spark_jobs.audit.session import open_session
from spark_jobs.job import FORMAT
from spark_jobs.reading import read_where
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema, encode_schema, parse_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = 1
FRAME_ROWS = 2000
SCANNED = "sum(length(key) + length(row)) AS bytes"


def schema_of() -> TableSchema:
    columns = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}]
    return parse_table({"name": "orders", "columns": columns, "primary_key": ["id"]}, TABLE)


def log(codec: RowCodec, rows: int) -> Iterator[Frame]:
    """The table, and its rows in the order of their keys."""
    change = SchemaChange(kind="put", table=TABLE, schema=encode_schema(codec.schema), history_s=0)
    records = [Record(kind=int(RecordKind.DDL), table=TABLE, value=msgspec.msgpack.encode(change))]
    seq = 0
    for first in range(0, rows, FRAME_ROWS):
        for number in range(first, min(first + FRAME_ROWS, rows)):
            key, value = codec.encode_json_row({"id": number, "text": random.randbytes(40).hex()})
            records.append(Record(kind=int(RecordKind.UPSERT), table=TABLE, key=key, value=value))
        frame = make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=seq + 1, committed=seq, records=records)
        yield frame
        seq, records = frame.last_seq, []


async def filled(folder: Path, codec: RowCodec, rows: int) -> str:
    """The place of the snapshot."""
    engine = await RocksEngine.open(folder, RocksSettings())
    for frame in log(codec, rows):
        await engine.apply([frame])
    await engine.keep_snapshot("bench", 0)
    (place,) = (one.place for one in engine.kept_snapshots())
    await engine.close()
    return place


def one_row(open_rows: Callable[[], DataFrame]) -> str:
    rows = open_rows().count()
    if rows != 1:
        raise SystemExit(f"{rows} rows have the key, not one")
    return ""


def whole(open_rows: Callable[[], DataFrame]) -> str:
    ((size,),) = open_rows().selectExpr(SCANNED).collect()
    return f"{size:,} bytes"


def measured(spark: SparkSession, rounds: Rounds, codec: RowCodec, options: dict[str, str], parquet: str, rows: int) -> None:
    """One round of everything."""
    view, file = spark.read.format(FORMAT).options(**options).load, partial(spark.read.parquet, parquet)
    for repeated in range(5):
        condition = f"key = X'{codec.encode_key({'id': random.randrange(rows)}).hex()}'"
        rounds.measured("`read_where`: one row by key", partial(one_row, partial(read_where, spark, condition, options)))
        rounds.measured("Parquet: the same row", partial(one_row, partial(filtered, file, condition)))
        if not repeated:
            rounds.measured("a `where` on a `load()`: the same row", partial(one_row, partial(filtered, view, condition)))
    rounds.measured("the whole view", partial(whole, view))
    rounds.measured("the whole Parquet", partial(whole, file))


def filtered(open_rows: Callable[[], DataFrame], condition: str) -> DataFrame:
    return open_rows().where(condition)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.audits.one_row", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    codec = RowCodec(schema_of())
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-") as made:
        begun = time.perf_counter()
        place = asyncio.run(filled(Path(made) / "engine", codec, chosen.rows))
        sys.stdout.write(f"filled with {chosen.rows:,} rows in {time.perf_counter() - begun:.0f} s\n")
        options, parquet = {"view": "rows", "place": place}, str(Path(made) / "parquet")
        spark, rounds = open_session(chosen.master, "bench", {}), Rounds()
        begun = time.perf_counter()
        spark.read.format(FORMAT).options(**options).load().write.parquet(parquet)
        told("Parquet written", f"{time.perf_counter() - begun:7.2f} s")
        for _ in range(chosen.rounds):
            measured(spark, rounds, codec, options, parquet, chosen.rows)
        rounds.summary()
        spark.stop()


if __name__ == "__main__":
    main()
