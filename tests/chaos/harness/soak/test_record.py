"""The record of a soak: a leg becomes a line, and the soak goes on behind the legs that are in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checkers.violation import Violation
from chaos.harness.arguments import arguments
from chaos.harness.courses import SOAK, of_a_soak
from chaos.harness.matrix.record import add
from chaos.harness.nemesis import Span
from chaos.harness.pair.files.footprint import Footprint
from chaos.harness.pair.parts import PLAIN
from chaos.harness.pair.samples import Sample
from chaos.harness.plan import HarnessPlan
from chaos.harness.run import Run
from chaos.harness.soak.draw import drawn
from chaos.harness.soak.record import Held, Leg, leg_of, read
from chaos.history.history import History
from twinlog.errors import InvalidInput

LEG = Leg("2026-01-01", "abc", PLAIN.told, 1, 1, "sets", {"crash": 2}, 1, 2, 9, 8, 1, 0, 0, 0, 0, [], 4.0, 5.0, [], 1200.0)


def chosen(*given: str) -> Any:
    return arguments([SOAK, *given])


def numbers(count: int, *given: str) -> list[int]:
    courses = of_a_soak(chosen(*given))
    return [next(courses).plan.seed for _ in range(count)]


def test_lines_are_added_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    assert read(path) == []
    add(path, LEG)
    add(path, replace(LEG, leg=2, held=[Held("a", 1, 2, 3, 4, 5, 6)]))
    assert read(path) == [LEG, replace(LEG, leg=2, held=[Held("a", 1, 2, 3, 4, 5, 6)])]
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(InvalidInput, match="line 3 is no record of a leg"):
        read(path)


def test_a_soak_goes_on_behind_its_legs_and_not_behind_those_of_another_one(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    given = ("--hours", "8", "--seed", "1", "--record", str(path))
    assert numbers(2, *given) == [1, 2]
    add(path, LEG)
    add(path, replace(LEG, leg=2))
    add(path, replace(LEG, leg=7, seed=2))
    add(path, replace(LEG, leg=9, parts="others"))
    assert numbers(2, *given) == [3, 4]
    assert next(of_a_soak(chosen(*given))).plan == drawn(1, 3, PLAIN)
    assert numbers(1, "--hours", "8", "--seed", "1") == [1]


def test_the_hours_of_the_record_count(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    for leg in range(3):
        add(path, replace(LEG, leg=leg + 1))
    assert next(of_a_soak(chosen("--hours", "1", "--seed", "1", "--record", str(path))), None) is None
    assert numbers(1, "--hours", "1.1", "--seed", "1", "--record", str(path)) == [4]


def look(site: str, memory: int, files: int) -> Sample:
    return Sample(site, 0.0, "ACTIVE", held=Footprint(1, 1, memory, 7, {"others": files}))


def test_a_line_counts_what_came_about_and_names_what_broke_and_what_was_held() -> None:
    spans = (
        Span("crash", "a", "", 1.0, 2.0), Span("crash", "a", "", 3.0, 4.0), Span("pause", "b", "", 1.0, 1.0, "", "is paused"),
        Span("fail-at", "a", "journal.save.after", 1.0, 2.0, "passed 0 of 1 times: not reached"),
    )
    found = [Violation("P1", checker, "so") for checker in ("receipts", "stuck", "receipts")]
    rest = [[look("a", 100, 5), look("b", 90, 4)], [look("a", 110, 6), look("b", 80, 4)]]
    plan = HarnessPlan(seed=7, workload="bank")
    run = Run(plan, 1, "", History(), found, (), spans, (), rest, (), (), 300.0, PLAIN.told, PLAIN)
    leg = leg_of(run, 1, 7, "abc", 333.33)
    assert (leg.seed, leg.leg, leg.workload, leg.parts, leg.commit) == (1, 7, "bank", PLAIN.told, "abc")
    assert (leg.faults, leg.not_reached, leg.left_out) == ({"crash": 2}, 1, 1)
    assert (leg.lost, leg.violations, leg.stuck, leg.broken) == (2, 3, 1, ["receipts", "stuck"])
    assert leg.held == [Held("a", 100, 110, 5, 6, 7, 7), Held("b", 90, 80, 4, 4, 7, 7)]
    assert leg.lasted_s == 333.3


def test_a_pair_that_did_not_come_to_rest_has_no_end_to_compare() -> None:
    run = Run(HarnessPlan(), 1, "", History(), (), (), (), (), [[look("a", 1, 1)]], (), (), 3.0, PLAIN.told)
    assert leg_of(run, 1, 1, "", 3.0).held == []
