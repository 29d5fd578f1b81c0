"""The job replay: in parallel the same storage as frame by frame, every entry of it."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from spark_jobs.job import JobRequest, Outcome, SiteSource
from spark_jobs.logs.files import LogFolder, list_log
from spark_jobs.logs.walk import walk
from spark_jobs.replay import job as replay
from spark_jobs.replay.tasks import ReplayPlan, entries, sorted_files
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.chain import standing
from storage.log.frame import Frame, parse_frame
from tests.spark_jobs.log_rig import Silent, flip
from tests.spark_jobs.log_writers import written
from tests.spark_jobs.replay.replay_rig import TABLES, contents, random_log, serial, write_log
from twinlog.errors import DamagedLog, InvalidInput, LogGap, NotFound, Refused, TwinlogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path, **settings: str) -> Outcome:
    site = SiteSource("a", "http://127.0.0.1:1")
    asked = JobRequest("replay", "test", site, replace(site, name="b"), folder, options=settings)
    return replay.run(spark, asked, Silent())


def folded(folder: Path, kept: list[Frame], cuts: tuple[tuple[int, bytes], ...], base: Path | None) -> None:
    """As replay.py does it, without Spark: the log of the frames `kept` lies in folder/wal. Makes folder/into."""
    into = folder / "into"
    (into / "files").mkdir(parents=True)
    if base is not None:
        (into / "rocksdb").symlink_to(folder / "copy")
    before = replay._state(into)
    place = LogFolder(str(folder / "wal"))
    plan = ReplayPlan(place, cuts, "" if base is None else str(base), before.tables, str(into / "files"))
    places = {frame.position: where for frame, where in _placed(place)}
    rows = [{"segment": places[frame.position][0], "offsets": [places[frame.position][1]]} for frame in reversed(kept)]
    batches = list(entries(plan, iter([pa.RecordBatch.from_pylist(rows)]))) if rows else []
    whole = pa.Table.from_batches(batches).sort_by([("part", "ascending"), ("seq", "ascending")]) if batches else None
    ordered = [] if whole is None else whole.combine_chunks().to_batches(max_chunksize=9)
    made = [row for batch in sorted_files(plan, iter(ordered)) for row in batch.to_pylist()]
    replay._together(into, made, before, kept, deletes=base is not None)  # type: ignore[arg-type]


def _placed(place: LogFolder) -> list[tuple[Frame, tuple[str, int]]]:
    found = []
    for segment in list_log(place).segments:
        data = (Path(place.folder) / segment.name).read_bytes()
        found += [(parse_frame(data, at), (segment.name, at)) for at in walk(data, segment.name, segment).offsets]
    return found


@pytest.mark.parametrize("seed", range(40))
async def test_every_entry_is_the_engines(tmp_path: Path, seed: int) -> None:
    """Random logs, cut at random keys; the later ones over the storage that the first half of the log made."""
    draw = random.Random(seed)
    log = random_log(draw, draw.choice((1, 12, 60)))
    kept = standing(log)
    write_log(tmp_path / "wal", log)
    cuts = {(draw.choice(TABLES), draw.choice((b"", b"\0", b"a\0", b"5"))) for _ in range(draw.randrange(6))}
    await serial(tmp_path / "serial", kept)
    half = len(kept) // 2 if seed >= 20 else 0
    if half:
        await serial(tmp_path / "half", kept[:half])
        shutil.copytree(tmp_path / "half" / "rocksdb", tmp_path / "copy")
    folded(tmp_path, kept[half:], tuple(sorted(cuts)), tmp_path / "half" / "rocksdb" if half else None)
    assert contents(tmp_path / "into") == contents(tmp_path / "serial")


@pytest.mark.long
async def test_the_job_on_a_log_with_cut_frames(spark: SparkSession, tmp_path: Path) -> None:
    log = random_log(random.Random(7), 150)
    kept = standing(log)
    assert len(kept) < len(log)
    wal = write_log(tmp_path / "wal", log)
    outcome = run(spark, tmp_path, log=str(wal), into=str(tmp_path / "new" / "into"))
    await serial(tmp_path / "serial", kept)
    assert contents(tmp_path / "new" / "into") == contents(tmp_path / "serial")
    assert (outcome.good, outcome.counters["FRAMES"], outcome.counters["FRAMES_LEFT_OUT"], outcome.counters["SEQUENCE"]) == (
        True, len(kept), len(log) - len(kept), kept[-1].last_seq,
    )
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["into"]
    assert sorted(path.name for path in (tmp_path / "new" / "into").iterdir()) == ["rocksdb"]


async def test_from_a_base_and_on_with_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    """A kept snapshot in the middle of the log; afterwards the product's engine opens the new storage and goes on."""
    log = standing(random_log(random.Random(3), 120))
    wal = write_log(tmp_path / "wal", log[:-1])
    engine = await RocksEngine.open(tmp_path / "serial", RocksSettings())
    for frame in log[:50]:
        await engine.apply([frame])
    await engine.keep_snapshot("base", 0)
    place = engine.kept_snapshots()[0].place
    for frame in log[50:]:
        await engine.apply([frame])
    outcome = run(spark, tmp_path, log=str(wal), base=place, into=str(tmp_path / "into"))
    assert outcome.counters["FRAMES"] == len(log) - 51
    other = await RocksEngine.open(tmp_path / "into", RocksSettings())
    assert (other.applied.seq, other.applied.epochs) == (log[-2].last_seq, engine.applied.epochs)
    await other.apply([log[-1]])
    await engine.close()
    await other.close()
    assert contents(tmp_path / "into") == contents(tmp_path / "serial")


async def test_a_remote_log(spark: SparkSession, tmp_path: Path) -> None:
    logs = await written(tmp_path / "logs", 400)
    run(spark, tmp_path, log=str(logs.remote_folder), into=str(tmp_path / "remote"))
    run(spark, tmp_path, log=str(logs.wal_folder), into=str(tmp_path / "wal"))
    found = contents(tmp_path / "remote")
    assert len(found) > 1000
    assert found == contents(tmp_path / "wal")


def test_what_is_refused_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log = standing(random_log(random.Random(5), 40))
    gap, bad = write_log(tmp_path / "gap", log[1:]), write_log(tmp_path / "bad", log, per_file=40)
    flip(sorted(bad.iterdir())[0], 130)
    into = str(tmp_path / "new" / "into")
    cases: list[tuple[type[TwinlogError], str, dict[str, str]]] = [
        (LogGap, "an empty storage does not have what comes before", {"log": str(gap), "into": into}),
        (DamagedLog, "offset", {"log": str(bad), "into": into}),
        (InvalidInput, "there already", {"log": str(gap), "into": str(tmp_path)}),
        (Refused, "only the snapshot of a RocksDB", {"log": str(gap), "into": into, "base": "sqlite:/x"}),
        (NotFound, "no checkpoint", {"log": str(gap), "into": into, "base": f"rocksdb:{tmp_path}"}),
    ]
    for kind, said, settings in cases:
        with pytest.raises(kind, match=said):
            run(spark, tmp_path, **settings)
    assert list((tmp_path / "new").iterdir()) == []
