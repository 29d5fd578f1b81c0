"""One Java for all audits of a test, each still a command of its own: as spark-submit gives its Java to the command it runs.

A Java that starts, loads Spark's classes and compiles them costs three quarters of a small audit's time. What always holds:
commands find it by PySpark's own variables in this process's environment, one after the other; each makes a Spark of its own in
it and stops that. That such a command starts a Java by itself, with what a local session must be, is proved on a real pair
by tests/tools/test_log_story.py, and by tests/spark_jobs/audit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools.sources import ROOT

END_DEADLINE_S = 60.0
_SETTINGS = {
    "spark.master": "local[2]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Java compiles less of its short jobs


@contextmanager
def one_java() -> Iterator[None]:
    """Every PySpark that this process starts until the end, in processes of its own, works in one Java."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(_SETTINGS.items()))
        try:
            patch.setenv("PYSPARK_GATEWAY_PORT", str(gateway.gateway_parameters.port))
            patch.setenv("PYSPARK_GATEWAY_SECRET", gateway.gateway_parameters.auth_token)
            yield
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(END_DEADLINE_S)
