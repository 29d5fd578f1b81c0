"""Guards that a broken invariant is never hidden, and that costly checks run where they are asked for."""

from __future__ import annotations

from contextlib import suppress

import pytest

from storage import invariants
from storage.invariants import InvariantBroken, watched
from twinlog.errors import TwinlogError


def test_one_that_a_handler_took_is_collected() -> None:
    with watched() as broken, suppress(Exception):
        raise InvariantBroken("the sum of 1 and 1 is 3")
    assert [str(one) for one in broken] == ["the sum of 1 and 1 is 3"]


def test_the_inner_one_keeps_what_breaks_inside_it() -> None:
    with watched() as outer:
        with watched() as inner, suppress(InvariantBroken):
            raise InvariantBroken("inside")
        with suppress(InvariantBroken):
            raise InvariantBroken("outside")
    assert [str(one) for one in inner] == ["inside"]
    assert [str(one) for one in outer] == ["outside"]


def test_it_is_no_error_that_the_product_expects() -> None:
    assert not issubclass(InvariantBroken, TwinlogError)


@pytest.mark.parametrize("costly", [False, True])
def test_costly_checks_run_inside_and_are_as_before_afterwards(costly: bool) -> None:
    before = invariants.costly
    with watched(costly_too=costly):
        assert invariants.costly is costly
    assert invariants.costly is before


def test_every_test_runs_with_the_costly_ones() -> None:
    assert invariants.costly
