"""The request to a job and its outcome: the shapes between spark_jobs/run.py and the jobs.

What always holds: a job is `run(spark, request, progress) -> Outcome`, reads only what `request` names and changes neither
site, unless its own page says so. It writes nothing into `request.folder` itself: frames and charts of its outcome are
written by output.py and report.py. A job that could not look raises an error of twinlog/errors.py; it never answers `good`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from twinlog.wire.tls import Tls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "twinlog"  # of spark.read.format


@dataclass(frozen=True, slots=True)
class SiteSource:
    """One site, as far as this job knows. An empty text: not known here."""

    name: str
    url: str  # of its gateway, without a final slash
    config: str = ""  # the file that the rest was read from
    wal: str = ""  # folder of its WAL's segments
    wal_keys: str = ""  # references to the keys of that; never the keys
    remote_log: str = ""  # folder, or hdfs:// address, of the pair's remote log on this site's DFS: the peer wrote it
    remote_log_keys: str = ""
    hdfs: Mapping[str, str] = field(default_factory=dict)  # Hadoop's own keys for that address
    engine: str = ""  # rocksdb, postgresql, sqlite
    engine_url: str = field(default="", repr=False)  # SQLAlchemy address of an SQL engine, secrets resolved
    tls: Tls = field(default_factory=Tls)  # for calls of its gateway
    place: str = ""  # of the snapshot at the barrier: KeptSnapshot.place


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier that both sites hold a snapshot at: exactly the first `seq` sequences."""

    name: str
    epoch: int
    seq: int
    taken_at: str = ""  # on the active, RFC 3339


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The sites and places that a job looks at. `source` is the active at the time of the barrier, `peer` the other site."""

    job: str
    pair: str
    source: SiteSource
    peer: SiteSource
    folder: Path  # where the audit is being written
    tables: tuple[str, ...] = ()  # empty: all
    barrier: Barrier | None = None  # of jobs that read storage
    options: Mapping[str, str] = field(default_factory=dict)  # `--set NAME=VALUE`: its own, and those that it needs

    @property
    def sites(self) -> tuple[SiteSource, SiteSource]:
        """The two in the order of their names."""
        return (self.source, self.peer) if self.source.name < self.peer.name else (self.peer, self.source)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour. `x` are numbers (with Chart.x_is_time: milliseconds since 1970) or names of bars."""

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A bar from `start` to `end` in the lane `lane` of a timeline. A `bad` one is drawn to be seen."""

    lane: str
    start: float
    end: float
    label: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot of the report: `bars`, `lines` or `points` of its series, or a `timeline` of its spans. Few hundred points."""

    title: str
    kind: Literal["bars", "lines", "points", "timeline"]
    x_label: str
    y_label: str = ""
    series: tuple[Series, ...] = ()
    spans: tuple[TimelineBar, ...] = ()
    x_is_time: bool = False
    note: str = ""  # how to read it, in a sentence


@dataclass(frozen=True, slots=True)
class TableTally:
    """The rows of one table: those that were compared, those that are the same, and the others by kind. `places`: of each kind,
    how many there are in each equal share of the table's ranges of keys."""

    name: str
    compared: int
    equal: int
    kinds: Mapping[str, int]
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The findings of a job. `good`: nothing has to be repaired, and `findings` is empty."""

    good: bool
    counters: Mapping[str, int]  # by name, in the order to show them in
    findings: DataFrame  # one row each; shown first to last in the report, kept whole as Parquet
    tables: tuple[str, ...] = ()  # that were looked at
    frames: Mapping[str, DataFrame] = field(default_factory=dict)  # more to keep as Parquet, by name
    charts: tuple[Chart, ...] = ()
    remarks: tuple[str, ...] = ()  # what the reader should know: sentences
    tallies: tuple[TableTally, ...] = ()  # for the sites' pages; of jobs that compare tables


class JobProgress(Protocol):
    """A job reports its progress here. Tasks of Spark's stages are watched without its help."""

    def step(self, what: str) -> None:
        """A new part of the work begins, in a few words."""

    def rows(self, done: int, total: int | None = None) -> None:
        """So many rows of the present part have been looked at."""


class Job(Protocol):
    """The function `run` of a job's module."""

    def __call__(self, spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome: ...
