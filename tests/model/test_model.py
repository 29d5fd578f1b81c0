"""Random walks over the model: the protocol keeps its promises, and mistakes planted in it are found."""

from __future__ import annotations

import pytest

from tests.model.pieces import Broken
from tests.model.twinlog_model import walk

WALKS = 400
# where the walks met each planted mistake first: a change of the model moves them (python -m tests.model.twinlog_model N BUG)
FOUND_AT = {
    "no_fence": 74,
    "no_claim_recheck": 5,
    "no_lease_wait": 46,
    "growth_unseen": 13550,
    "ack_before_remote": 5,
    "forget_previous": 0,
    "reuse_seq": 40,
    "trim_early": 331,
    "no_flush_before_open": 25024,
    "no_flush_at_takeover": 629,
    "apply_before_open": 7125,
    "blind_restart": 72,
    "downgrade_unrecorded": 4,
    "downgrade_closed_unasked": 1913,
    "sync_before_caught_up": 4377,
    "replay_unattested": 1794,
    "unopened_attests": 27403,
    "no_async_note": 208,
    "drop_quarantine": 46,
}


def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize("bug", FOUND_AT)
def test_a_planted_mistake_is_found(bug: str) -> None:
    seed = FOUND_AT[bug]
    walk(seed)  # the same walk without it is clean
    with pytest.raises(Broken):
        walk(seed, bug)
