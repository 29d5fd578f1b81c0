"""The lists of mutants follow the code: each mistake can be planted, changes its file, and is called by one name."""

from __future__ import annotations

import pytest

from tools.mutants import rooms
from tools.mutants.__main__ import is_as_listed
from tools.mutants.hunt import Found
from tools.mutants.mutant import Mutant, StaleMutant, load, mutated
from tools.mutants.score import UNSEEN
from tools.sources import ROOT

MUTANTS = load(ROOT)


@pytest.fixture(scope="module")
def critical() -> frozenset[str]:
    return frozenset(rooms.rooms(ROOT))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_file_and_has_tests(mutant: Mutant, critical: frozenset[str]) -> None:
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutated(mutant, source) != source
    assert mutant.file in critical
    for tests in mutant.tests or rooms.tests_of(ROOT, mutant.file):
        assert (ROOT / tests.partition("::")[0]).exists(), tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found_or_says_why_it_is_not(mutant: Mutant) -> None:
    assert [bool(mutant.tests or mutant.seeds), bool(mutant.survives), bool(mutant.missed)].count(True) == 1
    assert mutant.mistake or mutant.drawn
    is_unseen = bool(mutant.seeds_run) and not (mutant.seeds or mutant.unreached or mutant.survives)
    assert (mutant.unseen in UNSEEN) is is_unseen, "why does the simulator not find it?"
    assert not (mutant.unreached and (mutant.seeds or not mutant.seeds_run)), "nothing finds what is not reached"


def test_the_list_is_long_enough() -> None:
    assert len(MUTANTS) >= 150


def test_what_is_argued_to_be_equivalent_must_not_be_found() -> None:
    wrong, equivalent = Mutant("m", "x.py", "f", "a", "b"), Mutant("m", "x.py", "f", "a", "b", survives="Nobody can see it.")
    for found in (Found("m", 7, "one_active", "", 1.0), Found("m", None, "", "tests/test_x.py::test", 1.0)):
        assert is_as_listed(wrong, found)
        assert not is_as_listed(equivalent, found)
    assert not is_as_listed(wrong, Found("m", None, "", "", 1.0))
    assert is_as_listed(equivalent, Found("m", None, "", "", 1.0))


def test_a_mutant_whose_text_is_gone_is_reported() -> None:
    mutant = Mutant("gone", "x.py", "f", "a < b", "a <= b")
    assert mutated(mutant, "def f(a, b):\n    return a < b\n") == "def f(a, b):\n    return a <= b\n"
    for source in ("def f(a, b):\n    return a > b\n", "def g(a, b):\n    return a < b\n"):
        with pytest.raises(StaleMutant, match="gone"):
            mutated(mutant, source)
