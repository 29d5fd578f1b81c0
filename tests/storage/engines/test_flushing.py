"""A flush is due when too much waits, or for too long: against a plain list of what waits and since when."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from storage.engines.flushing import BYTES_MAX, RECORDS_MAX, FlushNeed, Look

AGE_S = 10.0
Step = tuple[float, int, int, str]  # seconds until the look, records and bytes applied on the way, what else happens before it
steps = st.lists(
    st.tuples(
        st.sampled_from((0.1, 0.5, 1.0)), st.integers(0, 3) | st.integers(0, RECORDS_MAX // 3), st.integers(0, BYTES_MAX // 3),
        st.sampled_from(("", "", "", "", "flushed before", "flushed behind", "crash")),
    ), max_size=80,
)
TRICKLE: list[Step] = [(1.0, 200, 40_000, "")] * 60


@given(steps=steps)
@example(steps=TRICKLE)
def test_what_waits_never_waits_longer_and_is_never_more_than_it_may(steps: list[Step]) -> None:
    need = FlushNeed(AGE_S)
    now_s, applied, durable, log_bytes = 0.0, 0, 0, 0
    waiting: list[tuple[float, int, int]] = []  # when it was applied, up to which sequence, how many bytes
    gaps_s = [0.0, 0.0]  # until the last look, and until the one before
    for seconds, records, size, what in steps:
        if what == "flushed before":
            durable, waiting = applied, []
        if records:
            waiting.append((now_s, applied + records, size))
            applied, log_bytes = applied + records, log_bytes + size
        if what == "flushed behind":
            durable, waiting = applied, []
        if what == "crash":  # opened anew: the log fills it again, and that counts as applied a second time
            log_bytes += sum(one[2] for one in waiting)
        now_s += seconds
        gaps_s = [seconds, gaps_s[0]]
        due = need.is_due(Look(now_s, applied, durable, log_bytes))
        if not waiting:
            assert not due
            continue
        oldest_s = now_s - waiting[0][0]
        held = sum(one[2] for one in waiting)
        much = applied - durable >= RECORDS_MAX
        if much or held >= BYTES_MAX + size or oldest_s >= AGE_S + sum(gaps_s):
            assert due  # whatever came between two looks may count from the second of them, and no later
        if due and what != "crash" and not any(step[3] for step in steps):
            assert much or held >= BYTES_MAX or oldest_s > AGE_S - sum(gaps_s)
        if due:
            durable, waiting = applied, []


def test_a_trickle_is_flushed_by_its_age_alone() -> None:
    need, durable, flushes = FlushNeed(300.0), 0, 0
    for second in range(1, 3601):
        if need.is_due(Look(float(second), 200 * second, durable, 50_000 * second)):
            durable, flushes = 200 * second, flushes + 1
    assert flushes in (11, 12)


def test_a_busy_site_is_flushed_by_records_or_by_bytes() -> None:
    records, size = FlushNeed(3600.0), FlushNeed(3600.0)
    assert not records.is_due(Look(0.0, 0, 0, 0))
    assert not records.is_due(Look(1.0, RECORDS_MAX - 1, 0, 0))
    assert records.is_due(Look(2.0, RECORDS_MAX, 0, 0))
    assert not size.is_due(Look(0.0, 0, 0, 7))
    assert not size.is_due(Look(1.0, 1, 0, 7 + BYTES_MAX - 1))
    assert size.is_due(Look(2.0, 2, 0, 7 + BYTES_MAX))


def test_a_storage_that_is_durable_is_left_alone() -> None:
    need = FlushNeed(0.01)
    assert not any(need.is_due(Look(float(second), 5, 5, BYTES_MAX * second)) for second in range(100))
