"""The tables of runs on real processes, and of the soak, are those of the records."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.harness.matrix.record import Recorded, read
from chaos.harness.soak import record as soak
from chaos.harness.soak.record import Held, Leg
from tools.chaos_record import (
    BEGIN,
    END,
    NO_LEGS,
    PAGE,
    RECORD,
    SOAK,
    SOAK_BEGIN,
    SOAK_END,
    page,
    soak_tables,
    table,
)

RUN = Recorded("2026-01-01", "abc", "disk-full", "disk-full", "parts", 1, 3, 900, 800, 2, 0, 0, 0, 0, 1.5, 2.5, 60.0)
HELD = Held("a", 100 << 20, 120 << 20, 50, 49, 10, 10)
LEG = Leg(
    "2026-01-01", "abc", "parts", 1, 1, "sets", {"crash": 2, "latency": 2}, 1, 2, 180_000, 90_000, 5, 0, 0, 0, 0, [], 4.0, 5.0,
    [HELD], 900.0,
)


def test_the_page_is_drawn_from_the_record() -> None:
    before = PAGE.read_text(encoding="utf-8")
    assert page(before, read(RECORD), soak.read(SOAK)) == before, "run: python -m tools.chaos_record"


def test_runs_of_a_row_and_of_like_pairs_are_summed_and_the_longest_time_is_the_longest() -> None:
    lossy = replace(RUN, lost=1, violations=2, without_writes_s=9.0)
    drawn = table([RUN, lossy, replace(RUN, parts="others"), replace(RUN, row="a")])
    rows = drawn.splitlines()[2:]
    assert rows == [
        "| a | parts | 1 | 3 | 900 | 800 | 2 | 0 | 0 | 0 | 0 | 1.5 | 2.5 |",
        "| disk-full | others | 1 | 3 | 900 | 800 | 2 | 0 | 0 | 0 | 0 | 1.5 | 2.5 |",
        "| disk-full | parts | 2 | 6 | 1,800 | 1,600 | 4 | 1 | 0 | 2 | 0 | 9.0 | 2.5 |",
        "| **all** |  | 4 | 12 | 3,600 | 3,200 | 8 | 1 | 0 | 2 | 0 | 9.0 | 2.5 |",
    ]


def test_the_table_stands_between_its_marks() -> None:
    drawn = page(f"before\n{BEGIN}\nold\n{END}\nbetween\n{SOAK_BEGIN}\nold\n{SOAK_END}\nbehind", [RUN], [LEG])
    assert drawn.startswith(f"before\n{BEGIN}\n\n| row")
    assert f"\n{END}\nbetween\n{SOAK_BEGIN}\n\nSeed 1, parts:\n" in drawn
    assert drawn.endswith(f"\n{SOAK_END}\nbehind")
    assert "old" not in drawn


def test_a_soak_is_the_sum_of_its_legs_and_the_leg_that_did_not_hold_is_named() -> None:
    other = replace(LEG, leg=2, commit="def", faults={"crash": 3}, violations=2, lost=1, broken=["acknowledged"], held=[])
    lines = [line for line in soak_tables([LEG, other]).splitlines() if line.startswith("| ") and line != "| | |"]
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines)
    assert rows["hours"] == "0.50"
    assert rows["legs"] == "2"
    assert rows["operations"] == "360,000"
    assert rows["operations a second"] == "200"
    assert rows["faults"] == "7"
    assert rows["faults by kind"] == "crash 5, latency 2"
    assert (rows["lost"], rows["violations"], rows["stuck"]) == ("1", "2", "0")
    assert rows["memory, end against beginning of a leg, at most"] == "+20 MiB"
    assert rows["descriptors, likewise"] == "-1"
    assert rows["legs in which the pair came to rest"] == "1"
    assert rows["commits"] == "abc, def"
    assert rows["leg 2 (sets) did not hold"] == "acknowledged"


def test_soaks_of_other_seeds_and_pairs_stand_apart_and_a_record_without_lines_has_no_figures() -> None:
    drawn = soak_tables([LEG, replace(LEG, seed=2), replace(LEG, parts="others")])
    assert [line for line in drawn.splitlines() if line.startswith("Seed")] == [
        "Seed 1, others:", "Seed 1, parts:", "Seed 2, parts:",
    ]
    assert soak_tables([]) == NO_LEGS
