"""A fresh pair, and a pair that the register has lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from switchover.register.lost_value import KnownEpochs, advice_for_lost_register, epoch_lost_by_register
from switchover.register.port import PairState, Switching
from switchover.register.transitions import begin_plan
from switchover.register.went_back import advice
from twinlog.errors import Refused

NOTHING = KnownEpochs(0, 0, ())


@pytest.mark.parametrize(("state", "seen", "epoch"), [
    (None, NOTHING, None),
    (None, KnownEpochs(0, 1, ()), 1),
    (None, KnownEpochs(4, 5, ()), 5),
    (PairState(1, epoch_allocated=1), KnownEpochs(0, 1, ()), None),
    (PairState(1, epoch_allocated=1), KnownEpochs(0, 2, ()), 2),
    (PairState(1, epoch_allocated=9), KnownEpochs(4, 5, ()), 5),
    (PairState(1, epoch=6, epoch_allocated=9), NOTHING, 6),
    (PairState(1, epoch=3, epoch_allocated=3, active="a"), KnownEpochs(4, 5, ()), None),
    (None, KnownEpochs(1007, 1007, (), 1007), None),
    (PairState(1, epoch_allocated=1008), KnownEpochs(1007, 1008, (), 1007), None),
    (None, KnownEpochs(1007, 1008, (), 1007), 1008),
    (None, KnownEpochs(1008, 1008, (), 1007), 1008),
], ids=["fresh", "a claim", "a storage", "half-way", "a higher claim", "storage, given away", "begun anew", "known",
        "restored", "restored, half-way", "restored, then a claim", "restored, then lived"])
def test_the_epoch_that_the_register_lost(state: PairState | None, seen: KnownEpochs, epoch: int | None) -> None:
    assert epoch_lost_by_register(state, seen) == epoch


def test_a_beginning_by_command_leaves_a_mark_that_no_fresh_opening_passes() -> None:
    begun = begin_plan(None, "p1", "b", "bootstrap", 0, accept_data_loss=True, highest_claim=5, lost_epoch=5)
    assert (begun.epoch, begun.epoch_allocated, begun.active) == (5, 6, None)
    assert begun.switching == Switching("p1", "b", 6, "bootstrap", 0)
    with pytest.raises(Refused, match="a forced failover begins it anew"):
        begin_plan(begun, "p2", "b", "bootstrap", 0)


@pytest.mark.parametrize("advised", [partial(advice_for_lost_register, epoch=4), advice], ids=["lost", "went back"])
def test_the_condition_stands_only_where_nobody_knows_which_site_was_the_active(advised: Callable[..., str]) -> None:
    known, unknown = advised("b", "a"), advised("b", None)
    assert "`twinlog failover --to a --accept-data-loss --count unknown`" in known
    assert "if it is there" not in known
    assert "`twinlog failover --to b --accept-data-loss --count unknown`, at the site that was the active if it" in unknown
