"""The facts of one site (switchover/facts.py), as they are now: for its own checks, and for the other site that asks.

What always holds: nothing is changed; what does not answer in time is named, and holds up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.site.serving_facts import site_condition
from gateway.site.serving_judgement import STANDBY_STORAGE
from gateway.site.site import Site
from remote_log.dfs.retrying import within
from remote_log.fencing.reading import begins_after, missing_from, segments_below
from switchover.facts import SiteFacts
from switchover.register.lost_value import epoch_lost_by_register
from switchover.register.port import PairState
from twinlog.errors import KeyUnavailable, RegisterWentBack, TwinlogError

T = TypeVar("T")
LOOK_TIMEOUT_S = 2.0
LOOKED_AT_MAX = 50  # files whose lease is asked for: more of them are said to be open anyhow


async def site_facts(site: Site, state: PairState | None, coordinator_error: str | None) -> SiteFacts:
    """`state`: the coordinator's value, or why there is none."""
    settings, parts, epoch = site.settings, site.parts, site.active_epoch
    own_dfs_error, peer_dfs_error, (missing, unreadable), leases, free, remote_log_mark = await asyncio.gather(
        _problem(parts.own_dfs.probe), _problem(parts.peer_dfs.probe), _remote_log(site, state), _open_leases(site),
        _free(site), _remote_log_mark(site, state),
    )
    names_nobody = coordinator_error is None and (state is None or state.active is None)
    forgotten = epoch_lost_by_register(state, await site.known_epochs()) if names_nobody else None
    now_s, (serving, troubles, *_) = parts.clock.monotonic_s(), site_condition(site)
    return SiteFacts(
        site=site.site, pair=settings.pair, release=parts.understanding.own.release, formats=parts.understanding.own.formats,
        formats_written=parts.understanding.noted.formats, wall_ms=parts.clock.wall_ms(),
        lease_s=settings.lease.lease_s, drift_margin=settings.lease.drift_margin, initial_active=settings.initial_active,
        policy=settings.policy, role=str(site.role), epoch=site.epoch, mode=site.mode, waiting_for=site.waiting_for,
        lease_left_s=None if epoch is None else max(0.0, epoch.lease.expires_s - now_s),
        serves_reads=serving.reads, serves_writes=serving.writes, serves_not=serving.why, serves_again=serving.do,
        applied_seq=parts.engine.applied.seq, durable_seq=parts.engine.durable_seq,
        committed_seq=epoch.core.committed if epoch is not None else parts.engine.applied.seq,
        blocker=site.takeover_blocker(), heard_s=site.follower_silence_s(), free_bytes=free,
        local_log_error=None if epoch is None else epoch.commit.local_trouble, own_dfs_error=own_dfs_error,
        peer_dfs_error=peer_dfs_error, coordinator_error=coordinator_error,
        register_home=parts.coordinator.met_home,
        opened_by=state.opened_by if state is not None else None, forgotten_epoch=forgotten,
        register_went_back=parts.coordinator.finding, met_epoch=parts.coordinator.met_epoch,
        met_active=parts.coordinator.met_active, stands_in=parts.stand_in is not None and parts.stand_in.stands_in,
        remote_log_missing=missing, remote_log_unreadable=unreadable, open_leases=leases, remote_log_mark=remote_log_mark,
        audit_recent_s=settings.audits.recent_s, last_good_audit_ms=site.audits.last_good_ms(),
        peer_set_back=next((one.seen for one in troubles if one.about == STANDBY_STORAGE), None),
        notices="; ".join(site.notices()) or None,
        resyncs=None if epoch is None else epoch.auto_resync and settings.resync_after_s is not None,
    )


async def own_facts(site: Site) -> SiteFacts:
    """Collects the facts with this site's own look at the coordinator."""
    try:
        return await site_facts(site, await site.parts.coordinator.read(), None)
    except RegisterWentBack:
        return await site_facts(site, None, None)
    except TwinlogError as error:
        return await site_facts(site, None, error.message)


async def _problem(look: Callable[[], Awaitable[None]]) -> str | None:
    try:
        await within(LOOK_TIMEOUT_S, look())
    except TwinlogError as error:
        return error.message
    return None


async def _seen(look: Awaitable[T]) -> T | None:
    """Returns what a look at a DFS, or a disk, sees; None when it fails: another fact says why. Raises KeyUnavailable."""
    try:
        return await within(LOOK_TIMEOUT_S, look)
    except KeyUnavailable:
        raise
    except TwinlogError:
        return None


async def _remote_log(site: Site, state: PairState | None) -> tuple[str | None, str | None]:
    """Returns what the other site's remote log lacks here, and why it cannot be decrypted here."""
    unreadable: str | None = None
    try:
        missing = await _missing(site, state)
    except KeyUnavailable as error:
        return None, error.message
    if site.parts.remote_keys or site.peer_log_key:
        try:
            await within(LOOK_TIMEOUT_S, site.key_look.look(site.peer_log_key))
        except KeyUnavailable as error:
            unreadable = error.message
        except TwinlogError:  # the DFS: another fact says why
            pass
    return missing, unreadable


async def _missing(site: Site, state: PairState | None) -> str | None:
    """Names what the other site's remote log lacks here, while it is the synchronous active: the log itself, or what would lead
    from this site's storage to it. That is deleted only once this storage holds it, so another disk is here now. Raises
    KeyUnavailable."""
    if state is None or state.mode != "sync" or state.active in (None, site.site):
        return None
    dfs, layout, epoch = site.parts.own_dfs, site.layout, state.epoch

    async def look() -> tuple[str | None, int | None]:
        return await missing_from(dfs, layout, epoch, site.parts.remote_keys), await begins_after(dfs, layout, epoch)

    missing, after = await _seen(look()) or (None, None)
    held = site.parts.engine.applied.seq  # asked for last: what it holds by now may be deleted by now
    if missing is not None or after is None or after <= held:
        return missing
    return f"sequences {held + 1} to {after}; this site's storage had them, or they would be there, and it ends at {held}"


async def _remote_log_mark(site: Site, state: PairState | None) -> int | None:
    """Marks the log of the active's epoch, on this site's own DFS."""
    if state is None or state.active in (None, site.site):
        return None
    return await _seen(site.remote_log_mark.look(state.epoch))


async def _open_leases(site: Site) -> int | None:
    dfs = site.parts.own_dfs

    async def look() -> int:
        paths = await segments_below(dfs, site.layout, site.epoch + 1)
        closed = await asyncio.gather(*(dfs.is_closed(path) for path in paths[-LOOKED_AT_MAX:]))
        return closed.count(False)

    return await _seen(look())


async def _free(site: Site) -> int | None:
    """A disk that hangs holds up no check."""
    return None if site.parts.free_bytes is None else await _seen(site.parts.free_bytes())
