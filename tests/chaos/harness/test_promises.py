"""Silence for want of evidence is never called held."""

from __future__ import annotations

from random import Random

from chaos.checkers import CHECKERS
from chaos.checkers.violation import Violation
from chaos.harness.promises import HELD, NOT_CHECKED, VIOLATED, Verdict, judge
from chaos.history.history import History, Moment
from chaos.history.lines import Served
from chaos.workloads.registers import Registers
from tests.chaos.plots import Plot


def verdicts(history: History, *found: Violation) -> dict[str, Verdict]:
    return {each.checker: each for each in judge(history, Registers(Random(1)), found)[1]}


def test_every_checker_has_its_line_and_nothing_holds_without_evidence() -> None:
    empty = verdicts(History())
    assert list(empty)[: len(CHECKERS)] == list(CHECKERS)
    assert {each.state for name, each in empty.items() if not name.startswith("workload:")} == {NOT_CHECKED}


def test_what_was_looked_at_holds_and_the_rest_does_not() -> None:
    seen = verdicts(Plot().write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=5).history())
    assert seen["linearizable"].state == HELD
    assert seen["linearizable"].looked_at == 2
    assert seen["acknowledged"].state == NOT_CHECKED, "no storage was read"
    assert seen["stuck"].state == NOT_CHECKED, "the run did not come to its end"


def test_the_end_of_a_run_makes_its_own_looks_count() -> None:
    ended = verdicts(Plot().add(Moment("ended", 9.0)).history())
    assert ended["stuck"].state == ended["drained"].state == HELD


def test_a_violation_shows_with_its_checker_whoever_found_it() -> None:
    lost = Plot().write("k", "x", 0, 1, version=5).dump({}).history()
    assert verdicts(lost)["acknowledged"].state == VIOLATED
    assert verdicts(History(), Violation("P10", "stuck", "It is."))["stuck"].state == VIOLATED
    assert verdicts(Plot().add(Served("a", 1, 2.0, 1.0)).history())["proved"].state == HELD
