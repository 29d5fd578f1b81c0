"""A fixed part of the mutants, one or two of each kind of room, is planted in each run of the suite: its test finds it.

So the gate is tested itself: that a mutant reaches the code that its test runs, and that a listed test still finds it. All
mutants take an hour (`make mutants`).
"""

from __future__ import annotations

import pytest

from tools.mutants.hunt import Tree, hunt
from tools.mutants.mutant import Mutant, load
from tools.mutants.score import GATE
from tools.sources import ROOT

MUTANTS = {mutant.name: mutant for mutant in load(ROOT)}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(ROOT, tmp_path_factory.mktemp("planted"))


@pytest.mark.long
@pytest.mark.parametrize("name", GATE)
def test_its_test_finds_it(tree: Tree, name: str) -> None:
    mutant = MUTANTS[name]
    assert hunt(tree, mutant, tests=mutant.tests, seeds=0).test in mutant.tests


@pytest.mark.long
def test_a_project_without_a_mutant_passes(tree: Tree) -> None:
    """The same tests, all in one: else a copy that cannot run would find everything."""
    nothing = Mutant("nothing", "gateway/service/key_gate.py", "KeyGate", "held = self._held", "held = self._held")
    tests = tuple(sorted({test for name in GATE for test in MUTANTS[name].tests}))
    assert hunt(tree, nothing, tests=tests, seeds=0).test == ""
