"""Random walks with a WAL or a storage that comes back older: whole logs cannot be demanded any more, and need not be."""

from __future__ import annotations

import pytest

from tests.model.older_parts import walk
from tests.model.pieces import Broken

WALKS = 150
# (rule, bug) -> the seed that met it first (python -m tests.model.older_parts N RULE BUG): a change of the model moves it
FOUND_AT = {("today", ""): 38, ("joined", ""): 2687}


@pytest.mark.long
def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize(("rule", "bug"), FOUND_AT)
def test_a_rule_with_less_is_found(rule: str, bug: str) -> None:
    seed = FOUND_AT[rule, bug]
    walk(seed)
    with pytest.raises(Broken):
        walk(seed, rule, bug)
