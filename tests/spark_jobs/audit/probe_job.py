"""A job as small as one can be: what it finds is given with --set."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.job import Chart, JobProgress, JobRequest, Outcome, Series
from twinlog.errors import NotFound

EXECUTORS = 2
MEETING_S = 120.0


def _places(spark: SparkSession) -> set[tuple[str, str]]:
    """(working folder, file of this package) of each executor, as its tasks see them."""
    def place(number: int) -> tuple[str, str]:
        from spark_jobs import data_source as source

        Path(here, str(number)).touch()
        until_s = time.monotonic() + MEETING_S
        while len(os.listdir(here)) < EXECUTORS and time.monotonic() < until_s:  # each has one core, and so one task
            time.sleep(0.05)
        return os.getcwd(), os.path.abspath(source.__file__)

    with tempfile.TemporaryDirectory() as here:
        return set(spark.sparkContext.parallelize(range(EXECUTORS), EXECUTORS).map(place).collect())


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    progress.step("probing")
    count = int(request.options.get("findings", "0"))
    if "fails" in request.options:
        raise NotFound(request.options["fails"])
    if "breaks" in request.options:
        spark.range(1).selectExpr("assert_true(id > 0)").collect()
    if "stops" in request.options:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()  # until the handler has run
    counters = {"BADROWS": count, "SQUARES": spark.sparkContext.parallelize(range(4), 4).map(lambda n: n * n).sum()}
    if "where" in request.options:
        places = _places(spark)
        counters |= {"EXECUTORS": len(places), "SENT": sum(file.startswith(folder) for folder, file in places)}
    findings = spark.range(count).selectExpr(
        "case when id % 3 = 0 then 'missing' else 'stale' end as kind", "'flights' as table", "concat('key-', id) as key_text",
        "encode(concat('key-', id), 'utf-8') as key", "id as seq",
    )
    chart = Chart("Squares", "bars", "number", series=(Series("square", (1.0, 2.0), (1.0, 4.0)),))
    return Outcome(
        good=count == 0, counters=counters, findings=findings, tables=("flights",),
        frames={"numbers": spark.range(3).toDF("number")}, charts=(chart,), remarks=("a remark <b>",),
    )
