"""Setbacks: when a follower counts as one that holds less than it had stored, and until when."""

from __future__ import annotations

from remote_log.replication.setback import Setback, Setbacks


def test_what_a_follower_stored_is_measured_only_while_it_follows() -> None:
    seen = Setbacks()
    seen.weigh("loading", 90, 1.0)
    seen.weigh("following", 40, 2.0)
    assert (seen.newest, seen.count) == (None, 0)


def test_less_than_was_stored_is_one_setback_until_all_of_it_is_stored_again() -> None:
    seen = Setbacks()
    seen.weigh("following", 100, 1.0)
    seen.weigh("following", 60, 2.0)
    seen.weigh("loading", 10, 3.0)
    seen.weigh("following", 99, 4.0)
    assert (seen.newest, seen.count) == (Setback(100, 60, 2.0), 1)
    seen.weigh("following", 100, 5.0)
    assert seen.newest == Setback(100, 60, 2.0, is_over=True)
    seen.weigh("following", 150, 6.0)
    seen.weigh("loading", 0, 7.0)
    assert (seen.newest, seen.count) == (Setback(150, 0, 7.0), 2)


def test_a_follower_that_stores_as_much_as_before_has_no_setback_and_one_that_is_busy_says_nothing() -> None:
    seen = Setbacks()
    seen.weigh("following", 100, 1.0)
    seen.weigh("following", 100, 2.0)
    seen.weigh("busy", 5, 3.0)
    seen.weigh("diverged", 5, 4.0)
    assert (seen.newest, seen.count) == (None, 0)
