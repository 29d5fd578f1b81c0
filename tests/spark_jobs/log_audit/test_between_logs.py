"""A WAL against the remote log that its writer keeps on the other site's DFS, and against storage: the cases, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.log_audit import between_logs as log_between
from spark_jobs.log_audit.job import REMOTE, WAL, Audited, Here, audited, findings_of, lacking
from spark_jobs.logs.columns import RUNS_SCHEMA
from spark_jobs.logs.files import LogFolder
from storage.log.frame import Flags, Frame
from storage.log.segment import remote_name, wal_name
from tests.spark_jobs.log_rig import epoch_start, offset_of
from tests.spark_jobs.logs.noisy_logs import view
from tests.storage.log.frames import a_frame, run, segment_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

Told = tuple[str, str, int, int, int]  # kind, segment, offset, seq, last_seq
W = wal_name(1, 1)


class Rig:
    """A WAL of given segments, and the remote log of epoch 1 (or of those that are named) with one segment for each list."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root

    def wal(self, *segments: tuple[int, list[Frame]]) -> Rig:
        """(epoch, frames) of each."""
        folder = self.root / "wal"
        folder.mkdir()
        for index, (epoch, frames) in enumerate(segments, 1):
            (folder / wal_name(epoch, index)).write_bytes(segment_bytes(frames, epoch=epoch, index=index))
        self.own = self._read(WAL, folder)
        return self

    def remote(self, *segments: list[Frame], epoch: int = 1) -> Rig:
        folder = self.root / "dfs"
        (folder / f"{epoch:012d}").mkdir(parents=True)
        for number, frames in enumerate(segments):
            name = remote_name(wal_name(epoch, 1), number)
            (folder / f"{epoch:012d}" / name).write_bytes(segment_bytes(frames, epoch=epoch))
        self.far = self._read(REMOTE, folder)
        return self

    def _read(self, log: str, folder: Path) -> Audited:
        rows = view(LogFolder(str(folder)), folded=True)
        return audited(self.spark, "a", log, LogFolder(str(folder)), self.spark.createDataFrame(rows, RUNS_SCHEMA))

    def told(self, trimmed_to: int | None) -> list[Told]:
        """Returns the differences of the two logs, without the faults of the remote log itself. `details`: in words."""
        faults = Here.take(self.spark, findings_of(self.far, trimmed_to or 0)).frame
        found = lacking(self.spark, self.own, self.far, faults, trimmed_to).collect()
        self.details = [row["detail"] for row in found]
        return sorted((row["kind"], row["segment"], row["offset"], row["seq"], row["last_seq"]) for row in found)


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def other(frames: list[Frame], seq: int) -> list[Frame]:
    """The same, and that one with other bytes."""
    return [
        a_frame(seq, previous=frame.previous, committed=seq - 1, value=b"other") if frame.first_seq == seq else frame
        for frame in frames
    ]


@pytest.mark.parametrize("trimmed_to", [None, 0, 10])
def test_one_frame_with_other_bytes(rig: Rig, trimmed_to: int | None) -> None:
    frames = run(1, 40)
    rig.wal((1, frames)).remote(other(frames, 17))
    assert rig.told(trimmed_to) == [("logs-differ", W, offset_of(frames, 16), 17, 17)]


def test_each_frame_with_other_bytes_is_a_finding(rig: Rig) -> None:
    frames = run(1, 40)
    rig.wal((1, frames)).remote(other(other(frames, 17), 18))
    assert [(kind, seq, last_seq) for kind, _, _, seq, last_seq in rig.told(0)] == [
        ("logs-differ", 17, 17), ("logs-differ", 18, 18),
    ]


@pytest.mark.parametrize("trimmed_to", [None, 20])
def test_what_was_trimmed_need_not_be_there_what_comes_after_it_must(rig: Rig, trimmed_to: int | None) -> None:
    """The WAL's run begins below what is left of the remote log, and ends above it."""
    frames = run(1, 40)
    rig.wal((1, frames)).remote(other(frames, 25)[20:30], [*frames[30:33], *frames[36:]])
    different = ("logs-differ", W, offset_of(frames, 24), 25, 25)
    assert rig.told(trimmed_to) == [different]  # 34 to 36 are a gap of the remote log, which tells it itself


@pytest.mark.parametrize("trimmed_to", [None, 0])
def test_the_last_frame_may_not_have_reached_the_other_log_yet(rig: Rig, trimmed_to: int | None) -> None:
    frames = run(1, 40)  # the last one says that 39 was committed
    rig.wal((1, frames)).remote(frames[:39])
    assert rig.told(trimmed_to) == []


@pytest.mark.parametrize("trimmed_to", [None, 0])
def test_what_was_committed_must_be_there(rig: Rig, trimmed_to: int | None) -> None:
    frames = run(1, 40)
    rig.wal((1, frames)).remote(frames[:30])
    assert rig.told(trimmed_to) == [("not-in-remote-log", W, offset_of(frames, 30), 31, 39)]
    assert rig.details == ["9 committed frames of epoch 1, sequences 31 to 39, are not in the remote log"]


def test_two_stretches_are_two_findings(rig: Rig) -> None:
    """An asynchronous time lies between them: nothing of it is there, and nothing needs to be."""
    before, after = run(1, 10), run(16, 10)
    between = [a_frame(seq, committed=seq - 1, flags=int(Flags.ASYNC)) for seq in range(11, 16)]
    rig.wal((1, [*before, *between, *after])).remote(before[:6])
    begins = offset_of([*before, *between], 15)
    assert rig.told(0) == [
        ("not-in-remote-log", W, offset_of(before, 6), 7, 10), ("not-in-remote-log", W, begins, 16, 24),
    ]


def test_asynchronous_frames_need_not_be_there(rig: Rig) -> None:
    frames = [*run(1, 10), *(a_frame(seq, committed=seq - 1, flags=int(Flags.ASYNC)) for seq in range(11, 21))]
    rig.wal((1, frames)).remote(frames[:10])
    assert rig.told(0) == []


def test_frames_that_were_copied_need_not_be_there(rig: Rig) -> None:
    """A takeover copies what the other site wrote, into a WAL segment of its own; its remote log holds only its own epoch."""
    own = [epoch_start(2, 11, 10), *run(12, 8, epoch=2)]
    rig.wal((2, [*run(1, 10), *own])).remote(own, epoch=2)
    assert rig.told(0) == []


def test_frames_that_are_cut_off_need_not_be_there(rig: Rig) -> None:
    """They say of themselves that they were committed; that they were cut off in spite of it is told of the WAL itself."""
    before, cut = run(1, 10), run(15, 6)
    own = [epoch_start(2, 21, 10), *run(22, 4, epoch=2)]
    rig.wal((1, [*before, *cut]), (2, own)).remote(before)
    assert rig.told(0) == [("not-in-remote-log", wal_name(2, 2), 64, 21, 24)]


def test_what_stands_of_a_chain_that_is_cut_must_be_there(rig: Rig) -> None:
    frames = run(1, 20)
    rig.wal((1, frames), (2, [epoch_start(2, 21, 10)])).remote(frames[:5])
    assert rig.told(0) == [("not-in-remote-log", W, offset_of(frames, 5), 6, 10)]


def test_what_stands_behind_frames_that_failed_must_be_there(rig: Rig) -> None:
    frames, behind = run(1, 20), [a_frame(21, previous=15, committed=15), *run(22, 9)]
    rig.wal((1, [*frames, *behind])).remote([*frames[:15], behind[0]])
    assert rig.told(0) == [("not-in-remote-log", W, offset_of([*frames, *behind], 21), 22, 29)]


def test_an_asynchronous_time_is_held_by_the_other_site_once_it_has_ended(rig: Rig) -> None:
    between = [a_frame(seq, committed=seq - 1, flags=int(Flags.ASYNC)) for seq in range(11, 16)]
    whole = [*run(1, 10), *between, *run(16, 5)]
    for number, (segments, upto) in enumerate([
        ([(1, whole)], 15), ([(1, whole[:15])], None), ([(1, run(1, 10))], None),
        ([(1, whole[:15]), (2, run(16, 5, epoch=2))], None),  # that another epoch is synchronous says nothing of this one
        ([(2, [*whole, epoch_start(2, 21, 20)])], None),  # copied: another site wrote it
    ]):
        rig.root = rig.root / str(number)
        rig.root.mkdir()
        (row,) = log_between.resynced(rig.wal(*segments).own.view).collect()
        assert row["upto"] == upto


def test_the_wal_of_an_active_ends_where_its_storage_does_or_later(rig: Rig) -> None:
    later = [epoch_start(2, 21, 20), *run(22, 19, epoch=2)]
    rig.wal((1, run(1, 20)), (2, later))
    end = offset_of(later, 20)
    for applied_seq, expected in ((39, []), (40, []), (42, [("behind-storage", wal_name(2, 2), end, 41, 42)])):
        found = rig.own.located(log_between.behind_storage(rig.own.linked.frame, applied_seq)).collect()
        assert [(row["kind"], row["segment"], row["offset"], row["seq"], row["last_seq"]) for row in found] == expected


def test_a_remote_log_begins_where_the_other_storage_ends_or_earlier(rig: Rig) -> None:
    frames = run(1, 40)
    rig.remote(frames[20:30], frames[33:])  # the gap is another finding
    name = f"{1:012d}/{remote_name(wal_name(1, 1), 0)}"
    for durable_seq, expected in ((21, []), (20, []), (18, [("trimmed-early", name, 64, 19, 20)])):
        found = rig.far.located(log_between.trimmed_early(rig.far.linked.frame, durable_seq, "remote log")).collect()
        assert [(row["kind"], row["segment"], row["offset"], row["seq"], row["last_seq"]) for row in found] == expected
