"""Rows as atomic registers: planted histories, zones and search against brute force, and histories of a real register."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.checkers.rows.linearizable import check
from chaos.history.history import Quarantine, QuarantinedRow
from tests.chaos.plots import Plot, last_first, sentences

GOOD: dict[str, Callable[[Plot], Plot]] = {
    "nothing": lambda p: p,
    "a read before the first write": lambda p: p.read("k", None, 0, 1).write("k", "x", 2, 3),
    "a read of a write under way": lambda p: p.write("k", "x", 0, 5).read("k", "x", 1, 2).read("k", "x", 3, 4),
    "the old value while the new one is written": lambda p: (
        p.write("k", "x", 0, 1).write("k", "y", 2, 9).read("k", "x", 3, 4).read("k", "y", 5, 6)
    ),
    "an unknown write that nobody saw": lambda p: (
        p.write("k", "x", 0, 1).write("k", "y", 2, 3, "unknown").read("k", "x", 4, 5)
    ),
    "an unknown write that took effect late": lambda p: (
        p.write("k", "x", 0, 1).write("k", "y", 2, 3, "unknown").read("k", "x", 4, 5).read("k", "y", 6, 7).recovered(8)
    ),
    "a write without an end": lambda p: p.write("k", "x", 0, None).read("k", None, 1, 2).read("k", "x", 3, 4).recovered(9),
    "a delete": lambda p: p.write("k", "x", 0, 1).delete("k", 2, 3).read("k", None, 4, 5),
    "an unknown delete that took effect late": lambda p: (
        p.write("k", "x", 0, 1).delete("k", 2, 3, "unknown").read("k", "x", 4, 5).read("k", None, 6, 7)
    ),
    "no row before and after an unknown write": lambda p: (
        p.write("k", "x", 0, 1, "unknown").delete("k", 0, 20).read("k", "x", 0, 20).read("k", None, 5, 6).recovered(4)
    ),
    "one of two swaps wins": lambda p: (
        p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 5).swap("k", "x", "z", 2, 5, "not_applied").read("k", "y", 6, 7)
    ),
    "a swap on an unknown swap": lambda p: (
        p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3, "unknown").swap("k", "y", "z", 4, 5)
    ),
    "a refused insert": lambda p: p.insert("k", "x", 0, 1).insert("k", "y", 2, 3, "not_applied", "conflict"),
    "a refusal that tells nothing": lambda p: (
        p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3, "not_applied", "overloaded").read("k", "x", 4, 5)
    ),
    "answers of one instant in any order": lambda p: (
        p.write("k", "x", 0, 1).write("k", "y", 1, 1).read("k", "x", 1, 1).read("k", "y", 1, 2)
    ),
    "a scan that misses what is written meanwhile": lambda p: p.write("k", "x", 0, 5).scan({}, 1, 4),
    "a scan that ends before the row": lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3, end="k"),
    "a scan that begins behind the row": lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3, start="l"),
}
BAD: dict[str, tuple[Callable[[Plot], Plot], str]] = {
    "a read that misses an acknowledged write": (
        lambda p: p.write("k", "x", 0, 1).read("k", None, 2, 3), "no row was still seen after value 'x'",
    ),
    "a single swap that cannot have held": (lambda p: p.swap("k", "x", "y", 0, 1), "no order of these calls"),
    "a stale read": (
        lambda p: p.write("k", "x", 0, 1).write("k", "y", 2, 3).read("k", "x", 4, 5), "value 'x' was still seen",
    ),
    "two reads that disagree on the order": (
        lambda p: p.write("k", "x", 0, 9).write("k", "y", 0, 9).read("k", "x", 1, 2).read("k", "y", 3, 4).read("k", "x", 5, 6),
        "was still seen",
    ),
    "a value from nowhere": (lambda p: p.read("k", "x", 0, 1), "nobody wrote"),
    "a value before it was written": (lambda p: p.read("k", "x", 0, 1).write("k", "x", 2, 3), "before it was written"),
    "a rejected value": (lambda p: p.write("k", "x", 0, 1, "not_applied").read("k", "x", 2, 3), "nobody wrote"),
    "visible, then gone": (
        lambda p: p.write("k", "x", 0, 1).write("k", "y", 2, 3, "unknown").read("k", "y", 4, 5).read("k", "x", 6, 7),
        "was still seen",
    ),
    "a late phantom": (
        lambda p: (
            p.write("k", "x", 0, 1).write("k", "y", 2, 3, "unknown").recovered(4).read("k", "x", 5, 6).read("k", "y", 7, 8)
        ),
        "was still seen",
    ),
    "an acknowledged row that a scan of its part lacks": (
        lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3, start="k", end="l"), "no row was still seen",
    ),
    "an acknowledged row that a scan lacks": (lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3), "no row was still seen"),
    "a deleted row that is back": (
        lambda p: p.write("k", "x", 0, 1).delete("k", 2, 3).read("k", "x", 4, 5), "no order of these calls",
    ),
    "two winners of one swap": (
        lambda p: p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 5).swap("k", "x", "z", 2, 5), "no order of these calls",
    ),
    "a swap refused without a cause": (
        lambda p: p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3, "not_applied"), "no order of these calls",
    ),
    "a late phantom swap": (
        lambda p: (
            p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3, "unknown").recovered(4).read("k", "x", 5, 6).read("k", "y", 7, 8)
        ),
        "no order of these calls",
    ),
    "a phantom that took effect twice": (
        lambda p: (
            p.insert("k", "x", 0, 1, "unknown").read("k", "x", 2, 3).delete("k", 4, 5).read("k", None, 6, 7)
            .read("k", "x", 8, 9)
        ),
        "no order of these calls",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_one_register_can_do_passes(name: str) -> None:
    assert check(GOOD[name](Plot()).history()) == []


@pytest.mark.parametrize("name", BAD)
def test_what_no_register_can_do_is_found(name: str) -> None:
    build, told = BAD[name]
    found = check(build(Plot()).history())
    assert len(found) == 1
    assert found[0].promise == "P3"
    assert told in found[0].sentence


def test_a_counter_that_loses_an_increment_is_found() -> None:
    plot = Plot(unique=False).swap("k", None, 1, 0, 1).swap("k", 1, 2, 2, 3)
    assert check(plot.history()) == []
    assert check(plot.swap("k", 1, 2, 4, 5).history()) != []


def test_a_lost_write_that_a_manifest_names_is_forgiven_and_so_are_its_readers() -> None:
    plot = Plot().write("k", "x", 0, 1, version=10).write("k", "y", 2, 3, version=20, mode="async")
    plot.read("k", "y", 4, 5, version=20).read("k", "x", 6, 7, version=10)
    assert "was still seen" in sentences(check(plot.history()))
    plot.add(Quarantine("a", 1, 20, 20, 8.0, True, (QuarantinedRow("t", "k", 20, 20),)))
    assert check(plot.history()) == []
    plot.write("k", "z", 9, 10, version=30).read("k", "x", 11, 12, version=10)
    assert "'x' was still seen" in sentences(check(plot.history()))


# ---- against brute force
class Step(NamedTuple):
    """`kind`: write, delete, read, swap, insert. `old` and `new` are what it needs and what it leaves."""

    kind: str
    old: Any
    new: Any
    begin: float
    end: float
    result: str


def plot_of(steps: list[Step], recovered_s: float, *, unique: bool) -> Plot:
    plot = Plot(unique=unique).recovered(recovered_s)
    for step in steps:
        result: Any = step.result
        if step.kind == "write":
            plot.write("k", step.new, step.begin, step.end, result)
        elif step.kind == "delete":
            plot.delete("k", step.begin, step.end, result)
        elif step.kind == "read":
            plot.read("k", step.old, step.begin, step.end)
        elif step.kind == "insert":
            plot.insert("k", step.new, step.begin, step.end, result, "conflict")
        else:
            plot.swap("k", step.old, step.new, step.begin, step.end, result)
    return plot


def possible_by_brute_force(steps: list[Step], recovered_s: float) -> bool:
    """Every order of every choice of unknown writes."""
    settled = [recovered_s if step.end <= recovered_s else inf for step in steps]
    ends = [until if step.result == "unknown" else step.end for step, until in zip(steps, settled, strict=True)]

    def holds(step: Step, value: Any) -> bool:
        if step.kind in ("write", "delete"):
            return True
        content = (value is None) if step.kind == "insert" else value == step.old
        return content != (step.result == "not_applied")

    def go(left: frozenset[int], value: Any) -> bool:
        if all(steps[at].result == "unknown" for at in left):
            return True
        for at in left:
            step = steps[at]
            blocked = any(ends[other] < step.begin and steps[other].result != "unknown" for other in left - {at})
            if blocked or not holds(step, value):
                continue
            changes = step.kind != "read" and step.result != "not_applied"
            gone = frozenset(other for other in left if steps[other].result == "unknown" and ends[other] < step.begin)
            if go(left - {at} - gone, step.new if changes else value):
                return True
        return False

    rejected = {at for at, step in enumerate(steps) if step.result == "not_applied" and step.kind in ("write", "delete")}
    return go(frozenset(range(len(steps))) - rejected, None)


def random_steps(random: Random, kinds: list[str], *, unique: bool) -> list[Step]:
    values: list[Any] = [None]
    steps = []
    for at in range(random.randint(2, 7)):
        kind = random.choice(kinds)
        begin = random.randrange(16)
        end = begin + random.randrange(1, 8)
        new = f"v{at}" if unique else random.randrange(1, 4)
        if kind != "read":
            values.append(new)
        results = ["ok", "ok", "ok", "unknown"] + (["not_applied"] if kind != "delete" else [])
        steps.append(Step(kind, None, None if kind == "delete" else new, begin, end, random.choice(results)))
    return [
        step._replace(old=random.choice(values), result="ok" if step.kind == "read" else step.result)
        if step.kind in ("read", "swap") else step for step in steps
    ]


@pytest.mark.parametrize(
    ("kinds", "unique"),
    [
        (["write", "read"], True),
        (["write", "read", "delete"], True),
        (["write", "read", "delete", "swap", "insert"], True),
        (["read", "swap", "swap", "insert"], True),
        (["read", "swap", "swap", "write", "delete"], False),
    ],
    ids=["registers", "deletes", "everything", "swaps", "repeated values"],
)
def test_it_says_what_brute_force_says(kinds: list[str], unique: bool) -> None:
    random = Random(2013)
    verdicts = {True: 0, False: 0}
    for _ in range(1500):
        steps = random_steps(random, kinds, unique=unique)
        recovered_s = float(random.randint(8, 30))
        expected = possible_by_brute_force(steps, recovered_s)
        found = check(plot_of(steps, recovered_s, unique=unique).history())
        assert (found == []) == expected, (steps, recovered_s, found)
        verdicts[expected] += 1
    assert min(verdicts.values()) > 150, verdicts


def test_the_versions_of_the_pair_lead_to_an_order_among_many_calls_at_once() -> None:
    assert check(last_first(200).history()) == []


# ---- against a register that really is one
def played(random: Random, calls: int, *, overlap: float, kinds: list[str]) -> list[Step]:
    """Calls on one atomic register, each done at its own moment within its time; a share of unknown and refused ones."""
    moments = sorted(random.sample(range(1000), calls))
    value: Any = None
    steps = []
    for at, moment in enumerate(moments):
        kind = random.choice(kinds)
        begin, end = moment - random.random() * overlap, moment + random.random() * overlap
        unknown = kind != "read" and random.random() < 0.15
        old = random.choice([value, value, f"v{at - 1}"]) if kind == "swap" else value
        new = None if kind == "delete" else f"v{at}"
        content = kind in ("write", "delete", "read") or (value is None if kind == "insert" else value == old)
        if unknown:
            if content and random.random() < 0.5:
                value = new
            steps.append(Step(kind, old, new, begin, moment - random.random() * overlap, "unknown"))
            continue
        if content and kind != "read":
            value = new
        steps.append(Step(kind, old, new, begin, end, "ok" if content else "not_applied"))
    return [step if step.end > step.begin else step._replace(end=step.begin + 0.001) for step in steps]


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(2, 60), st.sampled_from([0.4, 20.0, 200.0]))
def test_a_real_register_is_never_accused(random: Any, calls: int, overlap: float) -> None:
    for kinds in (["write", "read"], ["write", "read", "delete", "swap", "insert"]):
        steps = played(random, calls, overlap=overlap, kinds=kinds)
        found = check(plot_of(steps, 2000.0, unique=True).history())
        assert found == [], steps


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(8, 40), st.sampled_from(["drop", "swap", "stale"]), st.booleans())
def test_a_planted_lie_in_a_quiet_history_is_found(random: Any, calls: int, lie: str, deletes: bool) -> None:
    """Each of these lies is one: without overlap the value at each moment is known."""
    kinds = ["write", "read", "delete"] if deletes else ["write", "read"]
    steps = [step for step in played(random, calls, overlap=0.4, kinds=kinds) if step.result == "ok"]
    value, honest = None, []
    for step in steps:
        honest.append(step._replace(old=value) if step.kind == "read" else step)
        value = step.new if step.kind != "read" else value
    reads = [at for at, step in enumerate(honest) if step.kind == "read" and step.old is not None]
    assert check(plot_of(honest, 2000.0, unique=True).history()) == []
    if lie == "drop" and reads:
        lost = honest[reads[-1]].old
        told = [step for step in honest if step.kind == "read" or step.new != lost]
    elif lie == "swap" and len({honest[at].old for at in reads}) > 1:
        first = reads[0]
        other = next(at for at in reads if honest[at].old != honest[first].old)
        told = list(honest)
        told[first], told[other] = (
            honest[first]._replace(old=honest[other].old), honest[other]._replace(old=honest[first].old),
        )
    elif lie == "stale" and reads:
        told = list(honest)
        told[reads[-1]] = honest[reads[-1]]._replace(old=None)
    else:
        return
    assert check(plot_of(told, 2000.0, unique=True).history()) != []
