"""Each workload's own last check, alone: one storage at the end that is right, one that is wrong."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chaos.history.history import Ack, Call, Condition, Dump, DumpedRow, History, Mutation, Operation, Outcome, Row, history_of
from chaos.workloads import WORKLOADS
from chaos.workloads.appends import Appends
from chaos.workloads.bank import Bank

EVERY = {**WORKLOADS, "bank": Bank, "appends": Appends}
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
APPENDED = Operation(
    "conditional", "appends", key="l0", conditions=(Condition(exists=False),),
    mutations=(Mutation("upsert", "l0", {"value": "e1"}),),
)
MONEY = {"b0": {"value": "t/0", "balance": 0}, **{f"b0-{at}": {"value": f"t/{at}", "balance": 100} for at in range(4)}}
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
    "bank": (
        ended("bank", MONEY), ended("bank", MONEY | {"b0-2": {"value": "u/1", "balance": 90}}),
        "Bank b0 has 400, and at the end site b holds 390 in 4 accounts.",
    ),
    "appends": (
        ended("appends", {"l0": {"value": "e1 e2"}}, APPENDED), ended("appends", {"l0": {"value": "e2"}}, APPENDED),
        "Call 1 appended e1, which is not there, and list l0 at site b has 1 elements at the end.",
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
    workload = EVERY[name](Random(1))
    assert workload.judge(right) == []
    assert [violation.sentence for violation in workload.judge(wrong)] == [told]


def test_money_that_nobody_has_and_a_list_that_changed_its_past_are_seen_in_reads() -> None:
    rows = tuple(Row(key, row | {"balance": -5 if key == "b0-1" else row["balance"]}, 1) for key, row in MONEY.items())
    look = Operation("scan", "bank", start="b0", end="b0~", snapshot=True)
    seen = history_of([Call(1, "c0", look, 1.0, None, 2.0, Outcome("ok", rows=rows))])
    assert {violation.calls for violation in Bank(Random(1)).judge(seen)} == {(1,)}
    assert "Account b0-1 owes money: call 1 saw -5." in [violation.sentence for violation in Bank(Random(1)).judge(seen)]
    read = Operation("read", "appends", key="l0")
    past = [
        Call(1, "c0", read, 1.0, None, 2.0, Outcome("ok", rows=(Row("l0", {"value": "e2 e1"}, 1),))),
        Dump("b", False, 99.0, 9, {"appends": {"l0": DumpedRow({"value": "e1 e2 e3 e3"}, 1)}}),
    ]
    assert [violation.sentence for violation in Appends(Random(1)).judge(history_of(past))] == [
        "Call 1 saw 2 elements that are not how the list begins, and list l0 at site b has 4 elements at the end.",
        "List l0 at site b has e3 more than once.",
    ]
