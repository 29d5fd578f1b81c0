"""The loss manifest of a forced failover, and the check that the operator accepted exactly that.

What always holds: a count is a lower bound that the lost active itself left at the coordinator, with the time of it and how
long it may have gone on; where there is no such bound, or it still grows, the count is unknown, and accepted as `unknown`;
what is accepted is judged where the failover runs, never by the command line alone. Source: protocol.md section 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from switchover.register.port import PairState
from twinlog.errors import InvalidInput

UNKNOWN = "unknown"


class Obstacle(NamedTuple):
    seen: str
    fix: str


class LossManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The loss if `active` is given up now. `records_at_risk` null: unknown; else a lower bound, as the active said it
    at `told_at_ms` (milliseconds since 1970), and more may have followed for `more_within_s` seconds."""

    active: str
    epoch: int
    asynchronous_since_seq: int | None
    this_site_holds_seq: int
    records_at_risk: int | None
    statement: str
    active_committed_seq: int | None
    told_at_ms: int | None
    more_within_s: float | None


def loss_manifest(
    state: PairState, site: str, *, applied_seq: int, applied_epoch: int, growing: bool
) -> LossManifest | None:
    """Returns what may be lost if `site` takes over now; None when nothing acknowledged can be missing.

    `growing`: the active has renewed its lease while this was looked at, so it lives and acknowledges.
    """
    if state.mode == "sync" or state.active is None or state.active == site:
        return None
    since, beat = state.async_since_seq, state.beat
    held = applied_seq if applied_epoch == state.epoch else min(applied_seq, since or 0)
    count = None
    if growing:
        said = f"site {state.active} still renews its lease: it continues to acknowledge, so how many is unknown"
    elif beat is None:
        said = f"site {state.active} was lost before it reported how far it was: how many is unknown"
    else:
        count = max(0, beat.committed_seq - max(held, since or 0))
        at = datetime.fromtimestamp(beat.wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        said = (f"at least {count:,} records up to {at} were logged by site {state.active} alone and have not arrived here; "
                f"more may have followed for up to {beat.lease_s:g} s")
    return LossManifest(
        active=state.active, epoch=state.epoch, asynchronous_since_seq=since, this_site_holds_seq=held, records_at_risk=count,
        statement=said, active_committed_seq=beat.committed_seq if beat is not None else None,
        told_at_ms=beat.wall_ms if beat is not None else None,
        more_within_s=beat.lease_s if beat is not None and not growing else None,
    )


def at_risk(manifest: Mapping[str, Any]) -> int | str:
    """The count that the operator accepts, or `unknown`. `manifest` as an answer shows it."""
    count = manifest.get("records_at_risk")
    return count if isinstance(count, int) else UNKNOWN


def accepted_loss(options: Mapping[str, Any]) -> int | str | None:
    """The option `accept_data_loss`: a count or `unknown`; None when it was not given. Raises InvalidInput."""
    given = options.get("accept_data_loss")
    if given is None or given == UNKNOWN or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise InvalidInput(
        f"accept_data_loss is {given!r}: it must be the count that the loss manifest shows, or \"unknown\" if it shows none",
        option="accept_data_loss",
    )


def acceptance_problem(manifest: LossManifest | None, accepted: object) -> Obstacle | None:
    """Says why a failover must not begin with this much accepted; None when it may."""
    if manifest is None:
        if accepted in (None, UNKNOWN):
            return None
        return Obstacle(f"a loss of {accepted} was accepted, but nothing acknowledged is known to be missing",
                       "repeat it without --accept-data-loss")
    risk = UNKNOWN if manifest.records_at_risk is None else manifest.records_at_risk
    if accepted == risk:
        return None
    said = manifest.statement
    if accepted is None:
        return Obstacle(said, f"bring site {manifest.active} back and nothing is lost; else repeat with --accept-data-loss")
    return Obstacle(
        f"a loss of {accepted} was accepted, but the loss manifest now shows {risk}", "read the manifest, and decide anew"
    )
