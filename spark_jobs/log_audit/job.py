"""The job `log-audit`: are the logs of both sites whole, and do they say the same. It changes nothing.

WALs are read first, then the remote logs, then both gateways are asked what they hold durably: in this order a pair under load
gives no false finding (log_between.py). What always holds: damage in a log is a finding with file and offset, never an error;
a gateway that does not answer takes away the checks that need it, and a remark says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_jobs.audit.gateways import Gateways
from spark_jobs.job import FORMAT, JobProgress, JobRequest, Outcome, SiteSource
from spark_jobs.log_audit import between_logs as log_between
from spark_jobs.log_audit import one_log as log_chain
from spark_jobs.log_audit.charts import Lane, lag, lag_chart, timeline
from spark_jobs.log_audit.missing import BROKEN_LINK, GAP, missing
from spark_jobs.logs import runs
from spark_jobs.logs.columns import RUN, SEGMENT
from spark_jobs.logs.files import (
    KEYS,
    PATH,
    USER,
    WEB_PORT,
    WEBHDFS,
    LocalStore,
    LogFolder,
    Store,
    list_log,
    place_of,
    whole_log,
)
from spark_jobs.logs.walk import (
    DAMAGED,
    EPOCH,
    MISPLACED,
    OUT_OF_ORDER,
    REPEATED,
    TIME_BACK,
    TORN,
    UNREADABLE,
    Walk,
    add_frames,
)
from twinlog.errors import ConfigError, LogError, TwinlogError, words

WAL, REMOTE, QUARANTINE = "wal", "remote log", "quarantine"
QUARANTINED = "quarantined"
KINDS = (
    GAP, BROKEN_LINK, log_chain.DUPLICATE, DAMAGED, MISPLACED, UNREADABLE, OUT_OF_ORDER, REPEATED, TIME_BACK,
    log_chain.NO_START, log_chain.CUT_COMMITTED, log_between.NOT_IN_REMOTE, log_between.DIFFERS, log_between.BEHIND_STORAGE,
    log_between.TRIMMED_EARLY, QUARANTINED,
)
FINDINGS = StructType([
    StructField("kind", StringType()), StructField("site", StringType()), StructField("log", StringType()),
    StructField("segment", StringType()), StructField("file", StringType()), StructField("offset", LongType()),
    StructField("seq", LongType()), StructField("last_seq", LongType()), StructField("detail", StringType()),
])
FOUND = StructType([
    StructField("kind", StringType()), StructField("ordinal", IntegerType()), StructField("offset", LongType()),
    StructField("seq", LongType()), StructField("last_seq", LongType()), StructField("detail", StringType()),
])
_WAYS_TO_HDFS = ("dfs.namenode.http-address", "dfs.namenode.rpc-address")


@dataclass(frozen=True, slots=True)
class Here:
    """A small table in this process, and the same for Spark, which then drops from a plan what is empty: most of it, where
    nothing is wrong."""

    rows: pa.Table
    frame: DataFrame

    @classmethod
    def take(cls, spark: SparkSession, found: DataFrame) -> Here:
        rows = found.toArrow()
        return cls(rows, spark.createDataFrame(rows, found.schema))


@dataclass(frozen=True, slots=True)
class Audited:
    """One log, read once. `site`: whose folder or DFS it lies on."""

    site: str
    log: str
    place: LogFolder
    view: DataFrame  # kept by Spark; what follows stands in this process
    marks: Here
    limits: Here
    linked: Here

    @property
    def name(self) -> str:
        return f"{self.log} of {self.site}" if self.log == WAL else f"{self.log} on {self.site}"

    def located(self, found: DataFrame) -> DataFrame:
        """Findings of this log with the columns of FINDINGS."""
        named = found.join(f.broadcast(log_chain.segment_names(self.marks.frame)), "ordinal", how="left")
        file = f.concat(f.lit(self.place.file("")), "segment")
        return named.select(
            "kind", f.lit(self.site).alias("site"), f.lit(self.log).alias("log"), "segment", file.alias("file"),
            f.col("offset").cast("long"), f.col("seq").cast("long"), f.col("last_seq").cast("long"), "detail",
        )


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    """Raises ConfigError, InvalidInput, DfsError when a log that was named cannot be listed at all."""
    remarks: list[str] = []
    progress.step("asking both gateways")
    before = _facts(request, remarks)
    logs: list[Audited] = []
    for log in (WAL, REMOTE):
        for site in request.sites:
            place = _place(site, log)
            if place is not None and (read := _read(spark, progress, site.name, log, place, remarks)) is not None:
                logs.append(read)
    if not logs:  # never taken for sound
        known = "; ".join(remarks) or "none is known"
        raise ConfigError(f"no log to look at: {known}; give --config FILE of a site, and --peer-config FILE of the other one")
    after = _facts(request, []) if before else {}
    progress.step("checking the chains")
    own = {
        (each.site, each.log): Here.take(spark, each.located(findings_of(each, _held(logs, after, each)))) for each in logs
    }
    progress.step("checking the logs against each other and storage")
    parts = [each.rows for each in own.values()]
    parts += [found.rows for found in _between(spark, request, logs, own, before, after)]
    rows = [row for part in parts for row in part.to_pylist()] + [row for site in request.sites for row in _quarantined(site)]
    rows.sort(key=lambda row: (row["site"], row["log"], row["segment"] or "", row["offset"]))
    kinds = Counter(row["kind"] for row in rows)
    waits = {each.name: lag(each.view).collect() for each in logs if each.log == WAL}
    behind = lag_chart({name: [(row["at_ms"], row["waited_ms"]) for row in found] for name, found in waits.items()})
    return Outcome(
        good=not rows,
        counters={**_counted(logs), **{kind.replace("-", "_").upper(): kinds[kind] for kind in KINDS}},
        findings=spark.createDataFrame([tuple(row[name] for name in FINDINGS.names) for row in rows], FINDINGS),
        frames={"log_marks": _marks(logs)} if logs else {}, charts=(*timeline(_stretches(logs), rows), behind),
        remarks=tuple(remarks),
    )


def findings_of(log: Audited, trimmed_to: int) -> DataFrame:
    """All that is wrong with one log by itself, with the columns of log_chain.FOUND."""
    lost = missing(log.marks.rows.to_pylist(), log.linked.rows.to_pylist(), trimmed_to, is_wal=log.log == WAL)
    found = (
        log_chain.damage(log.marks.frame)
        .unionByName(log.view.sparkSession.createDataFrame(lost, FOUND))
        .unionByName(log_chain.duplicates(log.limits.frame, log.marks.frame))
        .unionByName(log_chain.times(log.limits.frame, log.marks.frame))
        .unionByName(log_chain.epochs(log.marks.frame, log.linked.frame))
    )
    return found.unionByName(log_chain.repeated(log.limits.frame, log.marks.frame)) if log.log == WAL else found


def lacking(spark: SparkSession, wal: Audited, remote: Audited, faults: DataFrame, trimmed_to: int | None) -> DataFrame:
    """Returns the frames of its writer's WAL that the remote log lacks. `faults`: findings that account for what they name."""
    differing = Here.take(spark, log_between.differing(wal.view, remote.view, trimmed_to)).frame
    lacking = log_between.not_in_remote(wal.view, wal.limits.frame, remote.view, faults, trimmed_to, differing)
    return wal.located(lacking.unionByName(log_between.contradicting(wal.view, remote.view)))


# ---- reading
def _facts(request: JobRequest, remarks: list[str]) -> Mapping[str, Mapping[str, Any]]:
    """Both cluster documents; nothing when a site does not answer."""
    gateways = Gateways({site.name: site for site in request.sites})
    try:
        return gateways.clusters()
    except TwinlogError as error:
        remarks.append(f"not checked against what the sites hold: {error.message}")
        return {}
    finally:
        gateways.close()


def _place(site: SiteSource, log: str) -> LogFolder | None:
    """Returns the place of the site's WAL, or of the remote log on its DFS; None where that is not known."""
    if log == WAL:
        return place_of({PATH: site.wal, KEYS: site.wal_keys}) if site.wal else None
    if not site.remote_log:
        return None
    return place_of({
        PATH: site.remote_log, WEBHDFS: _name_nodes(site.hdfs), USER: site.hdfs.get("user", ""), KEYS: site.remote_log_keys,
    })


def _name_nodes(hdfs: Mapping[str, str]) -> str:
    """Web addresses out of Hadoop's own keys; empty where they name none."""
    for way in _WAYS_TO_HDFS:
        found = [value for key, value in sorted(hdfs.items()) if key == way or key.startswith(f"{way}.")]
        if way == _WAYS_TO_HDFS[1]:
            found = [f"{value.rpartition(':')[0]}:{WEB_PORT}" for value in found]
        if found:
            return ",".join(f"http://{each}" for each in found)
    return ""


def _read(
    spark: SparkSession, progress: JobProgress, site: str, log: str, place: LogFolder, remarks: list[str]
) -> Audited | None:
    """Read once, and kept: what follows does not read the files again. None: there is nothing in it."""
    if _not_begun(log, place):
        where = "of" if log == WAL else "on"
        remarks.append(f"the {log} {where} {site} ({place.path}) is not there yet: nothing was ever written")
        return None
    if not list_log(place).segments:
        remarks.append(f"the {log} {'of' if log == WAL else 'on'} {site} ({place.path}) holds no segment")
        return None
    whole_log(place)  # a key that is missing is no finding
    progress.step(f"reading the {log} {'of' if log == WAL else 'on'} {site}")
    options = {"view": "runs", **place.options}
    view = spark.read.format(FORMAT).options(**options).load().persist(StorageLevel.MEMORY_AND_DISK)
    return audited(spark, site, log, place, view)


def audited(spark: SparkSession, site: str, log: str, place: LogFolder, view: DataFrame) -> Audited:
    """`view`: the view `runs` of the log, kept."""
    marks = Here.take(spark, view.where(f.col("entry") != RUN).drop(*runs.ARRAYS))
    overlapping = Here.take(spark, runs.overlapping(view))
    limits = Here.take(spark, log_chain.limits(log_chain.chains(runs.unfolded(view, overlapping.frame))))
    return Audited(site, log, place, view, marks, limits, Here.take(spark, log_chain.linked(view, limits.frame)))


def _not_begun(log: str, place: LogFolder) -> bool:
    """A site that was never active has no WAL, its peer's DFS no remote log; but the folder that they would be in is there."""
    store, folder = place.store(), PurePosixPath(place.folder)
    return not _is_there(store, folder) and _is_there(store, folder.parents[0 if log == WAL else 1])


def _is_there(store: Store, folder: PurePosixPath) -> bool:
    try:
        store.list(str(folder))
    except FileNotFoundError:
        return False
    except OSError:  # something is; who reads it says what
        return True
    return True


def _durable(facts: Mapping[str, Mapping[str, Any]], log: Audited) -> int | None:
    """Returns the durable position of the site that a remote log is for; None: not known, or a WAL."""
    return facts[log.site].get("durable_seq") if log.log == REMOTE and log.site in facts else None


def _held(logs: list[Audited], facts: Mapping[str, Mapping[str, Any]], log: Audited) -> int:
    """Returns the position that the other site is known to hold: below it a remote log may be trimmed."""
    durable_seq = _durable(facts, log)
    if durable_seq is not None or log.log == WAL:
        return durable_seq or 0
    writers = [each for each in logs if each.log == WAL and each.site != log.site]
    known = [row["upto"] for each in writers for row in log_between.resynced(each.view).collect()]
    return max((upto for upto in known if upto is not None), default=0)


# ---- checking
def _between(
    spark: SparkSession, request: JobRequest, logs: list[Audited], own: Mapping[tuple[str, str], Here],
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]],
) -> list[Here]:
    """Each site's WAL against the remote log on the other one's DFS, and against what its storage holds."""
    by_place = {(each.site, each.log): each for each in logs}
    first, second = (site.name for site in request.sites)
    found: list[Here] = []
    for writer, other in ((first, second), (second, first)):
        wal, remote = by_place.get((writer, WAL)), by_place.get((other, REMOTE))
        active = bool(after) and all(str(facts[writer].get("role")).endswith("ACTIVE") for facts in (before, after))
        in_sync = active and all(facts[writer].get("mode") == "sync" for facts in (before, after))
        durable_seq = None if remote is None else _durable(after, remote)
        faults = [] if remote is None else [own[other, REMOTE].frame]
        held_seq = after[other].get("durable_seq") if in_sync else None
        for log in (wal, remote):
            if log is not None and held_seq is not None:
                early = log_between.trimmed_early(log.linked.frame, held_seq, log.log)
                found.append(Here.take(spark, log.located(early)))
        if remote is not None and held_seq is not None:
            faults.append(found[-1].frame)
        if wal is not None and remote is not None:
            faults.append(own[writer, WAL].frame.where(f.col("kind") == log_chain.DUPLICATE))
            accounted = reduce(DataFrame.unionByName, faults)
            found.append(Here.take(spark, lacking(spark, wal, remote, accounted, durable_seq)))
        if wal is not None and active:
            behind = log_between.behind_storage(wal.linked.frame, int(before[writer]["applied_seq"]))
            found.append(Here.take(spark, wal.located(behind)))
    return found


def _quarantined(site: SiteSource) -> list[dict[str, Any]]:
    """Returns the quarantined records of this site that nobody has merged: acknowledged, and in no table."""
    if not site.wal:
        return []
    folder = str(Path(site.wal).parent / QUARANTINE)
    store, rows = LocalStore(), []
    try:
        names = sorted(entry.name for entry in store.list(folder) if entry.name.endswith(".frames"))
    except OSError:
        names = []
    for name in names:
        file, found, kind = f"{folder}/{name}", Walk(), QUARANTINED
        try:
            data = store.read(file)
            end = add_frames(data, 0, found)
            detail = f"{len(found.frames)} frames wait here since a rejoin; `twinlog rejoin --merge` puts back what is newer"
            if end < len(data):
                kind, detail = DAMAGED, f"the quarantined frames are damaged from offset {end} on"
        except (OSError, LogError) as error:
            kind, end, detail = UNREADABLE, 0, f"it cannot be read: {words(error)}"
        first = int(found.frames["seq"][0]) if len(found.frames) else None
        offset = 0 if kind == QUARANTINED else end
        last = found.last_seq if len(found.frames) else None
        said = (kind, site.name, QUARANTINE, name, file, offset, first, last, detail)
        rows.append(dict(zip(FINDINGS.names, said, strict=True)))
    return rows


# ---- telling
def _counted(logs: list[Audited]) -> dict[str, int]:
    """Counts the segments, frames, records and bytes that were read."""
    counters = Counter(dict.fromkeys(("SEGMENTS", "BYTES", "FRAMES", "EPOCHS", "TORN_TAILS"), 0))
    for log in logs:
        marks = log.marks.rows.select(["entry", "end"]).to_pylist()
        entries = Counter(mark["entry"] for mark in marks)
        counters["SEGMENTS"] += entries[SEGMENT]
        counters["BYTES"] += sum(mark["end"] for mark in marks if mark["entry"] == SEGMENT)
        counters["FRAMES"] += sum(log.limits.rows["frames"].to_pylist())
        counters["EPOCHS"] += entries[EPOCH]
        counters["TORN_TAILS"] += entries[TORN]
    return dict(counters)


def _marks(logs: list[Audited]) -> DataFrame:
    """Every segment, epoch start, torn tail and damaged place of every log."""
    parts = [
        log.marks.frame.select(
            "entry", f.lit(log.site).alias("site"), f.lit(log.log).alias("log"), "segment", "epoch", "seq", "last_seq",
            "offset", "end", "detail",
        )
        for log in logs
    ]
    return reduce(DataFrame.unionByName, parts)


def _stretches(logs: list[Audited]) -> list[Lane]:
    """Each log as a lane of the timeline, with the lowest and the highest sequence of each epoch in it."""
    lanes = []
    for log in logs:
        stretches: dict[int, tuple[int, int]] = {}
        for row in log.linked.rows.select(["epoch", "seq", "upto"]).to_pylist():
            first, last = stretches.get(row["epoch"], (row["seq"], row["upto"]))
            stretches[row["epoch"]] = (min(first, row["seq"]), max(last, row["upto"]))
        lanes.append(Lane(log.site, log.log, log.name, stretches))
    return lanes
