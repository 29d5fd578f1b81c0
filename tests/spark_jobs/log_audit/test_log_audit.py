"""The job log-audit on logs that the product's writers made: nothing is wrong with a sound pair, also while it is written and
trimmed; each planted fault is one finding, with file and offset, and nothing else is."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remote_log.layout import RemoteLayout
from spark_jobs.job import JobRequest, Outcome, SiteSource
from spark_jobs.log_audit import job as log_audit
from spark_jobs.logs.files import LogFolder, list_log
from storage.log.frame import parse_frame
from storage.log.segment import encode_header, parse_header
from tests.spark_jobs.log_rig import Silent, flip, places, put_in, take_out, walk_file
from tests.spark_jobs.log_writers import Logs, written
from tests.storage.log.frames import a_frame
from twinlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

NOBODY = "http://127.0.0.1:1"
FRAMES = 400  # some segments of each log
Plant = Callable[[Path, Path], tuple[str, Path, int]]  # (WAL, remote log) -> what has to be found: kind, file, offset


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs") / "sound"
    root.mkdir()
    asyncio.run(written(root, FRAMES))
    return root


def audit(spark: SparkSession, root: Path, *, remote: bool = True) -> Outcome:
    a = SiteSource("a", NOBODY, wal=str(root / "wal"))
    b = SiteSource("b", NOBODY, remote_log=str(root / "dfs" / "pair" / "0") if remote else "")
    return log_audit.run(spark, JobRequest("log-audit", "pair", a, b, root), Silent())


def told(outcome: Outcome) -> list[tuple[Any, ...]]:
    assert outcome.good == (outcome.findings.count() == 0)
    return [(row["kind"], row["file"], row["offset"]) for row in outcome.findings.collect()]


def segment(folder: Path, number: int) -> Path:
    return folder / list_log(LogFolder(str(folder))).segments[number].name


def damaged_in_wal(wal: Path, remote: Path) -> tuple[str, Path, int]:
    file = segment(wal, 1)
    begin, _ = places(walk_file(file))[20]
    flip(file, begin + 75)
    return "damaged", file, begin


def gap_in_remote(wal: Path, remote: Path) -> tuple[str, Path, int]:
    file = segment(remote, 0)
    begin, end = places(walk_file_of_remote(file))[30]
    take_out(file, begin, end)
    return "gap", file, begin


def duplicate_in_wal(wal: Path, remote: Path) -> tuple[str, Path, int]:
    file = segment(wal, 0)
    found = walk_file(file)
    begin, _ = places(found)[10]
    first = parse_frame(file.read_bytes(), begin)
    _, behind = places(found)[25]
    other = a_frame(first.first_seq, count=first.count, previous=first.previous, committed=first.committed, value=b"other")
    put_in(file, behind, other.data)
    return "duplicate", file, behind


def end_of_a_sealed_segment_lost(wal: Path, remote: Path) -> tuple[str, Path, int]:
    """Nothing sound follows in the file: only the next segment shows that this is no torn tail."""
    file = segment(wal, 0)
    begin, _ = places(walk_file(file))[-1]
    flip(file, begin + 75)
    return "damaged", file, begin


def remote_segment_lost(wal: Path, remote: Path) -> tuple[str, Path, int]:
    """The last one that holds frames: the log itself does not show it, the WAL does."""
    last = next(number for number in (-1, -2) if len(walk_file_of_remote(segment(remote, number)).frames["seq"]))
    file = segment(remote, last)
    first_lost = walk_file_of_remote(file).frames["seq"][0]
    file.unlink()
    for each in list_log(LogFolder(str(wal))).segments:
        found = walk_file(wal / each.name)
        for seq, (offset, _) in zip(found.frames["seq"], places(found), strict=True):
            if seq == first_lost:
                return "not-in-remote-log", wal / each.name, offset
    raise AssertionError("the WAL has no such frame")


def walk_file_of_remote(file: Path) -> Any:
    from spark_jobs.logs.files import Segment
    from spark_jobs.logs.walk import walk

    name = RemoteLayout("pair").parse(f"/pair/0/{file.parent.name}/{file.name}")
    return walk(file.read_bytes(), str(file), Segment(file.name, 0, name.epoch, name.wal_name, 0))  # type: ignore[union-attr]


def test_sound_logs_have_no_finding_and_a_gateway_that_is_down_is_a_remark(spark: SparkSession, sound: Path) -> None:
    outcome = audit(spark, sound)
    assert told(outcome) == []
    assert outcome.counters["SEGMENTS"] >= 6
    assert outcome.counters["FRAMES"] == 2 * (FRAMES + 1)
    assert outcome.counters["EPOCHS"] == 2
    assert "not checked against what the sites hold" in outcome.remarks[0]
    assert {span.lane for span in outcome.charts[0].spans} == {"wal of a", "remote log on b"}


def _of_another_pair(file: Path) -> tuple[str, Path, int]:
    """The header says so, and nothing else does: the frames are those that belong there."""
    data = file.read_bytes()
    header = encode_header(replace(parse_header(data), pair="b2" * 8))
    file.write_bytes(header + data[len(header) :])
    return "misplaced", file, 0


def foreign_in_wal(wal: Path, remote: Path) -> tuple[str, Path, int]:
    return _of_another_pair(segment(wal, 1))


def foreign_in_remote(wal: Path, remote: Path) -> tuple[str, Path, int]:
    return _of_another_pair(segment(remote, 0))


@pytest.mark.parametrize("plant", [
    damaged_in_wal, gap_in_remote, duplicate_in_wal, end_of_a_sealed_segment_lost, remote_segment_lost, foreign_in_wal,
    foreign_in_remote,
])
def test_a_planted_fault_is_one_finding(spark: SparkSession, sound: Path, tmp_path: Path, plant: Plant) -> None:
    root = tmp_path / "planted"
    shutil.copytree(sound, root)
    kind, file, offset = plant(root / "wal", root / "dfs" / "pair" / "0")
    outcome = audit(spark, root)
    # without a gateway nobody knows whether the end of the remote log was trimmed; here it is known that nothing was
    assert told(outcome) == [(kind, str(file), offset)]


def test_a_log_that_is_written_and_trimmed_meanwhile_has_no_finding(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, ready = threading.Event(), threading.Event()
    state = {"durable": 0, "applied": 0}

    async def work() -> None:
        logs = Logs(tmp_path)
        await logs.open()
        while not stop.is_set():
            await logs.rows(50)
            state["applied"] = logs.committed
            state["durable"] = max(0, logs.committed - 400)  # known before anything is trimmed by it
            await logs.trim(state["durable"])
            if logs.seq > 2000:
                ready.set()
        await logs.close()

    def facts(request: JobRequest, remarks: list[str]) -> dict[str, dict[str, Any]]:
        active = {"role": "ACTIVE", "mode": "sync", "applied_seq": state["applied"], "durable_seq": 0}
        return {"a": active, "b": {"role": "STANDBY", "mode": "sync", "applied_seq": 0, "durable_seq": state["durable"]}}

    monkeypatch.setattr(log_audit, "_facts", facts)
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert ready.wait(120)
        outcome = audit(spark, tmp_path)
        assert told(outcome) == []
        assert outcome.counters["FRAMES"] > 50
    finally:
        stop.set()
        thread.join()
    state["applied"] += 1000
    assert [kind for kind, _, _ in told(audit(spark, tmp_path))] == ["behind-storage"]


def test_what_a_rejoin_put_aside_is_said(spark: SparkSession, tmp_path: Path, sound: Path) -> None:
    shutil.copytree(sound / "wal", tmp_path / "wal")
    folder = tmp_path / "quarantine"
    folder.mkdir()
    (folder / "000000000001-7.frames").write_bytes(a_frame(7).data + a_frame(8).data)
    (folder / "000000000001-9.frames.merged").write_bytes(a_frame(9).data)
    outcome = audit(spark, tmp_path, remote=False)
    assert told(outcome) == [("quarantined", str(folder / "000000000001-7.frames"), 0)]


def test_a_site_that_was_never_active_has_no_wal(spark: SparkSession, tmp_path: Path, sound: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "dfs").mkdir()
    a = SiteSource("a", NOBODY, wal=str(sound / "wal"), remote_log=str(tmp_path / "dfs" / "pair" / "0"))
    b = SiteSource("b", NOBODY, wal=str(tmp_path / "data" / "wal"), remote_log=str(sound / "dfs" / "pair" / "0"))
    outcome = log_audit.run(spark, JobRequest("log-audit", "pair", a, b, tmp_path), Silent())
    assert outcome.good
    assert sum("nothing was ever written" in remark for remark in outcome.remarks) == 2


def test_logs_of_which_none_is_there_are_not_taken_for_sound(spark: SparkSession, tmp_path: Path) -> None:
    a = SiteSource("a", NOBODY, wal=str(tmp_path / "wal"))
    with pytest.raises(ConfigError, match="nothing was ever written"):
        log_audit.run(spark, JobRequest("log-audit", "pair", a, SiteSource("b", NOBODY), tmp_path), Silent())


def test_without_any_log_the_job_says_what_to_give(spark: SparkSession, tmp_path: Path) -> None:
    nothing = JobRequest("log-audit", "pair", SiteSource("a", NOBODY), SiteSource("b", NOBODY), tmp_path)
    with pytest.raises(ConfigError, match="give --config FILE"):
        log_audit.run(spark, nothing, Silent())
