"""Both checkers say the same of the same histories, row by row: of pairs in memory with and without faults, and of seeds of the
simulator with and without planted bugs.

What always holds: a row that only one of them finds broken fails the test. Two differences are known: Porcupine follows whole
rows, so it finds a torn one, as `phantom` does of ours; and versions, so it may find the loss of a write whose value another
write brought again (counters), which ours cannot see.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.simulate.bugs import BUGS, planted
from chaos.simulate.draw import draw
from chaos.simulate.run import Run
from chaos.workloads.memory import Faults
from tests.chaos.porcupine.conftest import Second, ours
from tests.chaos.workloads.test_workloads import ALL, HONEST, run

SEEDS = 4
PLANTED = {
    "stale read": replace(HONEST, stale_reads=0.06),
    "lost write": replace(HONEST, lost_writes=0.1),
    "refused, and applied": replace(HONEST, applied_refusals=0.1),
    "conditions ignored": replace(HONEST, ignored_conditions=0.2),
    "unknown, and applied when settled": replace(HONEST, late_phantoms=0.06),
    "half a batch": replace(HONEST, torn_batches=0.1),
}
FOUND_IN = {"conditions ignored": ("counters", "check_and_mutate", "bank", "appends", "mixed")}
SEED_OF_BUG = {  # where both find a row that is not linearizable
    "blind-write-beside-conditional": 12, "ack-before-remote": 8, "no-claim-check": 36, "no-epoch-check-at-sink": 1093,
    "sequence-again-after-restart": 12, "rejoin-keeps-tail": 29, "condition-lost-in-the-head": 28,
}


async def compared(second: Second, name: str, faults: Faults, seeds: range) -> int:
    """Both checkers' word on each history; how many broken rows they both found."""
    rows = 0
    for seed in seeds:
        history, _, _ = await run(name, seed, faults)
        theirs, own = second.broken(history), ours(history)
        same_values = {use.name for use in history.tables if not use.unique}
        assert theirs >= own, f"seed {seed}"
        assert {row for row in theirs - own if row[0] not in same_values} == set(), f"seed {seed}"
        rows += len(own)
    return rows


@pytest.mark.parametrize("name", ALL)
async def test_an_honest_pair_is_accused_by_neither(second: Second, name: str) -> None:
    assert await compared(second, name, HONEST, range(12)) == 0


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("name", ALL)
async def test_they_accuse_a_broken_pair_of_the_same_rows(second: Second, name: str, fault: str) -> None:
    found = await compared(second, name, PLANTED[fault], range(SEEDS))
    assert found > 0 or name not in FOUND_IN.get(fault, ())


async def test_a_torn_row_is_found_by_porcupine_and_by_phantom(second: Second) -> None:
    for seed in range(SEEDS):
        history, _, _ = await run("registers", seed, replace(HONEST, torn_rows=0.1))
        assert second.broken(history) >= ours(history, "phantom") > set() == ours(history)


# ---- the simulator
@pytest.mark.parametrize("seed", range(12))
def test_a_simulated_pair_is_accused_by_neither(second: Second, seed: int) -> None:
    history = Run(draw(seed)).execute().history
    told = second.judged(history)
    assert (told.broken, told.undecided, ours(history)) == ([], [], set())
    assert bool(told.beyond) == bool(history.apart)


@pytest.mark.parametrize("name", SEED_OF_BUG)
def test_a_planted_bug_breaks_the_same_rows_for_both(second: Second, name: str) -> None:
    with planted(name):
        history = Run(BUGS[name].plan(SEED_OF_BUG[name])).execute().history
    assert second.broken(history) >= ours(history) > set()
