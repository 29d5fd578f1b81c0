"""Rounds of the Spark benches: what each piece of work takes, in wall time and CPU, and its median and spread over the rounds.

CPU is that of this process and all below it, Java's and Python's, those that have ended included: it depends less than the time
on what else the machine does. The rounds of different pieces of work are to be interleaved by the caller.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import spread

_TICKS = os.sysconf("SC_CLK_TCK")
_WIDTH = 58


class Rounds:
    """By name of the work, in the order of their first round: (seconds, seconds of CPU) of each round."""

    def __init__(self) -> None:
        self.taken: dict[str, list[tuple[float, float]]] = {}

    def measured(self, what: str, work: Callable[[], str]) -> None:
        """One round of `work`, which says what it found."""
        begun, cpu = time.perf_counter(), cpu_s()
        said = work()
        took = time.perf_counter() - begun, cpu_s() - cpu
        self.taken.setdefault(what, []).append(took)
        told(what, f"{took[0]:7.2f} s {took[1]:7.2f} s of CPU  {said}")

    def median_s(self, what: str) -> float:
        return _spread([wall for wall, _ in self.taken[what]])["median"]

    def summary(self) -> None:
        """A line for each piece of work: median (lowest to highest)."""
        sys.stdout.write("\nmedian (lowest to highest) of the rounds\n")
        for what, rounds in self.taken.items():
            wall, cpu = (_spread([each[place] for each in rounds]) for place in (0, 1))
            told(what, f"{_figures(wall)} s, {_figures(cpu)} s of CPU, {len(rounds)} rounds")


def told(what: str, figures: str) -> None:
    sys.stdout.write(f"{what:{_WIDTH}} {figures}\n")
    sys.stdout.flush()


def cpu_s() -> float:
    """Seconds of CPU so far of this process and all below it, ended ones included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile, and its parent has counted it
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    total = 0
    for pid, spent in ticks.items():
        line = pid
        while line in parents and line != os.getpid():
            line = parents[line]
        total += spent if line == os.getpid() else 0
    return total / _TICKS


def _spread(values: list[float]) -> dict[str, float]:
    found = spread(values)
    assert found is not None, "no round"
    return found


def _figures(of: dict[str, float]) -> str:
    return f"{of['median']:.2f} ({of['low']:.2f} to {of['high']:.2f})"
