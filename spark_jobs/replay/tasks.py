"""The two halves of a parallel replay that run in Spark's tasks: frames into entries, and entries into sorted files.

Every entry goes to the part that its row's key belongs to; a change of tables goes to every part, for what it means to a row
depends on when it came. Each part is then folded in the order of sequences by the engine's own rules (entries/effects.py).
What always holds: whatever two records of the log both touch is of one part; nothing is written but files of new names.
"""

from __future__ import annotations

import uuid
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from rocksdict import BlockBasedOptions, DBCompressionType, Options, SstFileWriter

from spark_jobs.logs.files import LogFolder
from spark_jobs.snapshots.rocks import open_rocks
from spark_jobs.snapshots.snapshot import SnapshotReader
from storage.engine import EngineState, TableSet
from storage.engines.entries.effects import Effects
from storage.engines.entries.write import Packed
from storage.engines.meaning import epoch_entry, request_outcome
from storage.engines.rocks import layout
from storage.engines.rocks.layout import APPLIED_KEY, SCHEMAS, encode, epoch_key, request_entries
from storage.log.encryption import read_frame
from storage.log.frame import Frame
from storage.log.record import RecordKind
from twinlog.decoding import decoded
from twinlog.errors import LogError

FRAMES = "segment string, offsets array<bigint>"
ENTRIES = "part int, seq bigint, entries binary"  # msgpack of [ReplayEntry]: what one frame has for a part
FILES = "part int, path string, entries bigint, begin binary, end binary"  # a file, or a range that is deleted before
BATCH_BYTES = 4 << 20
_PUT = 0
_ROWS = frozenset(map(int, (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE)))
_MARKS = frozenset(map(int, (RecordKind.MODE, RecordKind.BARRIER, RecordKind.CURSOR, RecordKind.NOOP)))
_ENTRIES = pa.schema([("part", pa.int32()), ("seq", pa.int64()), ("entries", pa.binary())])
_FILES = pa.schema([
    ("part", pa.int32()), ("path", pa.string()), ("entries", pa.int64()), ("begin", pa.binary()), ("end", pa.binary()),
])
_Line = tuple[int, int, bytes]


class ReplayEntry(msgspec.Struct, array_like=True, gc=False):
    """A record and its version; or, of the kind _PUT, an entry of the layout, key and value as they are."""

    version: int
    kind: int
    table: int
    key: bytes
    value: bytes
    request: bytes = b""  # never any: an answered request is an entry of its own


_decode = msgspec.msgpack.Decoder(list[ReplayEntry]).decode


@dataclass(frozen=True)
class ReplayPlan:
    """A replay as every task knows it. `cuts`: (table, key), ascending; part i ends before cut i. `base`: folder of a
    checkpoint, or empty; `tables`: of it. `folder`: for the files."""

    place: LogFolder
    cuts: tuple[tuple[int, bytes], ...]
    base: str
    tables: TableSet
    folder: str

    @property
    def parts(self) -> int:
        return len(self.cuts) + 1


def entries(plan: ReplayPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """FRAMES into ENTRIES. Raises LogError for a record of a kind that this release does not know."""
    store, folder = plan.place.store(), plan.place.folder.rstrip("/")
    found: list[_Line] = []
    size = 0
    for batch in batches:
        for row in batch.to_pylist():
            data, cipher = store.read(f"{folder}/{row['segment']}"), plan.place.cipher(store, row["segment"])
            for offset in row["offsets"]:
                frame = read_frame(data, offset, cipher, offset)
                for part, own in _split(plan, frame).items():
                    found.append((part, frame.first_seq, encode(own)))
                    size += len(found[-1][2])
                if size >= BATCH_BYTES:
                    yield _batch(found, _ENTRIES)
                    found, size = [], 0
    if found:
        yield _batch(found, _ENTRIES)


def _batch(lines: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*lines, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
                                      schema=schema)


def _split(plan: ReplayPlan, frame: Frame) -> dict[int, list[ReplayEntry]]:
    """By part, in order. HOT."""
    cuts, version = plan.cuts, frame.timestamp
    found: defaultdict[int, list[ReplayEntry]] = defaultdict(list)
    for index, record in enumerate(frame.records):
        kind, table = record.kind, record.table
        if kind in _ROWS:
            part = bisect_right(cuts, (table, record.key)) if cuts else 0
            found[part].append(ReplayEntry(version + index, kind, table, record.key, record.value))
        elif kind == RecordKind.DDL:
            for part in range(plan.parts):
                found[part].append(ReplayEntry(version + index, kind, table, b"", record.value))
        elif kind == RecordKind.EPOCH_START:
            entry = epoch_entry(frame, index, record.value)
            found[0].append(ReplayEntry(version + index, _PUT, 0, epoch_key(entry.epoch), encode(entry)))
        elif kind not in _MARKS:
            raise LogError(f"{frame!r} has a record of kind {kind}, which this release does not know")
        if record.request:
            name, outcome = request_outcome(frame, index, record.request)
            part = zlib.crc32(name.encode()) % plan.parts
            for key, value in request_entries(name, outcome).items():
                found[part].append(ReplayEntry(version + index, _PUT, 0, key, value))
    return found


class _One:
    """One record, as much of a frame as `Effects` looks at for it."""

    __slots__ = ("epoch", "last_seq", "records", "timestamp")

    def __init__(self) -> None:
        self.epoch = self.last_seq = self.timestamp = 0
        self.records: list[ReplayEntry] = []


class _Part:
    """One part of a replay: it collects the effects of its records, and the entries that came as they are."""

    def __init__(self, plan: ReplayPlan, base: SnapshotReader | None) -> None:
        self._before = EngineState(tables=plan.tables)
        self._effects = Effects(partial(_stored, base), self._before)
        self._entries: dict[bytes, bytes | None] = {}

    def add(self, found: list[ReplayEntry]) -> None:
        """HOT."""
        one, put = _One(), self._entries
        frame = cast(Frame, one)
        for entry in found:
            if entry.kind == _PUT:
                put[entry.key] = entry.value
            else:
                one.timestamp = entry.version
                one.records = [entry]
                self._effects.add(frame)

    def collected(self) -> tuple[dict[bytes, bytes | None], list[layout.Range]]:
        """Everything that is put, by key (None: it goes), without the watermark; and the ranges that go before."""
        write = self._effects.write()
        found = self._entries | dict(layout.entries(write, self._before))
        del found[APPLIED_KEY]
        return found, layout.ranges(write)


def _stored(base: SnapshotReader | None, table: int, key: bytes) -> Packed | None:
    """The row as the base has it."""
    if base is None:
        return None
    return next((packed for _, packed in base.walk(table, key, key + b"\0")), None)


def sorted_files(plan: ReplayPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """ENTRIES, each part whole and in order, into FILES."""
    opened: AbstractContextManager[SnapshotReader | None] = open_rocks(plan.base) if plan.base else nullcontext(None)
    with opened as base:
        number, part = -1, _Part(plan, base)
        for batch in batches:
            for own, found in zip(batch["part"].to_pylist(), batch["entries"].to_pylist(), strict=True):
                if own != number:
                    if number >= 0:
                        yield _written(plan, number, part)
                    number, part = own, _Part(plan, base)
                part.add(decoded(_decode, found, LogError))
        if number >= 0:
            yield _written(plan, number, part)


def _written(plan: ReplayPlan, number: int, part: _Part) -> pa.RecordBatch:
    """One file for each kind of entry, so that files of different parts hardly overlap."""
    found, ranges = part.collected()
    by_kind: dict[int, list[bytes]] = {}
    for key in sorted(found):
        if (found[key] is not None or plan.base) and (number == 0 or not SCHEMAS[0] <= key < SCHEMAS[1]):
            by_kind.setdefault(key[0], []).append(key)
    lines: list[tuple[Any, ...]] = []
    for kind, keys in by_kind.items():
        path = Path(plan.folder) / f"{kind:02x}-{number:05d}-{uuid.uuid4().hex}.sst"
        writer = SstFileWriter(_options())
        writer.open(str(path))
        for key in keys:
            value = found[key]
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer.finish()
        lines.append((number, str(path), len(keys), None, None))
    if number == 0:
        lines += [(number, None, 0, begin, end) for begin, end in ranges]
    return _batch(lines, _FILES) if lines else pa.RecordBatch.from_pylist([], schema=_FILES)


def _options() -> Options:
    """As far as a file has options: those of storage/engines/rocks/opening.py."""
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_size(16 << 10)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    return options
