"""The audit's proof on a real pair, small: what is planted under a storage is found, and nothing else; and it is mended."""

from __future__ import annotations

import os

import pytest

from spark_jobs.java import java_program
from storage.errors import ConfigError
from tools import audit_story


@pytest.mark.timeout(600)
def test_planted_rows_are_found_and_mended() -> None:
    try:
        java_program()
    except ConfigError as error:
        if os.environ.get("CI"):
            pytest.fail(error.message)
        pytest.skip(error.message)
    assert audit_story.main(["--rows", "5000"]) == 0
