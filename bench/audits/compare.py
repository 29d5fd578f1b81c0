"""Measures how long the audit `compare` takes, how that grows, and the obvious alternative: `python -m bench.audits.compare`.

Two RocksDB storages are filled by the product's engine with all flights, scaled by years that are put behind each other. Both
keep a snapshot, four faults are planted in one (a row missing, stale, extra, one with a bit of a column flipped), and the audit
must find exactly these. The alternative is what one writes first: both tables as typed rows, in the same Spark, joined by a
full outer join and compared column by column; reading the rows as typed ones (written as Parquet) and the join are two figures.
The rounds are interleaved; the end shows medians and spreads.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bench.rounds import Rounds, told
from gateway.load.sources import open_source
from spark_jobs.audit.session import open_session
from spark_jobs.compare import job as compare
from spark_jobs.job import FORMAT, Barrier, JobRequest, Outcome, SiteSource
from storage.engine import StoredRow
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.arrow import arrow_records
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema, decode_schema, encode_schema, parse_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = 1
BATCH_ROWS = 1000
_YEAR_US = 365 * 86_400_000_000
_SPARK_TYPES = {"int32": "int", "string": "string", "timestamp": "timestamp"}
_ARROW_TYPES = {"int32": pa.int32(), "string": pa.string(), "timestamp": pa.timestamp("us", tz="UTC")}


@dataclass(frozen=True, slots=True)
class FilledPair:
    """Two filled storages with their snapshots: equal ones, and ones with the faults planted in the peer."""

    rows: int
    schema: TableSchema
    equal: JobRequest
    planted: JobRequest


class Silent:
    def step(self, what: str) -> None: ...
    def rows(self, done: int, total: int | None = None) -> None: ...


def log(schema: TableSchema, source: pa.Table, years: int) -> Iterator[Frame]:
    """All flights, `years` times, as the frames of one log."""
    change = SchemaChange(kind="put", table=TABLE, schema=encode_schema(schema), history_s=0)
    codec = RowCodec(schema)
    records = [Record(kind=int(RecordKind.DDL), table=TABLE, value=msgspec.msgpack.encode(change))]
    seq = 0
    for year in range(years):
        moved = pc.add(source.column("time_hour").cast(pa.int64()), year * _YEAR_US).cast(source.schema.field("time_hour").type)
        rows = source.set_column(source.schema.get_field_index("time_hour"), "time_hour", moved)
        for first in range(0, rows.num_rows, BATCH_ROWS):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows.slice(first, BATCH_ROWS))
            records += arrow_records(sink.getvalue().to_pybytes(), codec, rows_max=BATCH_ROWS)
            frame = make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=seq + 1, committed=seq, records=records)
            yield frame
            seq, records = frame.last_seq, []


async def filled(folder: Path, years: int) -> FilledPair:
    flights = open_source("flights", "", ())
    schema = parse_table(flights.table_body(), TABLE)
    engines = [await RocksEngine.open(folder / name, RocksSettings()) for name in "ab"]
    for frame in log(schema, flights.rows, years):
        for engine in engines:
            await engine.apply([frame])
    barrier = Barrier("bench", 1, engines[0].applied.seq)

    async def kept(name: str) -> JobRequest:
        sites = []
        for site, engine in zip("ab", engines, strict=True):
            await engine.keep_snapshot(name, 0)
            (place,) = (one.place for one in engine.kept_snapshots() if one.name == name)
            sites.append(SiteSource(site, "", place=place))
        return JobRequest("compare", "bench", sites[0], sites[1], folder, barrier=barrier)

    equal = await kept("equal")
    await plant(engines[1], schema)
    pair = FilledPair(flights.rows.num_rows * years, schema, equal, await kept("planted"))
    for engine in engines:
        await engine.close()
    return pair


async def plant(engine: RocksEngine, schema: TableSchema) -> None:
    """One row missing, one stale, one extra, and one with a bit of a column flipped, far from each other."""
    there = await engine.scan(TABLE, None, None, reverse=False, limit=200_000)
    missing, stale, damaged = there[7], there[90_000], there[-1]
    last = schema.value_columns[-1].id
    values = msgspec.msgpack.decode(damaged.value, type=dict[int, object])
    assert isinstance(values[last], int)
    flipped = msgspec.msgpack.encode({**values, last: int(str(values[last])) ^ 1})
    extra = StoredRow(stale.key[:-3] + b"~" + stale.key[-2:], stale.value, stale.version)
    await engine.replace_rows(
        [
            (TABLE, missing.key, None), (TABLE, stale.key, StoredRow(stale.key, stale.value, stale.version - 1)),
            (TABLE, extra.key, extra), (TABLE, damaged.key, StoredRow(damaged.key, flipped, damaged.version)),
        ],
        engine.applied.seq, engine.applied.epoch, engine.applied.timestamp,
    )


def audit(spark: SparkSession, asked: JobRequest, faults: int) -> str:
    outcome: Outcome = compare.run(spark, asked, Silent())
    kinds = sorted(row["kind"] for row in outcome.findings.collect())
    if kinds != ["damaged", "extra", "missing", "stale"][:faults] or outcome.counters["BADROWS"] != faults:
        raise SystemExit(f"expected {faults} faults, found {kinds}: {dict(outcome.counters)}")
    counted = outcome.counters
    return f"{counted['GOODROWS']:,} good rows, {counted['RANGES_DIFFERENT']} of {counted['RANGES']} ranges read, found {kinds}"


def typed_batches(schema: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    codec = RowCodec(decode_schema(schema))
    decode = codec.decoder(native=True)
    kinds = [(column.name, _ARROW_TYPES[column.type]) for column in codec.schema.columns]
    for batch in batches:
        rows = list(map(decode, batch.column("key").to_pylist(), batch.column("row").to_pylist()))
        arrays = [pa.array([row[name] for row in rows], kind) for name, kind in kinds]
        yield pa.RecordBatch.from_arrays([*arrays, batch.column("version")], [*(name for name, _ in kinds), "version"])


def typed(spark: SparkSession, pair: FilledPair, site: SiteSource) -> DataFrame:
    columns = [f"{column.name} {_SPARK_TYPES[column.type]}" for column in pair.schema.columns]
    rows = spark.read.format(FORMAT).options(view="rows", place=site.place).load()
    return rows.mapInArrow(partial(typed_batches, encode_schema(pair.schema)), ", ".join([*columns, "version bigint"]))


def export(spark: SparkSession, pair: FilledPair, folder: Path) -> str:
    for name, site in zip("ab", (pair.planted.source, pair.planted.peer), strict=True):
        typed(spark, pair, site).write.parquet(str(folder / name))
    return ""


def outer_join(spark: SparkSession, pair: FilledPair, folder: Path) -> str:
    from pyspark.sql import functions as f

    key = list(pair.schema.primary_key)
    values = [*(column.name for column in pair.schema.value_columns), "version"]
    ours, theirs = (
        spark.read.parquet(str(folder / name)).select(*key, *(f.col(value).alias(f"{value}_{name}") for value in values))
        for name in "ab"
    )
    differs = ~f.col("version_a").eqNullSafe(f.col("version_b"))
    for value in values:
        differs = differs | ~f.col(f"{value}_a").eqNullSafe(f.col(f"{value}_b"))
    return f"found {ours.join(theirs, key, how='full_outer').where(differs).count()} rows that differ"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.audits.compare", description=__doc__)
    parser.add_argument("--years", type=int, nargs="+", default=[10, 1, 3], help="sizes, in years of 336,776 flights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--without-join", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-") as made:
        folder = Path(made)
        pairs = {}
        for years in chosen.years:
            began = time.perf_counter()
            pairs[years] = asyncio.run(filled(folder / str(years), years))
            sys.stdout.write(f"filled twice with {pairs[years].rows:,} rows in {time.perf_counter() - began:.0f} s\n")
        rounds, begun = Rounds(), time.perf_counter()
        spark = open_session(chosen.master, "bench", {})
        told("a session", f"{time.perf_counter() - begun:7.2f} s")
        for number in range(chosen.rounds):
            for pair in pairs.values():
                for what, asked, faults in (("equal", pair.equal, 0), ("four faults", pair.planted, 4)):
                    rounds.measured(f"compare, {pair.rows:,} rows a side, {what}", partial(audit, spark, asked, faults))
            largest = pairs[max(pairs)]
            if not chosen.without_join:
                to = folder / f"typed{number}"
                rounds.measured("alternative: both tables as typed rows", partial(export, spark, largest, to))
                rounds.measured("alternative: full outer join of these", partial(outer_join, spark, largest, to))
        rounds.summary()
        spark.stop()


if __name__ == "__main__":
    main()
