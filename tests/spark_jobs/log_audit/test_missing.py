"""Judges without Spark what is missing from a log, and what one file alone shows: as a start of the gateway judges it."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.log_audit.missing import missing
from spark_jobs.logs.columns import RUNS_SCHEMA, mark_batch
from spark_jobs.logs.files import LogFolder
from spark_jobs.logs.walk import Mark
from storage.disk.os_files import OsFiles
from storage.log import chain
from storage.log.frame import Frame, make_frame, parse_frame
from storage.log.segment import wal_name
from storage.log.wal import Wal
from tests.spark_jobs.log_rig import flip, offset_of
from tests.spark_jobs.logs.noisy_logs import history, in_segments, spoil, walks, write
from tests.storage.log.frames import a_frame, run, segment_bytes
from twinlog.errors import DamagedLog

Told = tuple[str, int, int]  # kind, ordinal of the segment, offset


def put(folder: Path, *files: list[Frame]) -> LogFolder:
    folder.mkdir(parents=True, exist_ok=True)
    for index, frames in enumerate(files, 1):
        (folder / wal_name(1, index)).write_bytes(segment_bytes(frames, index=index))
    return LogFolder(str(folder))


def marked(place: LogFolder) -> list[tuple[str, Mark]]:
    """Segment and mark, of all marks that are findings by themselves."""
    return [
        (segment.name, mark) for found, segment in walks(place) for mark in found.marks if mark.kind not in ("torn", "epoch")
    ]


def told(place: LogFolder, *, is_wal: bool = True, trimmed_to: int = 0) -> list[Told]:
    """Returns what is missing. Each standing frame is a chain of its own here."""
    marks: list[dict[str, Any]] = []
    at: dict[tuple[int, int], tuple[int, int, int]] = {}
    frames: list[Frame] = []
    for found, segment in walks(place):
        marks += mark_batch(found, segment, "", RUNS_SCHEMA).to_pylist()
        data = Path(place.file(segment.name)).read_bytes()
        for offset in found.offsets.tolist():
            frame = parse_frame(data, offset)
            frames.append(frame)
            at[frame.position] = (segment.epoch, segment.ordinal, offset)
    rows = []
    for frame in chain.remaining(frames):
        epoch, ordinal, offset = at[frame.position]
        rows.append({
            "epoch": frame.epoch, "seq": frame.first_seq, "last_seq": frame.last_seq, "upto": frame.last_seq,
            "previous": frame.previous, "first": {"segment_epoch": epoch, "ordinal": ordinal, "offset": offset},
            "at": ordinal, "at_end": offset + len(frame.data), "at_epoch": epoch,
        })
    return [(each.kind, each.ordinal, each.offset) for each in missing(marks, rows, trimmed_to, is_wal=is_wal)]


def opens(place: LogFolder, root: Path) -> bool:
    """Returns whether the gateway starts with this WAL."""
    shutil.copytree(place.path, root / "copy" / "wal")

    async def opened() -> bool:
        try:
            wal = await Wal.open(OsFiles(root / "copy"))
        except DamagedLog:
            return False
        await wal.close()
        return True

    return asyncio.run(opened())


def test_a_segment_full_of_zeros_is_damage_unless_it_is_the_last_one(tmp_path: Path) -> None:
    frames = run(1, 30)
    place = put(tmp_path / "wal", frames[:10], frames[10:20], frames[20:])
    for index, expected in ((0, ("damaged", 0, 0)), (1, ("damaged", 1, 0))):
        file = tmp_path / "wal" / wal_name(1, index + 1)
        kept = file.read_bytes()
        file.write_bytes(bytes(len(kept)))
        assert told(place, trimmed_to=25) == [expected], "also below what was trimmed"
        file.write_bytes(kept)
    (tmp_path / "wal" / wal_name(1, 3)).write_bytes(bytes(2000))
    assert told(place) == [], "as a crash leaves a new one"


def test_a_bit_in_the_header_of_a_segment_is_damage_whether_or_not_it_holds_frames(tmp_path: Path) -> None:
    frames = run(1, 20)
    for number, first in enumerate((frames[:10], [])):
        place = put(tmp_path / str(number) / "wal", first, frames[10:])
        flip(Path(place.file(wal_name(1, 1))), 20)
        found = [kind for kind, *_ in told(place)] + [mark.kind for _, mark in marked(place)]
        assert found == ["damaged"]


def test_the_log_cannot_begin_within_an_epoch_of_which_an_earlier_segment_is_there(tmp_path: Path) -> None:
    """The first segment lost its frames, and its header promises them."""
    frames = run(1, 20)
    place = put(tmp_path / "wal", frames[:10], frames[10:])
    file = tmp_path / "wal" / wal_name(1, 1)
    file.write_bytes(file.read_bytes()[:64] + bytes(1000))
    assert told(place) == [("gap", 0, 64)]
    assert not opens(place, tmp_path)
    assert told(place, is_wal=False) == [], "a remote segment may be empty, and those behind it trimmed"


def test_a_frame_twice_and_two_frames_swapped_are_told_where_they_stand(tmp_path: Path) -> None:
    frames = run(1, 20)
    swapped = [*frames[:4], frames[5], frames[4], *frames[6:10]]
    twice = [*frames[10:16], frames[12], *frames[16:]]
    place = put(tmp_path / "wal", swapped, twice)
    assert [(name, mark.kind, mark.offset, mark.seq) for name, mark in marked(place)] == [
        (wal_name(1, 1), "out-of-order", offset_of(swapped, 5), 5),
        (wal_name(1, 2), "repeated", offset_of(twice, 6), 13),
    ]
    assert not opens(place, tmp_path)


@pytest.mark.parametrize(("timestamp", "place"), [(3, 10), (1 << 40, 11)])
def test_a_time_that_was_changed_is_told_where_it_goes_back(tmp_path: Path, timestamp: int, place: int) -> None:
    frames = run(1, 20)
    old = frames[10]
    frames[10] = make_frame(
        epoch=1, first_seq=old.first_seq, previous=old.previous, timestamp=timestamp, committed=old.committed,
        records=old.records,
    )
    log = put(tmp_path / "wal", frames)
    assert [(mark.kind, mark.offset) for _, mark in marked(log)] == [("time-went-back", offset_of(frames, place))]


@pytest.mark.parametrize("seed", range(6))
def test_a_start_of_the_gateway_and_the_audit_agree_about_random_logs(tmp_path: Path, seed: int) -> None:
    """Some frames are lost. What the audit finds and the gateway does not was never committed, and the start cuts it."""
    noise = random.Random(seed)
    segments = in_segments(noise, history(noise, epochs=3, frames=60), copies=False)
    if seed % 2:
        spoil(noise, segments, faults=2, kinds=("lost",))
    place = write(noise, tmp_path / "wal", segments, damaged=0, remote=False)
    found = told(place)
    assert (found == []) <= opens(place, tmp_path)
    assert seed % 2 or found == []


def test_an_ascending_log_of_many_epochs_has_no_mark(tmp_path: Path) -> None:
    place = put(tmp_path / "wal", [*run(1, 5), a_frame(7, previous=5), a_frame(8, previous=5)])
    assert marked(place) == []
