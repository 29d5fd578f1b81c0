"""Rows a second that the SQL engine applies, and the latency of its reads. Run: `python -m bench.sql_engine`.

A PostgreSQL of its own (syncs on, defaults otherwise) in a temporary folder, and SQLite; rows like those of the flights
table, 19 typed columns and an integer key; each figure is the median of several rounds, each on a new database.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.servers.postgres import PostgresServer, running
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema, encode_schema, parse_table

COLUMNS = {
    "year": "int32", "month": "int32", "day": "int32", "dep_time": "int64", "sched_dep_time": "int64", "dep_delay": "float64",
    "arr_time": "int64", "sched_arr_time": "int64", "arr_delay": "float64", "carrier": "string", "flight": "int64",
    "tailnum": "string", "origin": "string", "dest": "string", "air_time": "float64", "distance": "float64", "hour": "int64",
    "minute": "int64", "time_hour": "timestamp",
}


def flights() -> TableSchema:
    columns = [{"name": "id", "type": "int64"}, *({"name": name, "type": kind} for name, kind in COLUMNS.items())]
    return parse_table({"name": "flights", "columns": columns, "primary_key": ["id"]}, 1)


def row(number: int) -> dict[str, object]:
    return {
        "id": number, "year": 2013, "month": number % 12 + 1, "day": number % 28 + 1, "dep_time": 517, "sched_dep_time": 515,
        "dep_delay": 2.0, "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11.0, "carrier": "UA", "flight": number % 6000,
        "tailnum": f"N{number % 9999}", "origin": "EWR", "dest": "IAH", "air_time": 227.0, "distance": 1400.0, "hour": 5,
        "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
    }


class Frames:
    """One log's frames."""

    def __init__(self) -> None:
        self.seq, self.timestamp = 0, 1

    def of(self, records: list[Record]) -> Frame:
        frame = make_frame(
            epoch=1, first_seq=self.seq + 1, previous=self.seq, timestamp=self.timestamp, committed=self.seq, records=records
        )
        self.seq, self.timestamp = frame.last_seq, self.timestamp + len(records) + 1
        return frame


async def one_round(url: str, rows: int, batch: int) -> dict[str, float]:
    schema = flights()
    codec, log = RowCodec(schema), Frames()
    stored = [codec.encode_json_row(row(number)) for number in range(rows)]
    change = SchemaChange(kind="put", table=1, schema=encode_schema(schema), history_s=0)
    engine = await SqlEngine.open(SqlSettings(url, "bench", "a"))
    await engine.apply([log.of([Record(kind=int(RecordKind.DDL), table=1, value=msgspec.msgpack.encode(change))])])

    async def applied(make: Callable[[bytes, bytes], Record], of: list[tuple[bytes, bytes]], size: int) -> float:
        frames = [log.of([make(*pair) for pair in of[at : at + size]]) for at in range(0, len(of), size)]
        begin = time.perf_counter()
        for frame in frames:
            await engine.apply([frame])
        await engine.flush()
        return len(of) / (time.perf_counter() - begin)

    def upsert(key: bytes, value: bytes) -> Record:
        return Record(kind=int(RecordKind.UPSERT), table=1, key=key, value=value)

    def update(key: bytes, _: bytes) -> Record:
        return Record(kind=int(RecordKind.UPDATE), table=1, key=key, value=msgspec.msgpack.encode({6: 9.5}))

    told = {
        "insert, rows/s": await applied(upsert, stored, batch), "replace, rows/s": await applied(upsert, stored, batch),
        "update of one column, rows/s": await applied(update, stored, batch),
        "applies of one row, a second": await applied(upsert, stored[:1000], 1),
    }
    begin = time.perf_counter()
    for key, _ in stored[:1000]:
        await engine.get(1, key)
    told["get, us"] = (time.perf_counter() - begin) * 1e6 / 1000
    begin = time.perf_counter()
    await engine.scan(1, None, None, reverse=False, limit=rows)
    told["scan, rows/s"] = rows / (time.perf_counter() - begin)
    await engine.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sql_engine", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=1000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with running(PostgresServer(Path(folder) / "server")) as server:
            for kind in ("postgresql", "sqlite"):
                rounds = []
                for number in range(chosen.rounds):
                    url = f"sqlite:///{folder}/{number}.db"
                    if kind == "postgresql":
                        server.create_database(f"round{number}")
                        url = server.url(f"round{number}")
                    rounds.append(asyncio.run(one_round(url, chosen.rows, chosen.batch)))
                for name in rounds[0]:
                    figures = sorted(told[name] for told in rounds)
                    middle = statistics.median(figures)
                    sys.stdout.write(f"{kind:10} {name:30} {middle:10,.0f}  ({figures[0]:,.0f} to {figures[-1]:,.0f})\n")


if __name__ == "__main__":
    main()
