"""The job `replay`: a log, in parallel, into a new storage that is byte by byte what the engine makes of it frame by frame.

Settings: `log` (folder or hdfs:// address of a WAL or a remote log), `webhdfs`, `user`, `encryption_keys` (of the data source),
`base` (place of a kept RocksDB snapshot to begin from; without it from an empty storage), `into` (folder of the new storage,
which must not exist; RocksEngine opens it).
What always holds: the log is used as the product does, along its chain (storage/log/chain.py), and one that is damaged or has a
gap is refused; `into` appears whole or not at all. On a cluster it must lie at the same path everywhere. It changes no site.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rocksdict import IngestExternalFileOptions

from spark_jobs.job import JobProgress, JobRequest, Outcome
from spark_jobs.logs.files import KEYS, PATH, USER, WEBHDFS, LogFolder, place_of
from spark_jobs.logs.standing import PlacedFrame, placed_frames, standing_frames
from spark_jobs.replay.tasks import ENTRIES, FILES, FRAMES, ReplayPlan, entries, sorted_files
from storage.engine import EngineState
from storage.engines.rocks.layout import APPLIED_KEY, pack_applied
from storage.engines.rocks.opening import RocksSettings, open_database
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import RocksView
from storage.log.encryption import read_frame
from storage.log.record import RecordKind
from twinlog.errors import InvalidInput, LogGap, NotFound, Refused
from twinlog.wire.home_paths import expanded

LOG, BASE, INTO = "log", "base", "into"
PART_BYTES = 32 << 20  # of the log: what one task folds lies in its memory
SAMPLES = 200  # frames that are looked at for where to cut the keys
ROCKSDB = "rocksdb"
_ROWS = (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE)


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    """Raises InvalidInput, NotFound, Refused, DamagedLog, LogGap, LogError: then there is no new storage."""
    place, base, into = _asked(request)
    into.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        counters = _replayed(spark, progress, place, base, part)
        if into.exists():
            raise InvalidInput(f"into={into} has come into being meanwhile: name a folder that is not there")
        part.rename(into)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return Outcome(
        good=True, counters=counters, findings=spark.createDataFrame([], "kind string"),
        remarks=(f"the storage is in {into}, applied up to sequence {counters['SEQUENCE']:,}",),
    )


def _asked(request: JobRequest) -> tuple[LogFolder, str, Path]:
    options = request.options
    if request.tables:
        raise InvalidInput("replay makes a whole storage: it takes no --tables")
    into = expanded(options[INTO], INTO).absolute()
    if into.exists():
        raise InvalidInput(f"into={into} is there already: name a folder that is not")
    kind, _, folder = options.get(BASE, "").partition(":")
    if kind not in ("", ROCKSDB):
        raise Refused(f"base={options[BASE]}: only the snapshot of a RocksDB storage (rocksdb:FOLDER) can be begun from")
    if kind and not (Path(folder) / "CURRENT").is_file():
        raise NotFound(f"base={options[BASE]}: there is no checkpoint; it was released, or is on another machine")
    given = {name: options[name] for name in (WEBHDFS, USER, KEYS) if name in options}
    return place_of({PATH: options[LOG], **given}), folder, into


def _replayed(spark: SparkSession, progress: JobProgress, place: LogFolder, base: str, part: Path) -> dict[str, int]:
    """The storage, made in `part`."""
    if base:
        shutil.copytree(base, part / ROCKSDB)
    before = _state(part)
    progress.step("reading the chain of the log")
    frames = placed_frames(spark, place)
    kept = _kept(place, frames, before)
    files = part / "files"
    files.mkdir()
    parts = max(spark.sparkContext.defaultParallelism, sum(frame.length for frame in kept) // PART_BYTES)
    plan = ReplayPlan(place, _cuts(place, kept, parts), base, before.tables, str(files))
    progress.step(f"replaying {len(kept):,} frames in {plan.parts} parts")
    by_segment: dict[str, list[int]] = {}
    for frame in kept:
        by_segment.setdefault(frame.segment, []).append(frame.offset)
    found = spark.createDataFrame(list(by_segment.items()), FRAMES).repartition(max(1, min(len(by_segment), 4 * parts)))
    decoded = found.mapInArrow(partial(entries, plan), ENTRIES).repartitionById(plan.parts, f.col("part"))
    made = decoded.sortWithinPartitions("part", "seq").mapInArrow(partial(sorted_files, plan), FILES).collect()
    progress.step("putting the parts together")
    _together(part, made, before, kept, deletes=bool(base))
    shutil.rmtree(files)
    return {
        "FRAMES": len(kept), "RECORDS": sum(frame.count for frame in kept), "FRAMES_LEFT_OUT": len(frames) - len(kept),
        "PARTS": plan.parts, "ENTRIES": sum(row["entries"] for row in made),
        "SEQUENCE": kept[-1].last_seq if kept else before.seq,
    }


def _kept(place: LogFolder, frames: list[PlacedFrame], before: EngineState) -> list[PlacedFrame]:
    """Returns the frames to replay, in order. Raises LogGap, DamagedLog."""
    try:
        return standing_frames(frames, before.seq, before.epoch)
    except LogGap as error:
        held, offered = error.fields["held_seq"], error.fields["offered_previous"]
        if held != before.seq or not isinstance(offered, int) or offered < before.seq:
            raise
        begins = "an empty storage" if not before.seq else f"the base, at sequence {before.seq:,},"
        raise LogGap(
            f"{place.path} continues from sequence {offered:,}, and {begins} does not have what comes before that (a log is"
            " trimmed once the other site holds it): begin from a kept snapshot of that sequence or a later one,"
            " base=rocksdb:FOLDER",
            **error.fields,
        ) from error


def _state(part: Path) -> EngineState:
    """Returns the state of the storage before anything is replayed. Raises Refused for one that was being loaded."""
    database = open_database(part / ROCKSDB, RocksSettings())
    try:
        state = load_state(RocksView(database))
    finally:
        database.close()
    if state.base is not None:
        raise Refused("the base is of a site that was being loaded from its peer: take a snapshot when that is done")
    return state


def _cuts(place: LogFolder, frames: Sequence[PlacedFrame], parts: int) -> tuple[tuple[int, bytes], ...]:
    """Keys that cut what the log changes into about even parts, judged by a few frames."""
    store, keys = place.store(), set()
    for frame in frames[:: max(1, len(frames) // SAMPLES)]:
        data = store.read(f"{place.folder.rstrip('/')}/{frame.segment}", frame.offset, frame.length)
        found = read_frame(data, 0, place.cipher(store, frame.segment), frame.offset)
        keys |= {(one.table, one.key) for one in found.records if one.kind in _ROWS}
    ordered = sorted(keys)
    return tuple(sorted({ordered[len(ordered) * number // parts] for number in range(1, parts)})) if ordered else ()


def _together(part: Path, made: Sequence[Any], before: EngineState, kept: Sequence[PlacedFrame], *, deletes: bool) -> None:
    """Ranges that a change of tables deleted go from the base first; then the files come over it, and the watermark."""
    database = open_database(part / ROCKSDB, RocksSettings())
    try:
        for row in made:
            if deletes and row["path"] is None:
                database.delete_range(bytes(row["begin"]), bytes(row["end"]))
        database.flush()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        paths = sorted(row["path"] for row in made if row["path"] is not None)
        if paths:
            database.ingest_external_file(paths, options)
        if kept:
            timestamp = max(before.timestamp, *(frame.timestamp + frame.count - 1 for frame in kept))
            database.put(APPLIED_KEY, pack_applied(kept[-1].last_seq, kept[-1].epoch, timestamp))
        database.flush()
    finally:
        database.close()
