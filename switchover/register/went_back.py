"""The judgement of a value of the register by one that a site met before: does it lead on from there, or did it go back?

What always holds:
- values rank higher along every line of decisions, so one of a lower rank than a value met before is an older one: a backup,
  a copied file, a failover of the register's own database that lost its end;
- a pair that an operator's command began anew, with an epoch above what was met, leads on from whatever it was.
Source: protocol.md section 5 ("A register that went back"), docs/decisions/2026-11-22-a-register-that-went-back.md.
This module is pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from switchover.register.homes import rank
from switchover.register.port import PairState


def leads_on(value: PairState, met: PairState) -> bool:
    """False: `value` is older than `met`. True proves nothing where another site continued from an older value."""
    return begun_anew_since(value, met) or rank(value) >= rank(met)


def begun_anew_since(value: PairState, met: PairState) -> bool:
    return value.anew_epoch > met.epoch_allocated


def is_foreign(value: PairState, met: PairState) -> bool:
    """True for the register of another pair: the wrong register, or the wrong disk. A pair that a command began anew where
    nothing named the old identity has a new one, and is the same pair."""
    return bool(value.pair and met.pair) and value.pair != met.pair and not begun_anew_since(value, met)


def same_facts(one: PairState, other: PairState) -> bool:
    """True when only lease renewals, or a copy, lie between the two."""
    return _facts(one) == _facts(other)


def _facts(value: PairState) -> PairState:
    return replace(value, state_id=0, lease_beats=0, beat=None, reason="")


def older(value: PairState, met: PairState) -> str:
    return f"it is at {_at(value)}, this site has met {_at(met)}"


def of_another_pair(value: PairState, met: PairState) -> str:
    return f"it is the register of another pair, {value.pair}, and this site belongs to pair {met.pair}"


def on_another_line(value: PairState, met: PairState) -> str:
    return f"it is at {_at(value)}, and its history does not hold {_at(met)}, which this site has met"


def never_given(value: PairState, epoch: int) -> str:
    return f"it is at {_at(value)} and never gave away epoch {epoch}, which a claim, a log or a storage here knows"


def _at(value: PairState) -> str:
    return f"{value.state_id} (epoch {value.epoch})"


def command(site: str) -> str:
    return f"twinlog failover --to {site} --accept-data-loss --count unknown"


def begins_anew(site: str, active: str | None) -> str:
    """Returns the command for the site that was the active; where that is not known (None), for `site`, with that condition."""
    return f"`{command(active or site)}`" + ("" if active else ", at the site that was the active if it is there")


def advice(site: str, active: str | None, *, foreign: bool = False) -> str:
    """Returns the advice for the operator at `site`; `active` is as of `begins_anew`. `foreign`: the register is another
    pair's."""
    if foreign:
        return (
            "correct coordinator.url (without one: the DFSs) or data_dir; if the register of this pair is lost, name an empty "
            f"one, and then {begins_anew(site, active)}"
        )
    return (
        f"restore the newest one that there is; if that is lost, {begins_anew(site, active)}: the pair begins anew with what "
        "that site and both remote logs hold"
    )
