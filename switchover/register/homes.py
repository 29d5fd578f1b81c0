"""The home of the pair's value without a coordinator: the site on whose DFS it is decided; and which of two values rules.

What always holds:
- each value names its home and was decided at the home that the value before it names: a move is decided once, at the old home;
- the home of a synchronous pair is the DFS of the site that would take over, that of an asynchronous one the active's own:
  whoever may continue alone reaches the register alone, and a takeover, a restart and a change of mode meet there;
- of two values that were decided apart (an operator forced the home of one) the higher `rank` rules, and what the other one
  gave away or acknowledged stays given away and acknowledged (`reconciled`).
Source: protocol.md section 5, docs/decisions/2026-11-21-a-register-on-two-dfs.md.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from switchover.register.port import PairState

UNSEEN_STEP = 1000  # epochs that a takeover leaves free for what may be decided where it could not look


def next_epoch(highest: int, home: str | None, step: int = 1) -> int:
    """An epoch at least `step` above `highest` that only this home gives away, so that no two lines ever give the same."""
    epoch = highest + step
    return epoch + 1 if home is not None and (epoch % 2 == 1) is not (home == "a") else epoch


def rank(value: PairState | None) -> tuple[int, int, int, int, str]:
    """Values grow in this order along every line of decisions; of two lines the one with the higher rank rules."""
    if value is None:
        return 0, 0, 0, 0, ""
    return value.epoch, value.epoch_allocated, value.home_forced, value.state_id, value.home or ""


def next_home(before: PairState | None, new: PairState, first_home: str, sites: tuple[str, str]) -> str:
    """The home that `new` names: it moves only where an epoch opens or the mode changes."""
    home = first_home if before is None or before.home is None else before.home
    if new.active is None or before is None or (new.epoch, new.mode) == (before.epoch, before.mode):
        return home
    if new.mode == "async":
        return new.active
    return sites[0] if new.active == sites[1] else sites[1]


def stale_takeover(value: PairState | None, site: str) -> str | None:
    """The plan of a takeover by `site` that still has the pair although the old active was degraded by command, out of its
    sight: that one holds everything, and must be able to continue."""
    running = value.switching if value is not None and value.home is not None and value.mode == "async" else None
    return running.plan_id if running is not None and (running.site, running.kind) == (site, "takeover") else None


def forks(ruling: PairState, newest: Mapping[str, PairState | None]) -> list[PairState]:
    """Returns the newest values by DFS that were decided apart from `ruling`: at their own home, on another line."""
    return [
        value for site, value in newest.items()
        if value is not None and value.home == site and value.home_forced != ruling.home_forced and value != ruling
    ]


def reconciled(ruling: PairState, others: list[PairState]) -> PairState:
    """`ruling` with what other lines have done since they parted: epochs given away, and asynchronous acknowledgements in the
    epoch that is open in both. `ruling` itself when there is nothing of the kind."""
    for other in others:
        if other.epoch_allocated > ruling.epoch_allocated:
            ruling = replace(ruling, epoch_allocated=other.epoch_allocated, reason=_why(other))
        if other.epoch == ruling.epoch and other.active is not None and (other.mode, ruling.mode) == ("async", "sync"):
            ruling = replace(
                ruling, mode="async", async_since_seq=other.async_since_seq, beat=other.beat, reason=_why(other)
            )
    return ruling


def _why(other: PairState) -> str:
    return f"what was decided apart on site {other.home}'s DFS is taken over: {other.reason}"
