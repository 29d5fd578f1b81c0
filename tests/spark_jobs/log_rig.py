"""Logs on disk for tests of the audit: made by the product's writers or codecs, with one thing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import crc32c
import msgspec

from spark_jobs.logs.files import Segment
from spark_jobs.logs.walk import Walk, walk
from storage.log.frame import Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.log.segment import HEADER_BYTES, parse_wal_name, wal_name
from tests.storage.log.frames import segment_bytes


class Silent:
    """A Progress that nobody sees."""

    def step(self, what: str) -> None:
        pass

    def rows(self, done: int, total: int | None = None) -> None:
        pass


def write_wal(folder: Path, files: Sequence[Sequence[Frame]], epoch: int = 1) -> Path:
    """A WAL of one epoch: one segment for each list of frames."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, frames in enumerate(files, 1):
        (folder / wal_name(epoch, index)).write_bytes(segment_bytes(frames, epoch=epoch, index=index))
    return folder


def walk_file(file: Path) -> Walk:
    parsed = parse_wal_name(file.name)
    assert parsed is not None
    return walk(file.read_bytes(), str(file), Segment(file.name, 0, parsed[0], file.name, 0))


def epoch_start(epoch: int, first_seq: int, previous: int) -> Frame:
    """The frame with which an epoch begins."""
    value = msgspec.msgpack.encode(EpochStart(epoch, "a", "takeover", "plan"))
    return make_frame(
        epoch=epoch, first_seq=first_seq, previous=previous, timestamp=first_seq, committed=0,
        records=[Record(RecordKind.EPOCH_START, value=value)],
    )


def places(found: Walk) -> list[tuple[int, int]]:
    """[begin, end) of each frame."""
    return list(zip(found.offsets.tolist(), found.ends.tolist(), strict=True))


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def of_another_release(file: Path) -> None:
    """The version of the format is another one, and the header's CRC is right."""
    data = bytearray(file.read_bytes())
    data[4] += 9
    data[60:64] = crc32c.crc32c(bytes(data[:60])).to_bytes(4, "little")
    file.write_bytes(data)


def take_out(file: Path, begin: int, end: int) -> None:
    """The bytes are gone, and what followed them stands there."""
    data = file.read_bytes()
    file.write_bytes(data[:begin] + data[end:])


def put_in(file: Path, offset: int, data: bytes) -> None:
    before = file.read_bytes()
    file.write_bytes(before[:offset] + data + before[offset:])


def offset_of(frames: Sequence[Frame], number: int) -> int:
    return HEADER_BYTES + sum(len(frame.data) for frame in frames[:number])
