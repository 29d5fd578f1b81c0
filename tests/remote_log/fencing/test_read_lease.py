"""The read lease's arithmetic, and the reason for the fencer's wait as a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_log.fencing.read_lease import ReadLease
from twinlog.errors import InvalidInput

seconds = st.floats(0, 1e6)
starts = st.lists(seconds, min_size=1, max_size=8)


def test_nothing_is_valid_without_a_proof() -> None:
    assert not ReadLease(1.0, 0.1).valid_at(0.0)
    assert not ReadLease(1.0, 0.1).valid_at(-1e300)


@given(starts, seconds)
def test_the_newest_start_counts_in_whatever_order_proofs_come(proofs: list[float], now_s: float) -> None:
    lease = ReadLease(2.0, 0.0)
    for start_s in proofs:
        lease.proof(start_s)
        lease.confirm(start_s)
    assert lease.expires_s == max(proofs) + 2.0
    assert lease.valid_at(now_s) == (now_s < max(proofs) + 2.0)


def test_an_append_behind_the_end_of_the_lease_waits_for_a_look_at_the_register() -> None:
    lease = ReadLease(2.0, 0.0)
    lease.proof(1.0)
    lease.proof(2.9)
    assert (lease.expires_s, lease.aside_s) == (4.9, None)
    lease.proof(4.9)
    assert (lease.expires_s, lease.aside_s) == (4.9, 4.9)
    assert not lease.valid_at(5.0)
    lease.proof(5.5)
    lease.proof(9.0)
    lease.confirm(4.9)
    assert (lease.expires_s, lease.aside_s) == (6.9, 9.0), "too long after what was confirmed"
    lease.confirm(9.0)
    assert (lease.expires_s, lease.aside_s) == (11.0, None)


@given(st.lists(st.tuples(st.booleans(), seconds), max_size=12))
def test_nothing_behind_a_gap_counts_without_a_look(events: list[tuple[bool, float]]) -> None:
    """Between the newest moment that a look confirmed, or the first proof, and the end there is no gap of a lease."""
    lease, looked, starts = ReadLease(2.0, 0.0), 0.0, [0.0]
    lease.proof(0.0)
    for is_look, start_s in events:
        if is_look:
            lease.confirm(start_s)
            looked = max(looked, start_s)
        else:
            lease.proof(start_s)
        starts.append(start_s)
        end_s = looked
        for each in sorted(starts):
            end_s = max(end_s, each) if each < end_s + 2.0 else end_s
        assert lease.expires_s <= end_s + 2.0


def test_the_end_itself_is_not_valid() -> None:
    lease = ReadLease(1.0, 0.0)
    lease.proof(5.0)
    assert lease.valid_at(5.999)
    assert not lease.valid_at(6.0)


@given(
    lease_s=st.floats(0.05, 60), margin=st.floats(0.0, 0.5), share=st.floats(0, 1), fenced_at=st.floats(0, 1000),
    before=st.floats(0, 10),
)
def test_when_the_fencer_has_waited_the_old_active_is_silent(
    lease_s: float, margin: float, share: float, fenced_at: float, before: float
) -> None:
    """The old active's clock runs at 1, the fencer's faster by at most the margin; proofs start before the fence."""
    old = ReadLease(lease_s, margin)
    old.proof(fenced_at - before)
    fencer_rate = 1 + margin * share
    waited_in_old_seconds = ReadLease(lease_s, margin).fencer_wait_s / fencer_rate
    assert not old.valid_at(fenced_at + waited_in_old_seconds * (1 + 1e-9) + 1e-9)


def test_nonsense_is_refused() -> None:
    for lease_s, margin in ((0, 0.1), (-1, 0.1), (float("nan"), 0.1), (1, -0.1), (float("inf"), 0.0)):
        with pytest.raises(InvalidInput):
            ReadLease(lease_s, margin)


def test_a_lease_that_was_given_up_is_never_valid_again() -> None:
    """Its holder has said that it stopped: a switchover waits for nothing."""
    lease = ReadLease(2.0, 0.0)
    lease.proof(1.0)
    assert lease.valid_at(1.5)
    lease.revoke()
    assert not lease.valid_at(1.5)
    lease.proof(1.6)
    lease.confirm(1.7)
    assert not lease.valid_at(1.8)
