"""The record of a soak: a line of JSON for each leg that has ended, added and never changed. A soak continues from it.

What always holds: a leg that was stopped, or that the harness itself could not finish, leaves no line, and is made again; all
figures of a line are of that leg alone, and its seconds are all the time that it took, with the start of the pair, the
checkers and the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chaos.harness.faults.steps import NOT_REACHED
from chaos.harness.matrix.record import lines_of, recorded
from chaos.harness.pair.samples import Sample
from chaos.harness.run import Run


class Held(msgspec.Struct, frozen=True):
    """The gateway of a site while the pair was idle: before the first request, and after the last one."""

    site: str
    memory_bytes_first: int
    memory_bytes_last: int
    descriptors_first: int
    descriptors_last: int
    threads_first: int
    threads_last: int


class Leg(msgspec.Struct, frozen=True):
    """One leg. `faults`: kind -> how often it came about, commands included; `not_reached`: how often a step was not passed;
    `left_out`: faults that could not be caused then. `broken`: the checkers that were violated. `held`: empty where the pair
    did not come to rest."""

    day: str
    commit: str
    parts: str
    seed: int
    leg: int
    workload: str
    faults: dict[str, int]
    not_reached: int
    left_out: int
    operations: int
    acknowledged: int
    unknown: int
    lost: int
    not_linearizable: int
    violations: int
    stuck: int
    broken: list[str]
    without_writes_s: float
    without_reads_s: float
    held: list[Held]
    lasted_s: float


def leg_of(run: Run, seed: int, leg: int, commit: str, lasted_s: float) -> Leg:
    line = recorded(run, "", "", commit)
    came = [span for span in run.spans if not span.skipped]
    reached = [span for span in came if not span.told.endswith(NOT_REACHED)]
    by_kind = dict(sorted(Counter(each.kind for each in reached).items()))
    return Leg(
        line.day, commit, line.parts, seed, leg, run.plan.workload, by_kind, len(came) - len(reached),
        len(run.spans) - len(came), line.operations, line.acknowledged, line.unknown, line.lost, line.not_linearizable,
        line.violations, line.stuck, sorted({each.checker for each in run.violations}), line.without_writes_s,
        line.without_reads_s, _held(run.rest), round(lasted_s, 1),
    )


def _held(rest: Sequence[Sequence[Sample]]) -> list[Held]:
    if len(rest) < 2:
        return []
    first, last = ({look.site: look.held for look in looks} for looks in (rest[0], rest[-1]))
    return [
        Held(site, one.memory_bytes, other.memory_bytes, one.descriptors, other.descriptors, one.threads, other.threads)
        for site, one in sorted(first.items()) if one is not None and (other := last.get(site)) is not None
    ]


def read(path: Path) -> list[Leg]:
    """Returns all lines; none where there is no file yet. Raises InvalidInput."""
    return lines_of(path, Leg, "leg")
