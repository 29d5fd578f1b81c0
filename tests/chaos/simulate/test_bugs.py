"""Every planted bug is found on a seed that it names, by a checker that should, and the clean product passes that seed."""

from __future__ import annotations

import inspect
from functools import cache
from unittest.mock import patch

import pytest

from chaos.checkers.violation import Violation
from chaos.simulate.bugs import BUGS, planted
from chaos.simulate.plan import SeedPlan
from chaos.simulate.run import Run, collect
from remote_log.replication.sink import Sink
from twinlog.errors import InvalidInput


def violations(plan: SeedPlan) -> tuple[Violation, ...]:
    found = Run(plan).execute().violations
    collect()
    return found


clean = cache(violations)  # bugs with the same kinds of faults share seeds


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_it_is_found(name: str) -> None:
    bug = BUGS[name]
    for seed in bug.window:
        plan = bug.plan(seed)
        with planted(name):
            found = {violation.checker for violation in violations(plan)}
        if found & set(bug.checkers):
            assert clean(plan) == ()
            return
    pytest.fail(f"{name} was not found by {', '.join(bug.checkers)} on any seed of {bug.window}")


@pytest.mark.parametrize("name", BUGS)
def test_it_is_called_as_the_product_is(name: str) -> None:
    """A replacement that lacks a parameter ends in a TypeError, and the bug would be planted no more."""
    for owner, attribute, replacement in BUGS[name].patches:
        if not callable(replacement):
            continue
        wanted, given = (inspect.signature(each).parameters.values() for each in (getattr(owner, attribute), replacement))
        if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in given):
            continue
        assert [parameter.name for parameter in given] == [parameter.name for parameter in wanted]


def test_an_exception_of_the_planted_code_is_no_find() -> None:
    """A patch that does not fit the product any more ends so: it would be found on every seed, and plant nothing."""
    assert not [bug.name for bug in BUGS.values() if "errors" in bug.checkers]
    with patch.object(Sink, "_note_vouched", lambda _: None):
        assert "errors" in {violation.checker for violation in violations(BUGS["newer-by-the-drift"].plan(0))}


def test_nothing_is_left_of_it() -> None:
    before = [getattr(owner, name) for bug in BUGS.values() for owner, name, _ in bug.patches]
    for name, bug in BUGS.items():
        with planted(name):
            assert [getattr(owner, attribute) for owner, attribute, _ in bug.patches] == [new for *_, new in bug.patches]
    assert [getattr(owner, name) for bug in BUGS.values() for owner, name, _ in bug.patches] == before


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no bug is called 'none'"):
        planted("none")
