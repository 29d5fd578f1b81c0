"""A register that names no active, judged by a site that knows of epochs by itself.

What always holds: a pair is fresh only if neither the storage here nor a log nor a claim knows of an epoch that the register
does not; a register that was lost, or is the wrong one, must not make a pair begin as if nothing had been acknowledged.
This module is pure.
"""

from __future__ import annotations

from typing import NamedTuple

from switchover.register.port import PairState
from switchover.register.went_back import begins_anew


class KnownEpochs(NamedTuple):
    """`lived`: the last epoch that the storage holds frames of. `known`: the highest one met in storage, WAL and claims.
    `unseen`: the sites whose DFS did not answer. `restored`: the epoch in which a storage that came from a backup ends; 0: it
    did not. No register of this pair gave that epoch, or one before it, away."""

    lived: int
    known: int
    unseen: tuple[str, ...]
    restored: int = 0


def epoch_lost_by_register(state: PairState | None, seen: KnownEpochs) -> int | None:
    """The highest epoch known here, of a pair that was open before and that the register has no record of, or none but that
    it is begun anew. None: it names the active, or the pair is fresh: then a first opening may have stopped half-way."""
    if state is not None and state.active is not None:
        return None
    given, opened = (state.epoch_allocated, state.epoch) if state is not None else (0, 0)
    lived = seen.lived > seen.restored or opened > 0 or seen.known > max(given, seen.restored)
    return max(seen.known, opened) if lived else None


def advice_for_lost_register(site: str, active: str | None, epoch: int) -> str:
    """Returns the advice for the operator at `site`; `active` is as of `begins_anew`."""
    return (
        f"this site knows of epoch {epoch}, but the coordinator has no record of this pair (without one: neither DFS has its "
        f"register): restore it, or point coordinator.url at the right one; if it is lost for good, {begins_anew(site, active)}"
    )
