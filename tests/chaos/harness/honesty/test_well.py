"""A status that says that all is well, while clients ask and wait in vain, is a lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.checkers.violation import Violation
from chaos.harness.honesty.well import WELL_S, check, waits
from chaos.harness.nemesis import Span
from chaos.harness.pair.samples import Sample
from chaos.history.history import History, Operation, Outcome
from tests.chaos.plots import Plot

END_S = 3 + WELL_S + 1.0
STUCK = (
    Plot().write("k", "x", 1.0, 2.0, version=1).write("k", "y", 2.5, 10.0, "unknown")
    .call(Operation("read", "t", "k"), 2.5, 3.0, Outcome("ok")).write("k", "z", 10.0, END_S, version=3)
)


def looks(until_s: float = END_S, **more: Any) -> list[Sample]:
    shown = {"reads": True, "writes": True} | more
    return [Sample("a", n / 2, "ACTIVE", 1, told_s=n / 2 + 0.01, **shown) for n in range(int(until_s / 0.5))]


def lies(samples: list[Sample], spans: Sequence[Span], history: History) -> list[Violation]:
    return check(samples, waits(spans, history))


def test_a_site_that_is_well_while_nobody_has_a_write_done_lies() -> None:
    found = lies(looks(), (), STUCK.history())
    assert [each.checker for each in found] == ["all_well"]
    assert "takes writes and that nothing is wrong" in found[0].sentence


def test_a_site_that_names_a_trouble_or_does_not_serve_or_hangs_says_nothing_false() -> None:
    history = STUCK.history()
    assert not lies(looks(troubles=("peer DFS: it does not answer",)), (), history)
    assert not lies(looks(writes=False, why="site a answers nobody"), (), history)
    assert not lies([each for each in looks() if not 6 < each.at_s < 8.5], (), history), "it did not answer for a while"
    assert not lies(looks(until_s=2.0 + WELL_S), (), history), "not for long enough: clients wait since 2.5 s"
    assert lies(looks(until_s=3.0 + WELL_S), (), history)


def test_where_nobody_asks_or_nobody_gets_through_nobody_waits_for_the_site() -> None:
    idle = Plot().write("k", "x", 1.0, 2.0, version=1).write("k", "z", END_S - 0.1, END_S, version=3)
    assert not lies(looks(), (), idle.history())
    cut = Span("black-hole", "c>a", "", 3.0, 6.0)
    assert not lies(looks(), [cut], STUCK.history())
    assert not lies(looks(), [Span("crash", "toxiproxy", "", 3.0, 6.0)], STUCK.history()), "the server of all links"
    assert lies(looks(), [Span("crash", "pg-w", "", 3.0, 6.0)], STUCK.history()), "nobody asks the coordinator for a row"
    assert waits([cut], STUCK.history()) == []
    assert lies(looks(), [Span("black-hole", "a>b", "", 3.0, 6.0)], STUCK.history()), "no link of clients"


def test_a_read_that_nobody_has_is_a_lie_as_well() -> None:
    read = Operation("read", "t", "k")
    plot = Plot().call(read, 1.0, 2.0, Outcome("ok")).call(read, 2.5, END_S, Outcome("unknown", error="timeout"))
    assert "takes reads" in lies(looks(), (), plot.history())[0].sentence
    assert not lies(looks(reads=False), (), plot.history())


def test_a_refusal_that_shows_what_is_stored_is_an_answer() -> None:
    refused = STUCK.add()  # the same, with a refusal in the middle of the silence
    plot = Plot()
    plot.lines = [*refused.lines]
    plot.swap("k", "no", "yes", 6.0, 7.0, "not_applied")
    assert not lies(looks(), (), plot.history())


def test_a_time_in_which_clients_waited_is_evidence_and_a_short_one_is_none() -> None:
    assert [(each.what, each.since_s) for each in waits((), STUCK.history())] == [("writes", 2.5)]
    assert waits((), Plot().write("k", "x", 1.0, 2.0, version=1).write("k", "y", 3.0, 9.0, version=2).history()) == []
    assert waits((), Plot().history()) == []
