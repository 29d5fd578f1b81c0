"""A test that is skipped and a sleep of a fixed time are found; a poll, a clock of the test's own and a stated reason pass."""

from __future__ import annotations

import pytest

from tools.laws import suite_law

SKIPPED = ["pytest.skip('no Java')", "pytest.importorskip('jpype')", "@pytest.mark.skipif(True)\ndef test(): ...",
           "pytestmark = pytest.mark.xfail"]
ASLEEP = ["time.sleep(0.2)", "async def test():\n    await asyncio.sleep(interval_s)",
          "while True:\n    def late():\n        time.sleep(1)"]
SOUND = [
    "while not path.exists():\n    time.sleep(0.02)", "async def test():\n    await asyncio.sleep(0)",
    "for one in due:\n    time.sleep(0.1)", "clock.sleep(5)", "time.sleep(65)  # by the clock: HDFS's own", "skip(1)",
]


@pytest.mark.parametrize("source", SKIPPED)
def test_a_skip_is_found(source: str) -> None:
    assert [breach for breach in suite_law.breaches("tests/test_a.py", source) if "hides a test" in breach]


@pytest.mark.parametrize("source", ASLEEP)
def test_a_fixed_sleep_is_found(source: str) -> None:
    (breach,) = suite_law.breaches("tests/test_a.py", source)
    assert "waits for a fixed time" in breach
    assert not [*suite_law.breaches("tests/chaos/simulate/test_a.py", source)]


@pytest.mark.parametrize("source", SOUND)
def test_what_waits_for_a_thing_passes(source: str) -> None:
    assert not [*suite_law.breaches("tests/test_a.py", source)]


def test_memory_that_is_traced_beside_a_java_is_found() -> None:
    (breach,) = suite_law.breaches("tests/test_a.py", "import tracemalloc\ntracemalloc.start()")
    assert "tests/suite/traced.py" in breach
    assert not [*suite_law.breaches(suite_law.TRACED, "tracemalloc.start()")]


def test_the_house_keeps_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite_law.main() == 0, capsys.readouterr().out
