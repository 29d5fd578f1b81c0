"""`python -m bench.audits.log_audit --mb 400`: how fast the job log-audit reads a log, in bytes of log.

Makes a WAL of that size with the product's own codecs, in a temporary folder, for each size of frame; audits it in one local
Spark session after a small one has warmed it, in interleaved rounds; says medians and spreads, the bytes a second, and those
of reading, the walk over the frames and folding them alone (by CPU, in this process). A finding in such a log is an error.
"""

from __future__ import annotations

import random
import tempfile
import time
from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.rounds import Rounds, told
from spark_jobs.audit.session import open_session
from spark_jobs.job import JobRequest, SiteSource
from spark_jobs.log_audit.job import run
from spark_jobs.logs.columns import RUNS_SCHEMA
from spark_jobs.logs.files import LogFolder, list_log
from spark_jobs.logs.runs import run_batch
from spark_jobs.logs.walk import walk
from storage.log.frame import make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import SegmentHeader, encode_header, wal_name

SEGMENT_BYTES = 16 << 20
ROW_BYTES = 100
RECORDS = (1, 8, 64, 256)  # in a frame: one client, some, many
WARM_MB = 2
SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
_NOWHERE = "http://127.0.0.1:1"  # no gateway: the audit is of the files alone


class Silent:
    def step(self, what: str) -> None:
        pass

    def rows(self, done: int, total: int | None = None) -> None:
        pass


def make_wal(folder: Path, size: int, records: int) -> int:
    """Segments of frames of `records` records each, `size` bytes together; how many frames."""
    noise = random.Random(records)
    folder.mkdir(parents=True)
    seq = index = frames = written = 0
    while written < size:
        index += 1
        header = encode_header(SegmentHeader(0, 1, seq + 1, wal_name(1, index)))
        parts, length = [header], len(header)
        while length < SEGMENT_BYTES and written + length < size:
            rows = [
                Record(RecordKind.UPSERT, 1, b"key%012d" % (seq + place), noise.randbytes(ROW_BYTES))
                for place in range(records)
            ]
            frame = make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=(seq + 1) << 16, committed=seq, records=rows)
            parts.append(frame.data)
            length += len(frame.data)
            seq += records
            frames += 1
        (folder / wal_name(1, index)).write_bytes(b"".join(parts))
        written += length
    return frames


def audit(spark: SparkSession, wal: Path) -> str:
    """Raises AssertionError when it finds something."""
    request = JobRequest("log-audit", "bench", SiteSource("a", _NOWHERE, wal=str(wal)), SiteSource("b", _NOWHERE), wal.parent)
    outcome = run(spark, request, Silent())
    assert outcome.good, [row.asDict() for row in outcome.findings.collect()]
    spark.catalog.clearCache()
    return ""


def walk_s(wal: Path) -> float:
    """CPU seconds of what a task of Spark's does in Python, in this process."""
    place = LogFolder(str(wal))
    store, begun = place.store(), time.process_time()
    for segment in list_log(place).segments:
        found = walk(store.read(place.file(segment.name)), segment.name, segment)
        run_batch(found, segment, "", RUNS_SCHEMA)
    return time.process_time() - begun


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        spark = open_session(given.master, "bench log-audit", SETTINGS)
        make_wal(folder / "warm", WARM_MB << 20, 64)
        audit(spark, folder / "warm")
        wals, sizes = {}, {}
        for records in RECORDS:
            wal = folder / str(records)
            frames = make_wal(wal, given.mb << 20, records)
            name = f"{frames:,} frames of {records} records"
            wals[name], sizes[name] = wal, sum(file.stat().st_size for file in wal.iterdir()) / 1e6
        rounds = Rounds()
        for _ in range(given.rounds):
            for name, wal in wals.items():
                rounds.measured(name, partial(audit, spark, wal))
        rounds.summary()
        for name, size in sizes.items():
            alone = size / walk_s(wals[name])
            told(name, f"{size:,.0f} MB: {size / rounds.median_s(name):.0f} MB/s; the walk alone {alone:.0f} MB/s")
        spark.stop()


if __name__ == "__main__":
    main()
