"""The needs of tests that start Spark: Java and PySpark. Without them they are skipped; in CI that is a failure."""

from __future__ import annotations

import os

import pytest

from spark_jobs.audit.java import java_program
from spark_jobs.audit.session import check_installed
from twinlog.errors import ConfigError


def need_spark() -> None:
    try:
        check_installed()
        java_program()
    except ConfigError as error:
        if os.environ.get("CI"):
            pytest.fail(error.message)
        pytest.skip(error.message)
