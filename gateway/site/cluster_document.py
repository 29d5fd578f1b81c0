"""Fills the cluster document: what `GET /v1/cluster`, the event stream and `twinlog status` show of a site and its pair.

What always holds: unknown is null, never 0; every figure of the other site carries the age of its sample.
Source: product.md 2, switchover-lessons.md (21, "misleading lag").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from gateway.epoch.commit_rule import CommitMode
from gateway.metrics.catalogue import Figures, Labelled
from gateway.service.documents import (
    ActiveSite,
    AtRisk,
    ClusterDocument,
    FormatDocument,
    RemoteLogDocument,
    ResyncDocument,
    ServingDocument,
    SiteDocument,
)
from gateway.site.metrics import replication_lag, risk_metrics, site_metrics
from gateway.site.serving_facts import lacks_base, site_condition
from gateway.site.site import Site
from remote_log.replication.shipper import PeerView
from switchover.operations.document import Lasted

ACTED_ON = ("role", "serving", "epoch", "mode", "active", "operation", "waiting_for")
CHANGE_POLL_S = 1.0


class ClusterView:
    """Implements gateway.service.port.Cluster. `running_id()` names the operation that runs here, if one does; `ended()` counts
    those that have ended, by kind and outcome; `lasted()` has the newest of each kind that succeeded."""

    def __init__(
        self, site: Site, running_id: Callable[[], str | None], ended: Callable[[], Mapping[tuple[str, str], int]] = dict,
        lasted: Callable[[], Mapping[str, Lasted]] = dict,
    ) -> None:
        self._site, self._running_id, self._ended, self._lasted = site, running_id, ended, lasted

    def document(self) -> ClusterDocument:
        return cluster_document(self._site, self._running_id())

    async def events(self) -> AsyncIterator[ClusterDocument]:
        """Yields the document at once, then at each change of what clients act on."""
        shown: tuple[object, ...] | None = None
        while True:
            self._site.changed.clear()
            document = self.document()
            acted_on = tuple(getattr(document, name) for name in ACTED_ON)
            if acted_on != shown:
                shown = acted_on
                yield document
            with suppress(TimeoutError):  # figures have no event of their own: they are compared every second
                async with asyncio.timeout(CHANGE_POLL_S):
                    await self._site.changed.wait()

    def role(self) -> str:
        return str(self._site.role)

    def serving(self) -> ServingDocument:
        return site_condition(self._site).serving

    def vouched_s(self) -> float | None:
        return self._site.vouched_s()

    def age_s(self, vouched_s: float) -> float:
        return self._site.age_s(vouched_s)

    def figures(self) -> Figures:
        site, found = self._site, {"operation_running": float(self._running_id() is not None)}
        if (resync := _resync(site)) is not None:
            found["resync_automatic"] = float(resync.automatic)
            if resync.records_left is not None:
                found["resync_records_left"] = resync.records_left
        ended: Labelled = {labels: float(count) for labels, count in self._ended().items()}
        lasted = self._lasted()
        took: Labelled = {(kind,): one.took_ms / 1000 for kind, one in lasted.items()}
        without: Labelled = {
            (kind,): one.unwritten_ms / 1000 for kind, one in lasted.items() if one.unwritten_ms is not None
        }
        of_changes = {"operations_total": ended, "operation_seconds": took, "operation_without_writes_seconds": without}
        return {**site_figures(site), **found, **of_changes}


def site_figures(site: Site) -> Figures:
    """Returns the figures of a site, with what the document says is at risk."""
    return {**site_metrics(site), **risk_metrics(site, at_risk(site))}


def cluster_document(site: Site, running_operation: str | None) -> ClusterDocument:
    epoch, engine, settings = site.active_epoch, site.parts.engine, site.settings
    committed = epoch.core.committed if epoch is not None else engine.applied.seq
    active, condition = site.active_address(), site_condition(site)
    known = site.parts.understanding
    formats = {what: FormatDocument(reads, known.writes(what)) for what, reads in known.own.formats.items()}
    return ClusterDocument(
        pair=settings.pair, site=site.site, role=site.role, reason=site.reason, waiting_for=site.waiting_for,
        serving=condition.serving, troubles=condition.troubles, dependencies=condition.dependencies,
        now_ms=site.parts.clock.wall_ms(), release=known.own.release, formats=formats, epoch=site.epoch,
        mode=site.mode, mode_detail=epoch.core.mode if epoch is not None else None, policy=settings.policy,
        active=None if active is None else ActiveSite(**active),
        sites={
            settings.site: SiteDocument(settings.http.url, engine.applied.seq, role=site.role, release=known.own.release),
            settings.peer.site: _peer(site, settings.peer.public_url),
        },
        committed_seq=committed, applied_seq=engine.applied.seq, durable_seq=engine.durable_seq,
        replication_lag=replication_lag(site), remote_log=_remote_log(site), at_risk=at_risk(site), resync=_resync(site),
        operation=running_operation, notices=site.notices(),
    )


def _view(site: Site) -> PeerView | None:
    return site.active_epoch.shipper.view if site.active_epoch is not None else None


def _age_s(site: Site, view: PeerView | None) -> float | None:
    if view is None or view.at_s is None:
        return None
    return round(site.parts.clock.monotonic_s() - view.at_s, 3)


def _peer(site: Site, url: str) -> SiteDocument:
    view, says = _view(site), site.parts.understanding.peer
    release = says.release or None if says is not None else None
    if view is None:
        return SiteDocument(url, None, state="unknown", durable_seq=None, sample_age_s=None, why=None, release=release)
    return SiteDocument(
        url, view.applied_seq, state=view.state, durable_seq=view.durable_seq, sample_age_s=_age_s(site, view),
        why=view.why or None, release=release,
    )


def _remote_log(site: Site) -> RemoteLogDocument | None:
    if site.active_epoch is None or site.active_epoch.remote is None:
        return None
    remote = site.active_epoch.remote
    return RemoteLogDocument(
        bytes=sum(segment.bytes for segment in remote.segments), segments=len(remote.segments),
        unsynced_frames=remote.unsynced().frames, trouble=remote.trouble.message if remote.trouble is not None else None,
    )


def at_risk(site: Site) -> AtRisk | None:
    """Acknowledged records that the other site may lack if this one is lost now; None when this site is not the active."""
    if site.active_epoch is None:
        return None
    core, shipper = site.active_epoch.core, site.active_epoch.shipper
    view, setback = shipper.view, shipper.setbacks.newest
    if core.mode is CommitMode.SYNC and _has_remote_log(site):
        if lacks_base(view, site.parts.wal.first_previous):
            return AtRisk(None, exact=False)
        if setback is not None and not setback.is_over:  # the remote log may have been trimmed up to there
            return AtRisk(max(0, setback.had_seq - (view.applied_seq or 0)), exact=False)
        return AtRisk(0, exact=True)
    lag = replication_lag(site)
    return AtRisk(None if lag is None else lag.records, exact=False)


def _has_remote_log(site: Site) -> bool:
    """Says whether the remote log still proves itself: one that does not answer may be gone, with what only it and this site
    hold."""
    epoch = site.active_epoch
    return epoch is not None and epoch.proof_age_s < site.settings.lease.lease_s


def _resync(site: Site) -> ResyncDocument | None:
    by_choice = site.settings.policy == "performance"
    if site.active_epoch is None or site.active_epoch.core.mode is CommitMode.SYNC or by_choice:
        return None
    modes, view = site.active_epoch.modes, _view(site)
    left = None
    if view is not None and view.durable_seq is not None and modes.catch_target:
        left = max(0, modes.catch_target - view.durable_seq)
    return ResyncDocument(site.active_epoch.auto_resync, modes.waiting_for, left)
