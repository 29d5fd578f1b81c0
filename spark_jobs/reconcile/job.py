"""The job `reconcile`: what became of records that a rejoin put aside, or that a lost site's log alone holds, at a barrier.

Settings: `tail` (what was put aside: see reconcile_tail.py for its shapes).
What always holds: every row of the tail has one outcome (reconcile_frames.py); findings are the lost ones, which somebody may
want to enter again; good is: none. It changes neither site, and leaves the tail as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.compare.checks import check_moments
from spark_jobs.job import FORMAT, JobProgress, JobRequest, Outcome, SiteSource
from spark_jobs.logs.files import KEYS, PATH, LogFolder, list_log, place_of
from spark_jobs.logs.standing import placed_frames, standing_frames
from spark_jobs.reconcile.rows import CHANGES, LOST, OUTCOMES, RECONCILED, judged, shown
from spark_jobs.reconcile.tail import Change, Tail, read_tail
from spark_jobs.snapshots.snapshot import KeyRange, SnapshotCatalog, encode_ranges, open_snapshot
from storage.rows.schema import TableSchema, encode_schema
from twinlog.errors import LogError, NotFound
from twinlog.wire.home_paths import expanded

SETTING = "tail"
POINTS_MAX = 10_000  # up to so many keys are looked up one by one; more are read as ranges with what lies between
DELETES = "table bigint, key binary, deleted bigint"
_Key = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Looked:
    """The tail beside what the sites have. `unmade`: tables that the tail made, changed or dropped, and the sites did not;
    `foreign`: those of them that are no table of the sites, so that nothing there stands for their rows."""

    changes: Mapping[_Key, Change]
    schemas: Mapping[int, TableSchema]
    known: frozenset[int]
    unmade: frozenset[int]
    foreign: frozenset[int]


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    """Raises InvalidInput, NotFound, Refused, DamagedLog, LogError, EngineFailed: then nothing is known."""
    progress.step("reading what was put aside")
    tail = read_tail(expanded(request.options[SETTING], SETTING), request.options.get(KEYS, ""))
    looked = _looked(request, tail)
    remarks: list[str] = []
    changes = spark.createDataFrame(list(_lines(looked)), CHANGES).persist()
    progress.step(f"looking for {len(looked.changes):,} rows at both sites")
    source, peer = (_rows(spark, site, looked) for site in (request.source, request.peer))
    progress.step("looking for later deletes in the log")
    found = judged(changes, source, peer, _deletes(spark, request.source, changes, remarks))
    schemas = {number: encode_schema(schema) for number, schema in looked.schemas.items()}
    tables = spark.createDataFrame(list(_tables(looked)), RECONCILED)
    rows = tables.unionByName(shown(found.orderBy("table", "key"), schemas)).persist()
    counts = {one["kind"]: one["count"] for one in rows.groupBy("kind").count().collect()}
    return Outcome(
        good=not counts.get(LOST),
        counters={
            "RECORDS": sum(change.records for change in looked.changes.values()), "ROWS": len(looked.changes),
            "TABLES_CHANGED": len(looked.unmade),
            **{outcome.upper(): counts.get(outcome, 0) for outcome in OUTCOMES},
        },
        findings=rows.where(f.col("kind") == LOST), tables=tuple(sorted({_name(looked, table) for table, _ in looked.changes})),
        frames={"reconciled": rows}, remarks=tuple(remarks),
    )


def _looked(request: JobRequest, tail: Tail) -> Looked:
    """Raises NotFound for a name that nobody knows, Refused for snapshots of two moments."""
    catalogs: list[SnapshotCatalog] = []
    for site in (request.source, request.peer):
        with open_snapshot(site.place, site.engine_url) as snapshot:
            catalogs.append(snapshot.catalog())
    source, peer = catalogs
    check_moments(source, peer, request.barrier, (request.source.name, request.peer.name))
    known = {**peer.tables, **source.tables}
    made = frozenset(
        number for number, schema in tail.schemas.items()
        if (schema is None and number in known) or (schema is not None and source.tables.get(number) != schema)
    )
    foreign = frozenset(
        number for number in made
        if (schema := tail.schemas[number]) is not None and (number not in known or known[number].name != schema.name)
    )
    schemas = {**known, **{number: schema for number, schema in tail.schemas.items() if schema is not None}}
    names = {schema.name: number for number, schema in schemas.items()}
    missing = [name for name in request.tables if name not in names]
    if missing:
        raise NotFound(f"there is no table {missing[0]!r}, neither at the sites nor in what was put aside")
    wanted = {names[name] for name in request.tables}
    changes = {key: change for key, change in sorted(tail.changes.items()) if not wanted or key[0] in wanted}
    unmade = frozenset(number for number in made if not wanted or number in wanted)
    return Looked(changes, schemas, frozenset(known), unmade, foreign)


def _name(looked: Looked, number: int) -> str:
    schema = looked.schemas.get(number)
    return f"table {number}" if schema is None else schema.name


def _signed(number: int) -> int:
    return number - ((number >> 63) << 64)


def _lines(looked: Looked) -> Iterator[tuple[object, ...]]:
    for (table, key), each in looked.changes.items():
        gone = table not in looked.known and table not in looked.foreign
        line = (each.operation, each.value, _signed(each.version), each.seq, each.epoch, each.records, gone)
        yield _signed(table), key, *line


def _tables(looked: Looked) -> Iterator[tuple[object, ...]]:
    """Changes of tables that are lost, as findings without a row."""
    rest = (None,) * (len(RECONCILED.split(",")) - 5)
    for number in sorted(looked.unmade):
        yield _name(looked, number), None, None, LOST, "table", *rest


def ranges_of(keys: Sequence[_Key], points_max: int = POINTS_MAX) -> list[KeyRange]:
    """Ranges without overlap that hold these keys (ascending): one for each, or of many fewer with what lies between."""
    found: list[KeyRange] = []
    together = 1 + len(keys) // points_max
    tables = sorted({table for table, _ in keys})
    for table in tables:
        own = [key for number, key in keys if number == table]
        for number, at in enumerate(range(0, len(own), together)):
            found.append(KeyRange(table, number, own[at], own[at : at + together][-1] + b"\0", together))
    return found


def _rows(spark: SparkSession, site: SiteSource, looked: Looked) -> DataFrame:
    """Returns the site's rows under the tail's keys; none of a table that is not the tail's own."""
    keys = [key for key in looked.changes if key[0] not in looked.foreign]
    given = {"view": "rows", "place": site.place, "url": site.engine_url, "ranges": encode_ranges(ranges_of(keys))}
    return spark.read.format(FORMAT).options(**given).load()


def _deletes(spark: SparkSession, source: SiteSource, changes: DataFrame, remarks: list[str]) -> DataFrame:
    """Returns the deletes of the tail's rows, as far as the active's WAL goes back; only frames that stand prove anything."""
    nothing = spark.createDataFrame([], DELETES)
    place = place_of({PATH: source.wal, KEYS: source.wal_keys}) if source.wal else None
    if place is None or not Path(place.folder).is_dir() or not list_log(place).segments:
        remarks.append(f"no log of site {source.name} is known here: a row that was deleted later counts as lost")
        return nothing
    try:
        proven = _proven(spark, place, changes)
    except LogError as error:
        remarks.append(f"later deletes were not looked for, such rows count as lost: {error.message}")
        return nothing
    remarks.append(f"later deletes are known as far back as the log of site {source.name} goes; before, such a row is lost")
    return proven


def _proven(spark: SparkSession, place: LogFolder, changes: DataFrame) -> DataFrame:
    kept = [(each.segment, each.offset) for each in standing_frames(placed_frames(spark, place))]
    frames = spark.createDataFrame(kept, "segment string, offset bigint")
    log = spark.read.format(FORMAT).options(view="log", **place.options).load()
    deletes = log.where(f.col("operation") == "delete").select("table", "key", "timestamp", "segment", "offset")
    newest = deletes.join(frames, ["segment", "offset"]).groupBy("table", "key").agg(f.max("timestamp").alias("deleted"))
    return newest.join(changes.select("table", "key"), ["table", "key"], how="left_semi")
