"""Bytes that RocksDB writes for each byte of payload, while rows of a large table are replaced one by one.

`python -m bench.write_cost` applies single-row frames to an engine alone, and flushes it as a site does, by a clock that is
counted and not waited for: hours of a trickle in minutes. `python -m bench.write_cost --pair` starts a demo pair, fills a
table, sends PUTs at the same rate whether they are answered or not, and measures both sites; it takes as long as it says.
What always holds: keys are drawn from the whole table, values are 100 random letters (RocksDB can take a quarter off them), so
100 bytes are the payload of a PUT; the bytes are those of every file that RocksDB says it made, by its log of events.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.pair import BenchError, Pair
from bench.requests import http
from storage.engines.flushing import FlushNeed, Look
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.settings import EngineSettings
from storage.log.frame import COUNTER_BITS, Frame, make_frame
from storage.log.record import Record, RecordKind

VALUE_BYTES = 100
LOAD_ROWS = 1_000
CONNECTIONS = 16
COLLECT_S = 2.0  # RocksDB keeps three logs of 1 MiB: files are read off them long before they go
SETTLED_S = 6.0
SETTLE_S = 60.0
_EVENT = "EVENT_LOG_v1 "
_TABLE = {"columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["id"]}


class FilesMade:
    """The files that RocksDB has made in a folder, by their numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes: dict[int, int] = {}

    def total(self) -> int:
        """Returns the bytes of all that were made so far. Call it often enough that no log of events is gone unread.

        Raises BenchError.
        """
        logs = list(self._folder.glob("LOG*"))
        if not logs:
            raise BenchError(f"{self._folder} has no log of RocksDB's")
        for log in logs:
            for line in log.read_text(errors="replace").splitlines():
                if _EVENT in line and '"table_file_creation"' in line:
                    event = msgspec.json.decode(line.partition(_EVENT)[2])
                    self._bytes[event["file_number"]] = event["file_size"]
        return sum(self._bytes.values())


def value(source: random.Random) -> bytes:
    return base64.b64encode(source.randbytes(VALUE_BYTES * 3 // 4))


# ---- an engine alone


def frame(seq: int, keys: list[int], source: random.Random) -> Frame:
    """The frame after `seq`, with one upsert for each key."""
    made = [
        Record(kind=int(RecordKind.UPSERT), table=1, key=b"\x80" + key.to_bytes(8, "big"), value=value(source)) for key in keys
    ]
    return make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=seq + 1 << COUNTER_BITS, committed=0, records=made)


async def settle(engine: RocksEngine) -> None:
    """Waits until nothing is left to be merged: in counted time there is always time for that between two flushes."""
    while engine.counters()["pending_compaction_bytes"]:  # noqa: ASYNC110 - nobody says when it is over
        await asyncio.sleep(0.005)


class Cost(NamedTuple):
    """`written`: bytes for each byte of payload."""

    written: float
    flushes: int
    disk_bytes: int


async def engine_alone(rows: int, puts: int, rate: int, flush_s: float, folder: Path) -> Cost:
    """Fills a table with `rows`, then replaces rows of it. `flush_s`: as the setting."""
    source = random.Random(1)
    engine = await RocksEngine.open(folder, RocksSettings())
    made = FilesMade(folder / "rocksdb")
    order = list(range(rows))
    source.shuffle(order)
    for first in range(0, rows, LOAD_ROWS):
        await engine.apply([frame(engine.applied.seq, order[first : first + LOAD_ROWS], source)])
        if first % (100 * LOAD_ROWS) == 0:
            await engine.flush()
            await settle(engine)
    await engine.flush()
    await settle(engine)
    before, need, log_bytes, flushes = made.total(), FlushNeed(flush_s), 0, 0
    for second in range(puts // rate):
        frames = [frame(engine.applied.seq + at, [source.randrange(rows)], source) for at in range(rate)]
        await engine.apply(frames)
        log_bytes += sum(len(one.data) for one in frames)
        if need.is_due(Look(float(second), engine.applied.seq, engine.durable_seq, log_bytes)):
            await engine.flush()
            await settle(engine)
            flushes += 1
            made.total()
    await engine.flush()
    await settle(engine)
    cost = Cost((made.total() - before) / puts / VALUE_BYTES, flushes, engine.counters()["disk_bytes"])
    await engine.close()
    return cost


# ---- a pair


class _Connection:
    """One connection to the active; requests wait for their turn on it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, request: bytes) -> bool:
        """Returns True for a 2xx."""
        async with self._turn:
            try:
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
                return head[9:10] == b"2"
            except (OSError, ValueError, asyncio.IncompleteReadError):
                self._streams = None
                return False


def batches(rows: int, source: random.Random) -> Iterator[bytes]:
    for first in range(0, rows, LOAD_ROWS):
        rows_of = [{"id": key, "v": value(source).decode()} for key in range(first, first + LOAD_ROWS)]
        mutations = [{"op": "upsert", "row": row} for row in rows_of]
        yield http("POST", "/v1/tables/trickle/rows:mutate", msgspec.json.encode({"mutations": mutations}))


async def trickle(port: int, rows: int, seconds: float, rate: int, made: dict[str, FilesMade]) -> int:
    """Sends `rate` PUTs a second, each when it is due. Returns how many were answered with success."""
    source = random.Random(2)
    lines = [_Connection(port) for _ in range(CONNECTIONS)]
    asked: list[asyncio.Task[bool]] = []
    began_s = looked_s = time.monotonic()
    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        body = msgspec.json.encode({"v": value(source).decode()})
        request = http("PUT", f"/v1/tables/trickle/rows/{source.randrange(rows)}", body)
        asked.append(asyncio.create_task(lines[number % CONNECTIONS].ask(request)))
        if time.monotonic() - looked_s > COLLECT_S:
            looked_s = time.monotonic()
            for files in made.values():
                files.total()
    return sum(await asyncio.gather(*asked))


async def settled(made: dict[str, FilesMade]) -> dict[str, int]:
    """Returns the bytes of each site once no file has come for a while, or after SETTLE_S: a site may make files while idle."""
    until_s = time.monotonic() + SETTLE_S
    totals = {site: files.total() for site, files in made.items()}
    while time.monotonic() < until_s:
        await asyncio.sleep(SETTLED_S)
        before, totals = totals, {site: files.total() for site, files in made.items()}
        if totals == before:
            break
    return totals


async def of_a_pair(pair: Pair, rows: int, seconds: float, rate: int) -> None:
    pair.create_table("trickle", _TABLE)
    made = {site: FilesMade(pair.folder / site / "data" / "engine" / "rocksdb") for site in "ab"}
    line = _Connection(pair.port)
    for body in batches(rows, random.Random(1)):
        if not await line.ask(body):
            raise BenchError("a batch of the table was refused")
        await asyncio.sleep(0)
    before = await settled(made)
    puts = await trickle(pair.port, rows, seconds, rate, made)
    after = {site: files.total() for site, files in made.items()}
    for site in "ab":
        told = f"{(after[site] - before[site]) / max(1, puts) / VALUE_BYTES:.1f}"
        sys.stdout.write(f"site {site}, {rows:,} rows, {puts:,} PUTs in {seconds:.0f} s: {told} bytes for each of payload\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.write_cost", description=__doc__)
    parser.add_argument("--pair", action="store_true", help="both sites of a pair, in real time")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--rate", type=int, default=200, help="PUTs a second")
    parser.add_argument("--puts", type=int, default=4_320_000, help="of an engine alone: six hours at 200/s")
    parser.add_argument("--seconds", type=float, default=300.0, help="of a pair")
    parser.add_argument("--flush-s", type=float, default=EngineSettings().flush_interval_s, help="of an engine alone")
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary folder is made")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if chosen.pair:
            with Pair(Path(folder) / "pair") as pair:
                asyncio.run(of_a_pair(pair, chosen.rows, chosen.seconds, chosen.rate))
        else:
            alone = engine_alone(chosen.rows, chosen.puts, chosen.rate, chosen.flush_s, Path(folder) / "engine")
            cost = asyncio.run(alone)
            sys.stdout.write(
                f"{chosen.rows:,} rows, {chosen.puts:,} PUTs at {chosen.rate}/s, {cost.flushes} flushes: {cost.written:.1f} "
                f"bytes for each of payload, {cost.disk_bytes >> 20} MiB on disk\n"
            )


if __name__ == "__main__":
    main()
