"""The Spark benches report their rounds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.rounds import Rounds, cpu_s

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_median_and_the_spread_of_each_piece_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds()
    rounds.measured("counting", lambda: "found 3")
    rounds.taken = {"counting": [(3.0, 5.0), (1.0, 2.0), (2.0, 4.0)], "reading": [(7.0, 1.0)]}
    rounds.summary()
    assert rounds.median_s("counting") == 2.0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("counting")
    assert first.endswith("found 3")
    assert [" ".join(line.split()) for line in rest[-2:]] == [
        "counting 2.00 (1.00 to 3.00) s, 4.00 (2.00 to 5.00) s of CPU, 3 rounds",
        "reading 7.00 (7.00 to 7.00) s, 1.00 (1.00 to 1.00) s of CPU, 1 rounds",
    ]


def test_the_cpu_of_a_child_that_has_ended_counts() -> None:
    before = cpu_s()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_s() - before >= 0.25
