"""Lags in seconds and bytes: never less than what is so, in bounded memory."""

from __future__ import annotations

import random

import pytest

from gateway.epoch.lag_marks import APART_S, MARKS_MAX, Behind, LagMarks


def test_who_holds_everything_does_not_lag() -> None:
    marks = LagMarks(10, 100.0)
    assert marks.behind(10, 105.0) == Behind(0.0, 0)
    marks.committed(12, 300, 106.0)
    assert marks.behind(12, 200.0) == Behind(0.0, 0)


def test_a_lag_counts_from_the_last_moment_at_which_nothing_was_missing() -> None:
    marks = LagMarks(10, 100.0)
    marks.committed(12, 300, 106.0)
    marks.committed(15, 200, 108.0)
    assert marks.behind(12, 110.0) == Behind(4.0, 200)
    assert marks.behind(11, 110.0) == Behind(10.0, 500)


def test_what_was_missing_before_the_epoch_is_not_known() -> None:
    marks = LagMarks(10, 100.0)
    marks.committed(12, 300, 106.0)
    assert marks.behind(9, 110.0) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_lag_is_said_to_be_less_than_it_is(seed: int) -> None:
    """Against a list of all that was committed."""
    draw = random.Random(seed)
    now_s, seq, held = 50.0, 7, 7
    marks, log = LagMarks(seq, now_s), []
    for _ in range(5_000):
        now_s += draw.choice((0.0, 0.001, 0.05, 0.5, 20.0))
        seq += draw.randint(1, 4)
        size = draw.randint(50, 500)
        log.append((seq, now_s, size))
        marks.committed(seq, size, now_s)
        if draw.random() < 0.1:
            held = draw.randint(held, seq)
            marks.forget_before(draw.randint(7, held))
    missing = [(at_s, size) for upto, at_s, size in log if upto > held]
    behind = marks.behind(held, now_s)
    assert behind is not None
    assert behind.bytes >= sum(size for _, size in missing)
    assert behind.seconds >= max((now_s - at_s for at_s, _ in missing), default=0.0)
    assert len(marks._marks) <= MARKS_MAX


def test_marks_of_a_long_outage_grow_coarser_and_close_again() -> None:
    marks = LagMarks(0, 0.0)
    for number in range(1, 100_000):
        marks.committed(number, 1, number * APART_S)
    assert len(marks._marks) <= MARKS_MAX
    behind = marks.behind(90_000, 100_000 * APART_S)
    assert behind is not None
    assert 10_000 * APART_S <= behind.seconds < 11_000 * APART_S
    assert 9_999 <= behind.bytes < 11_000
    marks.forget_before(99_999)
    assert marks._apart_s == APART_S
