"""The second checker knows what is possible and what is not, one rule at a time; our own checker says the same of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.history.history import (
    Ack,
    Apart,
    Condition,
    GivenUp,
    History,
    Mutation,
    Operation,
    Outcome,
    Quarantine,
    QuarantinedRow,
    Row,
)
from tests.chaos.plots import Plot, last_first
from tests.chaos.porcupine.conftest import Second, ours

Build = Callable[[Plot], Plot]
UPDATE = Operation("write", "t", mutations=(Mutation("update", "k", {"value": "new"}),))
TWICE = (Mutation("upsert", "k", {"value": "x"}), Mutation("delete", "k"), Mutation("insert", "k", {"value": "y"}))


def bet(version: int, value: str) -> Operation:
    change = Mutation("upsert", "k", {"value": value})
    return Operation("conditional", "t", key="k", conditions=(Condition(version=version),), mutations=(change,))


def beside(condition: Condition) -> Operation:
    """Changes row k on a condition on row j."""
    return Operation("conditional", "t", key="j", conditions=(condition,), mutations=(Mutation("upsert", "k", {"value": "z"}),))


def ok(version: int) -> Outcome:
    return Outcome("ok", ack=Ack("a", 1, version, version, "sync"))


def refused(error: str) -> Outcome:
    return Outcome("not_applied", error=error)


POSSIBLE: dict[str, Build] = {
    "read your write": lambda p: p.write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=5),
    "a read beside a write sees either": lambda p: p.write("k", "x", 0, 9).read("k", "x", 1, 2).read("k", "x", 3, 4),
    "no row before the first write": lambda p: p.read("k", None, 0, 1).write("k", "x", 2, 3),
    "unknown, and done late": lambda p: p.write("k", "x", 0, 1, "unknown").read("k", None, 2, 3).read("k", "x", 4, 5),
    "unknown, and never done": lambda p: p.write("k", "x", 0, 1, "unknown").read("k", None, 2, 3).recovered(4),
    "unknown, and settled": lambda p: p.write("k", "x", 0, 1, "unknown").recovered(2).read("k", "x", 3, 4),
    "no answer at all": lambda p: p.write("k", "x", 0, None).read("k", "x", 5, 6),
    "refused, and not there": lambda p: p.write("k", "x", 0, 1, "not_applied").read("k", None, 2, 3),
    "swapped": lambda p: p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3).read("k", "y", 4, 5, version=2),
    "refused for another value": lambda p: p.write("k", "x", 0, 1).swap("k", "z", "y", 2, 3, "not_applied"),
    "refused for what an unknown write did": lambda p: p.write("k", "x", 0, 1).write("k", "w", 2, 3, "unknown")
    .swap("k", "x", "y", 4, 5, "not_applied").write("k", "v", 6, 7),
    "inserted again after a delete": lambda p: p.insert("k", "x", 0, 1).delete("k", 2, 3).insert("k", "y", 4, 5),
    "update of a row": lambda p: p.write("k", "x", 0, 1).call(UPDATE, 2, 3, ok(7)).read("k", "new", 4, 5, version=7),
    "by the right version": lambda p: p.write("k", "x", 0, 1, version=5).call(bet(5, "y"), 2, 3, ok(9)),
    "one row, three times in a batch": lambda p: p.call(Operation("batch", "t", mutations=TWICE), 0, 1, ok(9))
    .read("k", "y", 2, 3, version=9),
    "done under another row's condition": lambda p: p.write("j", "x", 0, 1).call(beside(Condition(exists=True)), 2, 3, ok(9)),
    "a scan that was cut short": lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3, complete=False),
    "a scan of other rows": lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3, start="l").scan({}, 4, 5, end="k"),
}
IMPOSSIBLE: dict[str, Build] = {
    "stale read": lambda p: p.write("k", "x", 0, 1).write("k", "y", 2, 3).read("k", "x", 4, 5),
    "lost write": lambda p: p.write("k", "x", 0, 1).read("k", None, 2, 3),
    "back again": lambda p: p.write("k", "x", 0, 9).read("k", "x", 1, 2).read("k", None, 3, 4),
    "read before it was written": lambda p: p.read("k", "x", 0, 1).write("k", "x", 2, 3),
    "written by nobody": lambda p: p.write("k", "x", 0, 1).read("k", "z", 2, 3),
    "refused, and there": lambda p: p.write("k", "x", 0, 1, "not_applied", version=1).read("k", "x", 2, 3),
    "unknown, and done when it was settled": lambda p: p.write("k", "x", 0, 1, "unknown").recovered(2).read("k", None, 3, 4)
    .read("k", "x", 5, 6),
    "unknown, done, and gone": lambda p: p.write("k", "x", 0, 1, "unknown").read("k", "x", 2, 3).read("k", None, 4, 5),
    "unknown, and done twice": lambda p: p.write("k", "x", 0, 1, "unknown").read("k", "x", 2, 3).write("k", "y", 4, 5)
    .read("k", "x", 6, 7),
    "swapped though another value was there": lambda p: p.write("k", "x", 0, 1).swap("k", "z", "y", 2, 3),
    "swapped twice": lambda p: p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 9).swap("k", "x", "z", 2, 9),
    "refused though it held": lambda p: p.write("k", "x", 0, 1).swap("k", "x", "y", 2, 3, "not_applied"),
    "inserted over a row": lambda p: p.write("k", "x", 0, 1).insert("k", "y", 2, 3),
    "insert refused where no row was": lambda p: p.read("k", None, 0, 1).insert("k", "y", 2, 3, "not_applied", "conflict"),
    "updated no row": lambda p: p.call(UPDATE, 2, 3, ok(7)),
    "update refused though there was a row": lambda p: p.write("k", "x", 0, 1).call(UPDATE, 2, 3, refused("not-found")),
    "by an old version": lambda p: p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=6)
    .call(bet(5, "z"), 4, 5, ok(9)),
    "refused by the right version": lambda p: p.write("k", "x", 0, 1, version=5)
    .call(bet(5, "y"), 2, 3, refused("precondition-failed")),
    "done under another row's condition": lambda p: p.write("j", "x", 0, 1)
    .call(beside(Condition(exists=False)), 2, 3, ok(9)),
    "one row in a batch is not its last": lambda p: p.call(Operation("batch", "t", mutations=TWICE), 0, 1, ok(9))
    .read("k", "x", 2, 3, version=7),
    "missing in a scan": lambda p: p.write("k", "x", 0, 1).scan({}, 2, 3),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_possible(second: Second, name: str) -> None:
    history = POSSIBLE[name](Plot()).history()
    assert second.broken(history) == ours(history) == set()


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible(second: Second, name: str) -> None:
    history = IMPOSSIBLE[name](Plot()).history()
    assert len(second.broken(history)) == 1
    assert second.broken(history) == ours(history)


def test_counters_whose_values_come_again(second: Second) -> None:
    def plot() -> Plot:
        plot = Plot(unique=False).swap("k", None, 1, 0, 1, version=1).swap("k", 1, 2, 2, 3, "unknown")
        return plot.swap("k", 1, 2, 2, 3, "unknown")

    once = plot().read("k", 2, 4, 5, version=2).history()
    back = plot().read("k", 2, 4, 5, version=2).read("k", 1, 6, 7, version=1).history()
    assert second.broken(once) == ours(once) == set()
    assert second.broken(back) == ours(back) == {("t", "k")}


# ---- where it sees more than our checker of rows, which leaves whole rows to `phantom`, and versions to others
def test_a_row_is_seen_whole(second: Second) -> None:
    torn = Plot().write("k", "x", 0, 1, copy="x", version=5).read("k", "x", 2, 3, copy="w", version=5).history()
    assert (second.broken(torn), ours(torn), ours(torn, "phantom")) == ({("t", "k")}, set(), {("t", "k")})


def test_a_row_is_seen_under_the_version_that_was_acknowledged(second: Second) -> None:
    other = Plot().write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=6).history()
    assert second.broken(other) == {("t", "k")}


def test_a_column_that_a_schema_change_touches_is_not_followed(second: Second) -> None:
    change = Operation("schema", "t", body={"rename": {"copy": "copied"}, "drop": ["extra"]})

    def plot(seen: str) -> History:
        plot = Plot().write("k", "x", 0, 1, version=5, copy="x", extra="x").call(change, 2, 3, Outcome("ok"))
        return plot.read("k", seen, 4, 5, version=5, copied="x").history()

    assert second.broken(plot("x")) == set()
    assert second.broken(plot("w")) == {("t", "k")}


def test_null_is_no_content_and_a_number_is_its_value(second: Second) -> None:
    held = Plot(unique=False).write("k", 1, 0, 1, version=5, empty=None).read("k", 1.0, 2, 3, version=5, other=None).history()
    assert second.broken(held) == set()


# ---- what it does not judge
CUT_OFF = Quarantine("a", 1, 5, 5, 9.0, True, (QuarantinedRow("t", "k", 5, 5),))


def lost_row() -> Plot:
    return Plot().write("k", "x", 0, 1, version=5).read("k", None, 2, 3)


@pytest.mark.parametrize(
    "build", [
        lambda p: p.read("k", None, 2, 3),
        lambda p: p.read("k", "x", 2, 3, version=5).read("k", None, 4, 5),
        lambda p: p.read("k", None, 2, 3).read("k", "x", 4, 5, version=7),  # put back
        lambda p: p.swap("k", "z", "y", 2, 3, "not_applied").insert("k", "w", 4, 5),
    ]
)
def test_what_a_manifest_names_may_be_gone_or_put_back(second: Second, build: Build) -> None:
    history = build(Plot().write("k", "x", 0, 1, version=5)).add(CUT_OFF).history()
    assert second.judged(history).lossy == 1
    assert second.broken(history) == ours(history) == set()


def test_what_stands_beside_a_loss_is_judged(second: Second) -> None:
    plot = Plot().write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=8).read("k", "z", 4, 5, version=9)
    assert second.broken(plot.add(CUT_OFF).history()) == {("t", "k")}


def test_a_loss_that_no_manifest_names_is_one(second: Second) -> None:
    dropped = Quarantine("a", 1, 5, 5, 4.0, False)
    assert second.broken(lost_row().add(dropped).history()) == {("t", "k")}


def test_what_a_given_up_epoch_reported_is_no_evidence(second: Second) -> None:
    seen = Outcome("ok", rows=(Row("k", {"value": "lost"}, 3),), site="a", epoch=1)
    plot = Plot().write("k", "x", 0, 1, version=5).call(Operation("read", "t", key="k"), 2, 3, seen)
    assert second.broken(plot.history()) == {("t", "k")}
    assert second.broken(plot.add(GivenUp(1, 4.0)).history()) == set()


def test_the_versions_of_the_pair_lead_to_an_order_among_many_calls_at_once(second: Second) -> None:
    assert second.broken(last_first(200).history()) == set()


def test_where_versions_lie_any_other_order_is_tried(second: Second) -> None:
    plot = Plot().write("k", "x", 0, 1, version=9).write("k", "y", 2, 3, version=4).read("k", "y", 4, 5, version=4)
    assert second.broken(plot.history()) == set()


def test_two_registers_are_beyond_it(second: Second) -> None:
    told = second.judged(lost_row().add(Apart("a", 0.0)).history())
    assert "each site apart" in told.beyond
    assert (told.rows, told.broken) == (0, [])


def test_a_table_that_no_checker_of_rows_judges_is_not_judged(second: Second) -> None:
    told = second.judged(Plot(checks=("batches",)).write("k", "x", 0, 1).read("k", None, 2, 3).history())
    assert told.beyond == "there is no row in it to judge"
