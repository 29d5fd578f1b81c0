"""The table of runs on real processes is that of the record."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.harness.matrix.record import Recorded, read
from tools.chaos_record import BEGIN, END, PAGE, RECORD, page, table

RUN = Recorded("2026-01-01", "abc", "disk-full", "disk-full", "parts", 1, 3, 900, 800, 2, 0, 0, 0, 0, 1.5, 2.5, 60.0)


def test_the_page_is_drawn_from_the_record() -> None:
    before = PAGE.read_text(encoding="utf-8")
    assert page(before, read(RECORD)) == before, "run: python -m tools.chaos_record"


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
    drawn = page(f"before\n{BEGIN}\nold\n{END}\nbehind", [RUN])
    assert drawn.startswith(f"before\n{BEGIN}\n\n| row")
    assert drawn.endswith(f"\n{END}\nbehind")
    assert "old" not in drawn
