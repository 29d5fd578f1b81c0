"""Each workload's own last check, alone: one storage at the end that is right, one that is wrong."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chaos.history.history import Ack, Call, Condition, Dump, DumpedRow, History, Mutation, Operation, Outcome, history_of
from chaos.workloads import WORKLOADS

DONE = Outcome("ok", ack=Ack("a", 1, 1, 1, "sync"))


def ended(table: str, rows: dict[str, dict[str, Any]], *operations: Operation) -> History:
    calls = [Call(at, "c0", operation, at, None, at + 0.5, DONE) for at, operation in enumerate(operations, 1)]
    stored = {key: DumpedRow(row, 1) for key, row in rows.items()}
    return history_of([*calls, Dump("b", False, 99.0, 9, {table: stored})])


ADDED = Operation("write", "sets", mutations=(Mutation("upsert", "e", {"value": "e"}),))
COUNTED = Operation(
    "conditional", "counters", key="c0", conditions=(Condition(exists=False),),
    mutations=(Mutation("upsert", "c0", {"value": 1}),),
)
GROUP = {f"g0-{at}": {"value": f"x/{at}", "tag": "x"} for at in range(4)}
CASES = {
    "sets": (
        ended("sets", {"e": {"value": "e"}}, ADDED), ended("sets", {}, ADDED), "Site b lacks 1 elements that were added: e.",
    ),
    "counters": (
        ended("counters", {"c0": {"value": 1}}, COUNTED), ended("counters", {"c0": {"value": 2}}, COUNTED),
        "Counter c0 stands at 2 at site b; it must lie between 1 and 1.",
    ),
    "linked_list": (
        ended("links", {"k": {"refers": None}, "l": {"refers": "k"}}), ended("links", {"l": {"refers": "k"}}),
        "At site b row l refers to k: acknowledged before, and not there.",
    ),
    "batches": (
        ended("batches", GROUP), ended("batches", GROUP | {"g0-2": {"value": "y/2", "tag": "y"}}),
        "Group 0 is in parts at site b: x, y.",
    ),
    "schema_changes": (
        ended("shaped", {"t0": {"value": "v", "extra1": None, "extra2": "v"}}),
        ended("shaped", {"t0": {"value": "v", "extra1": "w"}}),
        "Row t0 shows extra1 = 'w' beside value 'v' in storage at site b.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_check_of_a_workload(name: str) -> None:
    right, wrong, told = CASES[name]
    workload = WORKLOADS[name](Random(1))
    assert workload.judge(right) == []
    assert [violation.sentence for violation in workload.judge(wrong)] == [told]
