"""A random WAL with many faults, and its remote log with others: every kind of thing that log-audit has to tell apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from spark_jobs.logs.columns import RUNS_SCHEMA, mark_batch
from spark_jobs.logs.files import LocalStore, LogFolder, Segment, list_log
from spark_jobs.logs.runs import fold, run_begins
from spark_jobs.logs.walk import Walk, walk
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, encode_frames, encode_header, remote_name, wal_name

FIRST_SEQ = (1 << 20) - 150  # so that sequences cross from one bucket into another
Segments = dict[tuple[int, int], list[Frame]]  # (epoch, index) -> what was written there


def history(noise: random.Random, epochs: int, frames: int) -> dict[int, list[Frame]]:
    """Returns the frames that each epoch wrote, in order: cut tails at its start, and within it frames that failed and were cut
    off."""
    written: dict[int, list[Frame]] = {}
    ends = [FIRST_SEQ - 1]  # of what stands
    for epoch in range(1, epochs + 1):
        written[epoch] = []
        del ends[max(1, len(ends) - noise.choice((0, 0, 1, 3))) :]
        seq = ends[-1] + 1
        for number in range(frames):
            flags = Flags.ASYNC if epoch % 3 == 2 and number % 40 > 30 else 0
            start = number == 0 and noise.random() < 0.8
            committed = 0 if len(ends) < 9 else ends[-1] if noise.random() < 0.02 else ends[-8]
            frame = a_frame(noise, epoch, seq, ends[-1], committed, flags, start=start)
            written[epoch].append(frame)
            seq = frame.last_seq + 1
            if noise.random() < 0.05 and len(ends) > 3:
                del ends[len(ends) - noise.randrange(3) :]  # it failed, and so did some before it: `seq` is not used again
            else:
                ends.append(frame.last_seq)
    return written


def a_frame(
    noise: random.Random, epoch: int, seq: int, previous: int, committed: int, flags: int = 0, *, start: bool = False,
) -> Frame:
    records = [Record(RecordKind.UPSERT, 1, b"k%d" % (seq + n), noise.randbytes(9)) for n in range(noise.randint(1, 4))]
    if start:
        records[:0] = [Record(RecordKind.EPOCH_START, value=msgspec.msgpack.encode(EpochStart(epoch, "a", "takeover", "plan")))]
    return make_frame(
        epoch=epoch, first_seq=seq, previous=previous, timestamp=seq << 16, committed=committed, records=records, flags=flags,
    )


def in_segments(noise: random.Random, written: dict[int, list[Frame]], *, copies: bool) -> Segments:
    """`copies`: some segments begin with frames that stand in the one before, as a retry leaves them."""
    found: Segments = {}
    for epoch, frames in written.items():
        at, index = 0, 1
        while at < len(frames):
            to = at + noise.randint(8, 40)
            again = noise.choice((0, 0, 3)) if copies else 0
            found[epoch, index] = frames[max(0, at - again) : to]
            at, index = to, index + 1
    return found


def spoil(
    noise: random.Random, segments: Segments, faults: int, kinds: Sequence[str] = ("lost", "other", "replaced", "swapped")
) -> None:
    """Frames lost, others for their sequences, out of order; of many segments one is lost."""
    for _ in range(faults):
        frames = segments[noise.choice(list(segments))]
        if len(frames) < 4:
            continue
        place, fault = noise.randrange(len(frames) - 1), noise.choice(kinds)
        old = frames[place]
        other = make_frame(
            epoch=old.epoch, first_seq=old.first_seq, previous=old.previous, timestamp=1, committed=old.committed,
            records=old.records, flags=old.flags & Flags.ASYNC,
        )
        if fault == "lost":
            del frames[place]
        elif fault == "replaced":
            frames[place] = other
        elif fault == "other":
            frames.insert(noise.randint(place + 1, len(frames)), other)
        else:
            frames[place], frames[place + 1] = frames[place + 1], old
    if len(segments) > 6:
        del segments[noise.choice(list(segments)[1:-1])]


def write(noise: random.Random, folder: Path, segments: Segments, damaged: int, *, remote: bool) -> LogFolder:
    """On disk; in some files a byte is flipped, and sometimes nothing stands behind it."""
    folder.mkdir(parents=True)
    chosen = noise.sample(list(segments), min(damaged, len(segments)))
    for (epoch, index), frames in segments.items():
        first_seq = min(frame.first_seq for frame in frames)
        alignment = REMOTE_ALIGNMENT if remote else 1
        data = bytearray(encode_header(SegmentHeader(0, epoch, first_seq, wal_name(epoch, index), alignment)))
        data += encode_frames(frames, alignment)
        if (epoch, index) in chosen:
            place = noise.randrange(len(data))
            data[place] ^= 1
            if noise.random() < 0.4:
                data[place:] = bytes(len(data) - place)
        name = f"{epoch:012d}/{remote_name(wal_name(epoch, index), 0)}" if remote else wal_name(epoch, index)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(data) + bytes(300))
    return LogFolder(str(folder))


def view(place: LogFolder, *, folded: bool) -> pa.Table:
    """The rows of the view `runs`; not folded: each frame is a run of its own."""
    batches = []
    for found, segment in walks(place):
        batches.append(mark_batch(found, segment, "", RUNS_SCHEMA))
        if len(found.frames):
            begins = run_begins(found) if folded else np.arange(len(found.frames))
            batches.append(fold(found, begins, segment, "", RUNS_SCHEMA))
    return pa.Table.from_batches(batches)


def walks(place: LogFolder) -> Iterator[tuple[Walk, Segment]]:
    for segment in list_log(place).segments:
        file = place.file(segment.name)
        yield walk(LocalStore().read(file), file, segment), segment
