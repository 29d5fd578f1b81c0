"""Random walks over the model: the protocol keeps its promises, and mistakes planted in it are found."""

from __future__ import annotations

import pytest

from tests.model.pieces import Broken
from tests.model.twinlog_model import walk

WALKS = 400
# where the walks met each planted mistake first: a change of the model moves them (python -m tests.model.twinlog_model N BUG)
FOUND_AT = {
    "no_fence": 10,
    "no_claim_recheck": 22,
    "no_lease_wait": 19,
    "ack_before_remote": 10,
    "forget_previous": 2,
    "reuse_seq": 16,
    "trim_early": 372,
    "no_flush_before_open": 3056,
    "no_flush_at_takeover": 137,
    "apply_before_open": 1674,
    "blind_restart": 9,
    "downgrade_unrecorded": 11,
    "downgrade_closed_unasked": 2095,
    "sync_before_caught_up": 280,
    "replay_unattested": 1209,
    "unopened_attests": 2095,
    "no_async_note": 375,
    "drop_quarantine": 11,
}


def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize("bug", FOUND_AT)
def test_a_planted_mistake_is_found(bug: str) -> None:
    seed = FOUND_AT[bug]
    walk(seed)  # the same walk without it is clean
    with pytest.raises(Broken):
        walk(seed, bug)
