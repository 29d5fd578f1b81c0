"""The log that a site shares with the active, by the epochs that the active recorded."""

from __future__ import annotations

import pytest

from remote_log.replication.epoch_history import common_end, contains
from storage.engine import EpochEntry
from twinlog.errors import Refused

# epoch 3, which began behind 100, was given up as a whole: epoch 5 continues epoch 1 up to 120, with the sequences of epoch 3
HISTORY = (
    EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(5, 121, 120, "a", "takeover"), EpochEntry(6, 151, 150, "a", "restart"),
)


@pytest.mark.parametrize(("epoch", "seq", "end"), [
    (0, 0, 0), (0, 9, 0), (1, 80, 80), (1, 120, 120), (1, 130, 120), (5, 150, 150), (5, 151, 150), (6, 151, 151), (6, 999, 999),
])
def test_a_site_shares_what_lies_before_the_next_epoch(epoch: int, seq: int, end: int) -> None:
    assert common_end(HISTORY, epoch, seq) == end
    assert contains(HISTORY, epoch, seq) == (end == seq)


@pytest.mark.parametrize(("epoch", "seq"), [(3, 110), (3, 130), (7, 160), (2, 90)])
def test_nothing_is_said_of_an_epoch_that_the_history_does_not_name(epoch: int, seq: int) -> None:
    """By numbers alone, a site at 110 of epoch 3 shares all of it. Its 101 to 110 are other records than those of epoch 1."""
    with pytest.raises(Refused, match=f"epoch {epoch} is not in the active's recorded history"):
        common_end(HISTORY, epoch, seq)
    assert not contains(HISTORY, epoch, seq)
