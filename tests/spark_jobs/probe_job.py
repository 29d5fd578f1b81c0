"""A job as small as one can be: what it finds is given with --set."""

from __future__ import annotations

import os
import signal

from pyspark.sql import SparkSession

from spark_jobs.job import Chart, Outcome, Progress, Request, Series
from storage.errors import NotFound


def run(spark: SparkSession, request: Request, progress: Progress) -> Outcome:
    progress.step("probing")
    count = int(request.options.get("findings", "0"))
    if "fails" in request.options:
        raise NotFound(request.options["fails"])
    if "breaks" in request.options:
        spark.range(1).selectExpr("assert_true(id > 0)").collect()
    if "stops" in request.options:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()  # until the handler has run
    places = spark.sparkContext.parallelize(range(4), 4).map(lambda number: number * number).sum()
    findings = spark.range(count).selectExpr(
        "case when id % 3 = 0 then 'missing' else 'stale' end as kind", "'flights' as table", "concat('key-', id) as key_text",
        "encode(concat('key-', id), 'utf-8') as key", "id as seq",
    )
    chart = Chart("Squares", "bars", "number", series=(Series("square", (1.0, 2.0), (1.0, 4.0)),))
    return Outcome(
        good=count == 0, counters={"BADROWS": count, "SQUARES": places}, findings=findings, tables=("flights",),
        frames={"numbers": spark.range(3).toDF("number")}, charts=(chart,), remarks=("a remark <b>",),
        advice={"missing": "Repair it."},
    )
