"""The score of the mutants on the track record is that of the lists."""

from __future__ import annotations

import pytest

from tools.mutants.mutant import Mutant, load
from tools.mutants.score import BEGIN, END, PAGE, page, score
from tools.sources import ROOT


def test_the_page_is_drawn_from_the_lists() -> None:
    before = PAGE.read_text(encoding="utf-8")
    assert page(before, load(ROOT)) == before, "run: python -m tools.mutants.score"


def test_what_counts() -> None:
    mutants = (
        Mutant("found", "x/y.py", "", "a", "b", tests=("t",)),
        Mutant("simulated", "x/y.py", "", "a", "b", seeds=7, drawn=True),
        Mutant("late", "x/y.py", "", "a", "b", tests=("t",), seeds=2001),
        Mutant("in vain", "x/y.py", "", "a", "b", tests=("t",), seeds_run=300, unseen="few"),
        Mutant("elsewhere", "x/y.py", "", "a", "b", tests=("t",), seeds_run=300, unreached=True),
        Mutant("same", "x/y.py", "", "a", "b", survives="Nobody can see it."),
        Mutant("open", "x/y.py", "", "a", "b", seeds_run=300, missed="No test has it."),
    )
    drawn = score(mutants)
    assert "| `x` | 7 | 1 | 5 of 6 (83 %) | 4 | 4 | 1 (25 %) | 1 |" in drawn
    assert "| drawn | 1 | 0 | 1 of 1 (100 %) | 0 | 1 | 1 (100 %) | 0 |" in drawn
    assert "first few hundred seeds only (`seeds_run` in the lists). 1: `in vain`" in drawn
    assert "- `open`: No test has it." in drawn
    assert "- `same`: Nobody can see it." in drawn


def test_only_the_section_changes() -> None:
    drawn = page(f"before {BEGIN} old {END} behind", ())
    assert drawn.startswith(f"before {BEGIN}\n")
    assert drawn.endswith(f"\n{END} behind")
    assert " old " not in drawn
    with pytest.raises(ValueError, match="substring not found"):
        page("no marks", ())
