"""The audit's proof on a real pair, small: what is planted under a storage is found, and nothing else; and it is mended."""

from __future__ import annotations

import pytest

from tests.needs import need_spark
from tests.one_java import one_java
from tools import audit_story

pytestmark = pytest.mark.long


def test_planted_rows_are_found_and_mended() -> None:
    need_spark()
    with one_java():
        assert audit_story.main(["--rows", "5000"]) == 0
