"""Random walks with a register that goes back: believed as it is, it breaks promises; what each site knows keeps them."""

from __future__ import annotations

import pytest

from tests.model.pieces import Broken
from tests.model.went_back import walk

WALKS = 150
# (rule, bug) -> the seed that met it first (python -m tests.model.went_back N RULE BUG): a change of the model moves it
FOUND_AT = {("today", ""): 23}


def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize(("rule", "bug"), FOUND_AT)
def test_a_rule_that_believes_too_much_is_found(rule: str, bug: str) -> None:
    seed = FOUND_AT[rule, bug]
    walk(seed)
    with pytest.raises(Broken):
        walk(seed, rule, bug)
