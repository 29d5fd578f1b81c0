"""Small frames for tests of the log: `run` makes a chain of them, `segment_bytes` a file that holds them."""

from __future__ import annotations

from collections.abc import Sequence

from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import SegmentHeader, encode_frames, encode_header, wal_name


def a_frame(
    first_seq: int, *, previous: int | None = None, count: int = 1, epoch: int = 1, committed: int = 0, flags: int = 0,
    value: bytes = b"v",
) -> Frame:
    records = [Record(RecordKind.UPSERT, 1, b"k%d" % (first_seq + n), value) for n in range(count)]
    return make_frame(
        epoch=epoch, first_seq=first_seq, previous=first_seq - 1 if previous is None else previous, timestamp=first_seq,
        committed=committed, flags=flags, records=records,
    )


def run(first_seq: int, frames: int, *, epoch: int = 1, count: int = 1, lag: int = 1, value: bytes = b"v") -> list[Frame]:
    """`frames` linked frames of `count` records; each knows as committed what lies `lag` frames before it."""
    return [
        a_frame(
            first_seq + n * count, count=count, epoch=epoch, value=value,
            committed=max(0, first_seq + (n - lag + 1) * count - 1) if n >= lag else 0,
        )
        for n in range(frames)
    ]


def later(frame: Frame, by: int) -> Frame:
    """The same frame with another time, and a CRC that fits."""
    return make_frame(
        epoch=frame.epoch, first_seq=frame.first_seq, previous=frame.previous, timestamp=frame.timestamp + by,
        committed=frame.committed, records=frame.records,
    )


def segment_bytes(
    frames: Sequence[Frame], *, epoch: int = 1, index: int = 1, first_seq: int | None = None, zeros: int = 200,
    alignment: int = 1, pair: str = "",
) -> bytes:
    first = first_seq if first_seq is not None else frames[0].first_seq if frames else 1
    header = encode_header(SegmentHeader(0, epoch, first, wal_name(epoch, index), alignment, pair))
    return header + encode_frames(frames, alignment) + bytes(zeros)
