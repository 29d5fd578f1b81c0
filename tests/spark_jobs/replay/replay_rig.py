"""Random logs with everything in them that a storage keeps, and what a storage holds, entry by entry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings, open_database
from storage.log.chain import standing
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind, RequestMark, SchemaChange
from storage.rows.schema import encode_schema
from tests.spark_jobs.log_rig import write_wal
from tests.spark_jobs.snapshots.snapshot_rig import table

TABLES = (1, 2, 1 << 63)
_pack = msgspec.msgpack.encode


def random_log(draw: random.Random, frames: int) -> list[Frame]:
    """Frames of several epochs, in the order in which they were made; some are cut off by a later epoch."""
    made: list[Frame] = []
    epoch, last, timestamp = 0, 0, 1 << 20
    for _ in range(frames):
        previous = last
        if not made or draw.random() < 0.08:
            epoch += 1
            previous = draw.choice(standing(made)[-3:]).last_seq if made else 0  # what came after it is cut off
            records = [Record(RecordKind.EPOCH_START, value=_pack(EpochStart(epoch, "ab"[epoch & 1], "takeover", "p")))]
        else:
            records = [_record(draw) for _ in range(draw.choice((1, 1, 3, 40)))]
        made.append(make_frame(
            epoch=epoch, first_seq=previous + 1, previous=previous, timestamp=timestamp, committed=previous, records=records,
            flags=draw.choice((0, 0, int(Flags.ASYNC))),
        ))
        last = made[-1].last_seq
        timestamp += len(records) + draw.randrange(5)
    return made


def _record(draw: random.Random) -> Record:
    number, mark = draw.choice(TABLES), b""
    if draw.random() < 0.2:
        mark = _pack(RequestMark(f"request {draw.randrange(12)}", draw.randbytes(4), 1))
    usual = [*[RecordKind.UPSERT] * 8, *[RecordKind.UPDATE] * 5, *[RecordKind.DELETE] * 4]
    kind = draw.choice((*usual, RecordKind.DDL, RecordKind.MODE, RecordKind.NOOP, RecordKind.BARRIER))
    if kind == RecordKind.DDL:
        if draw.random() < 0.3:
            return Record(kind, number, value=_pack(SchemaChange("drop", number, b"", 0)), request=mark)
        history_s = draw.choice((0, 60))
        schema = encode_schema(table(number, history_s=history_s))
        return Record(kind, number, value=_pack(SchemaChange("put", number, schema, history_s)), request=mark)
    if kind not in (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE):
        return Record(kind, key=b"x", request=mark)
    key = draw.choice((b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"b", b"\xff" * 3, b"%d" % draw.randrange(20)))
    columns = {draw.randrange(2, 5): draw.choice((None, 1, "x" * draw.randrange(9), b"\0")) for _ in range(3)}
    return Record(kind, number, key, b"" if kind == RecordKind.DELETE else _pack(columns), mark)


def write_log(folder: Path, frames: Sequence[Frame], per_file: int = 7) -> Path:
    """A WAL that holds all of them, each epoch in files of its own."""
    for epoch in sorted({frame.epoch for frame in frames}):
        own = [frame for frame in frames if frame.epoch == epoch]
        write_wal(folder, [own[at : at + per_file] for at in range(0, len(own), per_file)], epoch)
    return folder


async def serial(folder: Path, frames: Sequence[Frame]) -> None:
    """RocksEngine, one frame after the other."""
    engine = await RocksEngine.open(folder, RocksSettings())
    try:
        for frame in frames:
            await engine.apply([frame])
    finally:
        await engine.close()


def contents(folder: Path) -> list[tuple[bytes, bytes]]:
    """Every entry of a storage, in order."""
    database = open_database(folder / "rocksdb", RocksSettings())
    try:
        cursor = database.iter()
        cursor.seek_to_first()
        found = []
        while cursor.valid():
            found.append((bytes(cursor.key()), bytes(cursor.value())))
            cursor.next()
        cursor.status()
        return found
    finally:
        database.close()
