"""The audit's proof on a real pair, small: what is planted under a storage is found, and nothing else; and it is mended."""

from __future__ import annotations

import pytest

from tests.needs import need_spark
from tools import audit_story

pytestmark = pytest.mark.long


def test_planted_rows_are_found_and_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spark()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Java compiles less of its short jobs
    assert audit_story.main(["--rows", "5000"]) == 0
