"""The log audit's proof on a real pair, small: what is planted in its logs is told with file and offset, and nothing else.

Each audit starts a Java of its own, as an operator's does; those of the audit story share one (tests/one_java.py).
"""

from __future__ import annotations

import pytest

from tests.needs import need_spark
from tools import log_story

pytestmark = pytest.mark.long


def test_faults_in_the_logs_are_told_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spark()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Java compiles less of its short jobs
    assert log_story.main(["--rows", "3000"]) == 0
