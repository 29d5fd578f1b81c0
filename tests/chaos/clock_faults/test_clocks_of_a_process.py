"""The clocks of a process with the library: what jumps, what drifts, what is left alone, and waits by the wall clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from chaos.clock_faults.control import STARTS_S, ClockFaults

NEAR_S = 0.5  # that a line may take there and back: what is compared lies minutes apart
WAIT_S = 0.3


class Program:
    """Clocks in a process, each beside the real one before and after."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def clocks(self, wait: str = "") -> Mapping[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{wait}\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def ahead(self) -> tuple[float, float, float]:
        """Returns by how much its wall clock, CLOCK_BOOTTIME and CLOCK_MONOTONIC are ahead of the real ones."""
        there = self.clocks()
        here = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
        return there["wall"] - here[0], there["boot"] - here[1], there["monotonic"] - here[2]


@pytest.fixture
def faults(tmp_path: Path) -> ClockFaults:
    return ClockFaults(tmp_path / "clocks")


@pytest.fixture
def program(faults: ClockFaults) -> Iterator[Program]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("clocks.py"))], env={**os.environ, **faults.environ()}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        yield Program(process)
        process.kill()


def near(*expected: float) -> object:
    return pytest.approx(expected, abs=NEAR_S)


def test_the_wall_clock_jumps_and_no_other(faults: ClockFaults, program: Program) -> None:
    assert program.ahead() == near(0, 0, 0)
    faults.jump(3600)
    assert program.ahead() == near(3600, 0, 0)
    faults.jump(-7200)
    assert program.ahead() == near(-3600, 0, 0)
    assert faults.ahead_s == pytest.approx(-3600)


def test_a_rate_counts_for_the_wall_clock_and_the_lease_s_clock(faults: ClockFaults, program: Program) -> None:
    faults.jump(100)
    faults.run_at(1000.0)
    before, told = time.clock_gettime(time.CLOCK_BOOTTIME), program.ahead()
    while told[1] < 100:
        told = program.ahead()
    passed = time.clock_gettime(time.CLOCK_BOOTTIME) - before
    assert told[1] <= 999 * passed
    assert told[0] == pytest.approx(told[1] + 100, abs=NEAR_S)
    assert told[2] == pytest.approx(0, abs=NEAR_S)
    faults.run_at(1.0)
    time_there = program.clocks()["boot"]
    assert time_there > told[1]
    assert faults.rate == 1.0


def test_the_lease_s_clock_never_goes_back_when_its_rate_changes(faults: ClockFaults, program: Program) -> None:
    seen = [program.clocks()["boot"]]
    for rate in (1.1, 0.1, 5.0, 0.01, 1.0):
        faults.run_at(rate)
        until = time.monotonic() + 3 * STARTS_S
        while time.monotonic() < until:
            seen.append(program.clocks()["boot"])
    assert len(seen) > 20
    assert seen == sorted(seen)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_wait_until_a_moment_of_the_wall_clock_ends_then(faults: ClockFaults, program: Program, jump_s: float) -> None:
    faults.jump(jump_s)
    waited = program.clocks(str(WAIT_S))["waited"]
    assert WAIT_S * 0.9 <= waited < 600


def test_the_next_process_has_the_same_clocks(faults: ClockFaults, program: Program) -> None:
    faults.jump(3600)
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("clocks.py"))], env={**os.environ, **faults.environ()}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        assert Program(process).ahead() == near(3600, 0, 0)
        process.kill()


def test_a_process_without_a_table_has_its_own_clocks_and_says_so(faults: ClockFaults, tmp_path: Path) -> None:
    environ = {**os.environ, **faults.environ(), "CLOCK_FAULTS_TABLE": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("clocks.py"))], env=environ, text=True, input="\n", capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["wall"] == pytest.approx(time.time(), abs=60)
    assert "clock faults: no table at" in done.stderr
