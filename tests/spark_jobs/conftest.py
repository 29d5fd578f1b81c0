"""One Spark session for all tests of a process: two cores, small, without a web page, with a Java made for a quick start.

Its queries are interpreted: to compile them takes a third of the time of a test, and each is asked once. The commands that
tests of real pairs start (tests/tools/test_audit_story.py) compile theirs, as users' do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_jobs.audit.session import open_session
from tests.needs import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the data source `twinlog`. Without Java or PySpark: skipped, in CI a failure."""
    need_spark()
    folder = tmp_path_factory.mktemp("warehouse")
    session = open_session("local[2]", "tests", {**SETTINGS, "spark.sql.warehouse.dir": str(folder)})
    yield session
    session.stop()
