"""Epoch history: where a site's log leaves the active's, if it does.

An active records, in each epoch's start, the end of the epoch before (`previous`). A site whose position lies above the end
that the active recorded for its epoch has diverged: what it holds above that end is not in the log any more.

What always holds: sequences alone never decide (a dead site's frame may bear a number that the living log uses again in a
later epoch); the epoch of the position does. Source: protocol.md sections 2, 5 step 5, and 8 (rejoin).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.engine import EpochEntry
from twinlog.errors import Refused


def common_end(history: Sequence[EpochEntry], epoch: int, seq: int) -> int:
    """The highest sequence at or below `seq` that a site at (`epoch`, `seq`) shares with the log of `history`, as far as
    numbers say: where its own log leaves that one it may have continued without a frame that failed (switchover/rejoin.py).

    `history` is ascending. A site at epoch 0 (empty) shares nothing: 0. Raises Refused when the recorded history has no such
    epoch, so that nothing can be said: it may lie outside, or be one that a forced takeover gave up as a whole, whose
    sequences the log uses again. Such a site needs base data.
    """
    if epoch == 0:
        return 0
    if all(entry.epoch != epoch for entry in history):
        raise Refused(
            f"epoch {epoch} is not in the active's recorded history: this site must be filled with base data", epoch=epoch
        )
    later = [entry for entry in history if entry.epoch > epoch]
    return min(seq, later[0].previous) if later else seq


def contains(history: Sequence[EpochEntry], epoch: int, seq: int) -> bool:
    """True when the log of `history` holds sequence `seq` of `epoch`, as far as numbers say."""
    try:
        return common_end(history, epoch, seq) == seq
    except Refused:
        return False
