"""Workloads against a pair in memory: an honest one is never accused, each planted fault is found by those it concerns."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random

import pytest

from chaos.checkers import check_all
from chaos.checkers.violation import Violation
from chaos.history.history import History, Moment, Opened, Operation, Recorder, dump, load
from chaos.workloads import WORKLOADS
from chaos.workloads.appends import Appends
from chaos.workloads.bank import Bank
from chaos.workloads.drive import create_tables, drive
from chaos.workloads.memory import Faults, MemoryClient, MemoryPair
from chaos.workloads.registers import BYTES, Documents
from chaos.workloads.sets import Sets
from storage.rows.schema import parse_table

HONEST = Faults(lost_answers=0.06, lost_requests=0.06, refusals=0.03)
EVERY = {
    **WORKLOADS, "bank": Bank, "appends": Appends, "documents": Documents, "many_sets": partial(Sets, size_max=20),
}
ALL = tuple(EVERY)
FOUND = {  # fault -> the workloads that it concerns
    Faults(lost_writes=0.1): ALL,
    Faults(lost_answers=0.05, lost_writes=1 / 50): ("sets", "many_sets", "linked_list"),
    Faults(stale_reads=0.06): ("registers", "counters", "check_and_mutate", "linked_list", "batches", "schema_changes",
                              "appends"),
    Faults(late_phantoms=0.06): ALL,
    Faults(applied_refusals=0.1): ALL,
    Faults(torn_batches=0.1): ("batches", "bank"),
    Faults(ignored_conditions=0.2): ("counters", "check_and_mutate", "bank", "appends"),
    Faults(torn_rows=0.1): ("registers", "check_and_mutate"),
}
CASES = [(fault, name) for fault, names in FOUND.items() for name in names]
SURE = ("sets", "many_sets", "linked_list")  # nothing is overwritten there: no lost and no wrong write can hide
RUNS = 6


class Ticks:
    """A clock that goes on by a millisecond whenever it is looked at, so that no two moments are one."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        await asyncio.sleep(0)


async def run(name: str, seed: int, faults: Faults) -> tuple[History, list[Violation], int]:
    """The history, what was found in it, and how often the pair sinned."""
    random = Random(seed)
    workload, recorder, clock, pair = EVERY[name](random), Recorder(), Ticks(), MemoryPair(random, faults)
    client = MemoryClient(pair)
    await create_tables(workload, client, recorder, clock, 9.0)
    recorder.note(Opened("a", 1, 0.0, "sync"))
    await drive(workload, lambda name: client, recorder, clock, clients=6, operations=200, deadline_s=9.0)
    recorder.note(Moment("recovered", clock.monotonic_s()))
    for use in workload.tables:  # what stands when all is settled
        call = recorder.begin("last", Operation("scan", use.name), clock.monotonic_s())
        recorder.end(call, await client.execute(Operation("scan", use.name)), clock.monotonic_s())
    pair.settle_late()
    recorder.note(Moment("drained", clock.monotonic_s()))
    for site in "ab":
        recorder.note(pair.dump(site, clock.monotonic_s()))
    history = recorder.history()
    return history, [*check_all(history), *workload.judge(history)], pair.sins


@pytest.mark.parametrize("name", ALL)
async def test_an_honest_pair_is_never_accused(name: str) -> None:
    for seed in range(12):
        history, found, sins = await run(name, seed, HONEST)
        assert (found, sins) == ([], 0)
        results = {call.outcome.result for call in history.calls if call.outcome is not None}
        assert results == {"ok", "not_applied", "unknown"}


@pytest.mark.parametrize(("faults", "name"), CASES, ids=lambda case: case if isinstance(case, str) else None)
async def test_a_broken_pair_is_found(faults: Faults, name: str) -> None:
    """A sin that is overwritten before anybody looks cannot be found; of the runs with one, most must be, or all."""
    runs = [(await run(name, seed, faults))[1:] for seed in range(RUNS)]
    sinful = [bool(found) for found, sins in runs if sins]
    assert len(sinful) > RUNS // 2
    assert all(sinful) if name in SURE and not faults.stale_reads else sum(sinful) > len(sinful) // 2
    assert not any(found for found, sins in runs if not sins)


async def test_a_set_that_is_full_is_left_and_is_not_read_again() -> None:
    workload = Sets(Random(1), scan_share=0.2, size_max=10)
    asked = [workload.next("c") for _ in range(400)]
    added = [each.mutations[0].key for each in asked if each.kind == "write"]
    sets = [key.partition("-")[0] for key in added]
    assert max(Counter(sets).values()) == 10
    assert sets == sorted(sets, key=lambda name: int(name[1:]))
    scans = [each for each in asked if each.kind == "scan"]
    assert scans
    for each in scans:
        inside = [key for key in added if (each.start or "") <= key < (each.end or "~")]
        assert len({key.partition("-")[0] for key in inside}) == 1


@pytest.mark.parametrize("name", ALL)
async def test_one_seed_makes_one_history(name: str) -> None:
    one, *_ = await run(name, 7, HONEST)
    other, *_ = await run(name, 7, HONEST)
    assert one.lines() == other.lines()
    assert load(dump(one)).lines() == one.lines()


@pytest.mark.parametrize("name", ALL)
def test_the_tables_are_ones_that_the_pair_would_make(name: str) -> None:
    for use in EVERY[name](Random(1)).tables:
        schema = parse_table(use.schema)
        assert schema.name == use.name
        assert schema.primary_key == ("id",)
        assert use.value in {column.name for column in schema.columns}


def test_documents_are_large_and_deletes_are_not() -> None:
    workload = Documents(Random(7))
    mutations = [mutation for _ in range(200) for mutation in workload.next("c1").mutations]
    assert {mutation.op for mutation in mutations} == {"upsert", "delete"}
    assert {len(mutation.row.get("copy", "")) for mutation in mutations} == {0, BYTES}
    assert all(mutation.row["copy"].rstrip(".") == mutation.row["value"] for mutation in mutations if mutation.row)
