"""The look of a closed active at itself before a degrade lets it open without the other site's DFS.

What always holds: a site that could not open alone, or that lacks what the other site is known to hold, stays synchronous: the
other site can then take over without a loss. A copy so old that storage and log agree, with the other site away, looks whole.
Source: protocol.md section 5 (A part that comes back older).
"""

from __future__ import annotations

from switchover.activation.continuation import ends_before, frames_after, older_wal
from switchover.activation.own_log import frames_from
from switchover.roles.table import Role
from switchover.site_parts import SiteParts
from twinlog.errors import LogGap, PeerError

STATUS_TIMEOUT_S = 2.0


async def check_whole_alone(parts: SiteParts) -> None:
    """Raises LogGap, which counts what is missing, when storage and log of this site are known to lack acknowledged records."""
    state, peer = parts.engine.applied, parts.peer
    await parts.wal.settle()
    frames = await frames_from(parts.wal, state.seq)
    try:
        tail = frames_after(frames, state.seq, state.epoch)
    except LogGap as error:
        error.message += f"; site {peer} may have them: `twinlog failover --to {peer}`"
        raise
    if ends_before(frames, (state.epoch, state.seq)):
        raise older_wal(parts.site, frames, (state.epoch, state.seq))
    end = tail[-1].last_seq if tail else state.seq
    try:
        told = await parts.other_site.status(STATUS_TIMEOUT_S)
    except PeerError:
        return  # it is away, as its DFS is
    if told.role == Role.STANDBY and told.applied_seq > end:
        raise LogGap(
            f"site {peer} has applied {told.applied_seq}, and storage and log of site {parts.site} end at {end}: they are an"
            f" older copy, and at least {told.applied_seq - end} acknowledged records are missing; `twinlog failover --to"
            f" {peer}`, or give them up: `twinlog failover --to {parts.site} --accept-data-loss --count unknown`",
            held_seq=end, offered_previous=told.applied_seq,
        )
