"""Refused attempts: a flood leaves a bounded number of lines, and none of them goes uncounted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.trail.entry import Who
from gateway.trail.refusals import INTERVAL_S, KINDS_MAX, OTHERS, RefusalCounts


def test_the_first_is_a_line_at_once_and_those_behind_it_are_counted() -> None:
    refusals, eve = RefusalCounts(), Who("eve", "token", "10.0.0.9")
    assert refusals.note(0, eve, "missing-grant", {"path": "/1"}) == (eve, {"code": "missing-grant", "path": "/1"})
    assert [refusals.note(second, eve, "missing-grant", {"path": f"/{second}"}) for second in (1, 2, 3)] == [None] * 3
    assert refusals.due(INTERVAL_S - 1) == []
    assert refusals.due(INTERVAL_S) == [(eve, {"code": "missing-grant", "more": 3, "last": {"path": "/3"}})]
    assert refusals.due(INTERVAL_S * 3) == []
    assert refusals.note(INTERVAL_S * 4, eve, "missing-grant", {}) is not None


def test_what_is_counted_is_not_lost_at_the_end_of_a_life() -> None:
    refusals, eve = RefusalCounts(), Who("eve", "token")
    for _ in range(5):
        refusals.note(0, eve, "missing-grant", {})
    assert [what["more"] for _, what in refusals.due(1, anyhow=True)] == [4]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 99), st.sampled_from(("unauthenticated", "missing-grant")))))
def test_however_many_come_from_wherever_the_lines_are_bounded_and_the_count_is_whole(
    attempts: list[tuple[int, int, str]],
) -> None:
    refusals, lines = RefusalCounts(), []
    counted, intervals = 0, 1
    for now_s, address, code in sorted(attempts):
        due = refusals.due(now_s)
        intervals += bool(due) or now_s >= INTERVAL_S * intervals
        lines += due
        line = refusals.note(now_s, Who("nobody", "anonymous", f"10.0.0.{address}"), code, {})
        lines += [] if line is None else [line]
    lines += refusals.due(0, anyhow=True)
    counted = sum(what.get("more", 1) for _, what in lines)
    assert counted == len(attempts)
    assert len(lines) <= 2 * (KINDS_MAX + 1) * intervals


def test_a_flood_from_many_addresses_shares_one_line() -> None:
    refusals = RefusalCounts()
    first = [refusals.note(0, Who("nobody", "anonymous", f"10.0.{number}"), "unauthenticated", {}) for number in range(5000)]
    assert sum(line is not None for line in first) == KINDS_MAX + 1
    assert [(who, what["more"]) for who, what in refusals.due(INTERVAL_S)] == [(OTHERS, 5000 - KINDS_MAX - 1)]
