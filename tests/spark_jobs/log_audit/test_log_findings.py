"""The rarer findings of log-audit: each is told once, where it is, with the sequences that it is about."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.job import JobRequest, SiteSource
from spark_jobs.log_audit import job as log_audit
from storage.log.frame import Flags, Frame
from storage.log.segment import remote_name, wal_name
from tests.spark_jobs.log_rig import Silent, epoch_start, of_another_release, offset_of
from tests.storage.log.frames import a_frame, later, run, segment_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

NOBODY = "http://127.0.0.1:1"
Told = tuple[str, str, int, int, int]  # kind, segment, offset, seq, last_seq


def put(wal: Path, epoch: int, index: int, frames: list[Frame], **header: Any) -> str:
    wal.mkdir(parents=True, exist_ok=True)
    (wal / wal_name(epoch, index)).write_bytes(segment_bytes(frames, epoch=epoch, index=index, **header))
    return wal_name(epoch, index)


def put_remote(dfs: Path, number: int, frames: list[Frame]) -> str:
    folder = dfs / f"{1:012d}"
    folder.mkdir(parents=True, exist_ok=True)
    name = remote_name(wal_name(1, 1), number)
    (folder / name).write_bytes(segment_bytes(frames, index=1))
    return f"{1:012d}/{name}"


def audit(spark: SparkSession, wal: Path, dfs: Path | None = None) -> list[Told]:
    a, b = SiteSource("a", NOBODY, wal=str(wal)), SiteSource("b", NOBODY, remote_log=str(dfs or ""))
    return audit_pair(spark, a, b, wal.parent)


def audit_pair(spark: SparkSession, a: SiteSource, b: SiteSource, folder: Path) -> list[Told]:
    rows = log_audit.run(spark, JobRequest("log-audit", "pair", a, b, folder), Silent()).findings.collect()
    return [(row["kind"], row["segment"], row["offset"], row["seq"], row["last_seq"]) for row in rows]


def test_a_link_into_the_middle_of_a_frame_is_broken(spark: SparkSession, tmp_path: Path) -> None:
    before = run(1, 3, count=2)  # the last one holds 5 and 6
    name = put(tmp_path / "wal", 1, 1, [*before, a_frame(7, previous=5), a_frame(8)])
    assert audit(spark, tmp_path / "wal") == [("broken-link", name, offset_of(before, 2), 5, 5)]


def test_a_segment_of_another_pair_is_told_where_its_times_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    """Its frames link, and no other log holds them."""
    frames = run(1, 30)
    names = [put(tmp_path / "wal", 1, index, own) for index, own in ((1, frames[:10]), (2, frames[10:20]), (3, frames[20:]))]
    put(tmp_path / "wal", 1, 1, [later(frame, 1 << 38) for frame in frames[:10]])
    assert audit(spark, tmp_path / "wal") == [("time-went-back", names[1], 64, 11, 20)]
    put(tmp_path / "wal", 1, 1, frames[:10])
    assert audit(spark, tmp_path / "wal") == []
    put(tmp_path / "wal", 1, 2, [later(frame, 1 << 38) for frame in frames[10:20]])
    assert audit(spark, tmp_path / "wal") == [("time-went-back", names[2], 64, 21, 30)]


def test_an_epoch_must_begin_with_its_start(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "wal", 1, 1, run(1, 10))
    put(tmp_path / "wal", 2, 1, [epoch_start(2, 11, 10), *run(12, 3, epoch=2)])
    name = put(tmp_path / "wal", 3, 1, [a_frame(15, epoch=3), a_frame(16, epoch=3)])
    assert audit(spark, tmp_path / "wal") == [("epoch-without-start", name, 64, 15, 15)]


def test_an_epoch_may_cut_off_what_was_not_committed_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "wal", 1, 1, run(1, 10, lag=3))  # the last one attests that 7 was committed
    put(tmp_path / "wal", 2, 1, [epoch_start(2, 8, 7), a_frame(9, epoch=2)])
    assert audit(spark, tmp_path / "wal") == []
    name = put(tmp_path / "wal", 2, 1, [epoch_start(2, 6, 5), a_frame(7, epoch=2)])
    assert audit(spark, tmp_path / "wal") == [("cut-committed", name, 64, 6, 7)]


def test_a_file_under_another_name_is_misplaced_and_one_of_another_release_unreadable(
    spark: SparkSession, tmp_path: Path
) -> None:
    wal = tmp_path / "wal"
    frames = run(1, 10)
    name = put(wal, 1, 1, frames)
    shutil.copy(wal / name, wal / wal_name(1, 2))
    put(wal, 1, 3, run(11, 3))
    of_another_release(wal / wal_name(1, 3))
    told = audit(spark, wal)
    assert [each[:3] for each in told] == [("misplaced", wal_name(1, 2), 0), ("unreadable", wal_name(1, 3), 64)]


@pytest.mark.parametrize("durable_seq", [None, 0])
def test_a_frame_with_other_bytes_in_the_remote_log_differs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable_seq: int | None
) -> None:
    frames = run(1, 40)
    name = put(tmp_path / "wal", 1, 1, frames)
    other = a_frame(17, committed=16, value=b"other")
    put_remote(tmp_path / "dfs", 0, [*frames[:16], other, *frames[17:]])
    if durable_seq is not None:
        facts(monkeypatch, applied_seq=40, durable_seq=durable_seq)
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == [("logs-differ", name, offset_of(frames, 16), 17, 17)]


def test_what_was_trimmed_before_the_other_site_held_it_is_told_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = run(1, 40)
    put(tmp_path / "wal", 1, 1, frames)
    name = put_remote(tmp_path / "dfs", 1, frames[20:])
    facts(monkeypatch, applied_seq=40, durable_seq=20)
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == []
    facts(monkeypatch, applied_seq=40, durable_seq=15)
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == [("trimmed-early", name, 64, 16, 20)]


def test_a_wal_that_begins_above_what_the_other_site_holds_was_trimmed_early(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = put(tmp_path / "wal", 1, 3, run(1, 40)[20:])
    facts(monkeypatch, applied_seq=40, durable_seq=20)
    assert audit(spark, tmp_path / "wal") == []
    facts(monkeypatch, applied_seq=40, durable_seq=15)
    assert audit(spark, tmp_path / "wal") == [("trimmed-early", name, 64, 16, 20)]


@pytest.mark.parametrize("changed", ["wal", "remote"])
def test_a_mode_that_was_changed_is_a_frame_that_differs(spark: SparkSession, tmp_path: Path, changed: str) -> None:
    frames = run(1, 40)
    other = [*frames[:16], a_frame(17, committed=16, flags=int(Flags.ASYNC)), *frames[17:]]
    name = put(tmp_path / "wal", 1, 1, other if changed == "wal" else frames)
    put_remote(tmp_path / "dfs", 0, frames if changed == "wal" else other)
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == [("logs-differ", name, offset_of(frames, 16), 17, 17)]


def test_a_frame_that_two_segments_of_a_wal_hold_is_told_and_one_that_was_retried_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    frames = run(1, 20)
    put(tmp_path / "wal", 1, 1, [*frames[:10], frames[10]])
    name = put(tmp_path / "wal", 1, 2, frames[10:], first_seq=9)
    put_remote(tmp_path / "dfs", 0, frames[:12])
    put_remote(tmp_path / "dfs", 1, frames[10:])
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == [("repeated", name, 64, 11, 11)]


def test_what_was_resynced_is_no_gap_of_the_remote_log_also_when_no_gateway_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The remote log of an epoch that was asynchronous in between, before the trimmer came by."""
    between, again = [a_frame(seq, committed=seq - 1, flags=int(Flags.ASYNC)) for seq in range(11, 16)], run(16, 10)
    put(tmp_path / "wal", 1, 1, [*run(1, 10), *between, *again])
    put_remote(tmp_path / "dfs", 0, run(1, 10))
    put_remote(tmp_path / "dfs", 1, again)
    assert audit(spark, tmp_path / "wal", tmp_path / "dfs") == []
    name = put_remote(tmp_path / "dfs", 1, [*again[:4], *again[7:]])
    told = audit(spark, tmp_path / "wal", tmp_path / "dfs")
    assert told == [("gap", name, offset_of(again, 4), 20, 22)]


def test_what_the_other_direction_resynced_accounts_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 30)
    name = put_remote(tmp_path / "dfs", 0, [*frames[:10], *frames[15:]])
    resynced = [a_frame(41, flags=int(Flags.ASYNC)), *run(42, 3)]
    put(tmp_path / "wal", 1, 1, resynced)
    put_remote(tmp_path / "back", 0, resynced)
    a = SiteSource("a", NOBODY, remote_log=str(tmp_path / "back"))
    b = SiteSource("b", NOBODY, wal=str(tmp_path / "wal"), remote_log=str(tmp_path / "dfs"))
    assert audit_pair(spark, a, b, tmp_path) == [("gap", name, offset_of(frames, 10), 11, 15)]


def facts(monkeypatch: pytest.MonkeyPatch, *, applied_seq: int, durable_seq: int) -> None:
    """Sets the gateways' answers: a is active, b holds so much durably."""
    def said(request: JobRequest, remarks: list[str]) -> Mapping[str, Mapping[str, Any]]:
        return {
            "a": {"role": "ACTIVE", "mode": "sync", "applied_seq": applied_seq, "durable_seq": 0},
            "b": {"role": "STANDBY", "mode": "sync", "applied_seq": durable_seq, "durable_seq": durable_seq},
        }

    monkeypatch.setattr(log_audit, "_facts", said)
