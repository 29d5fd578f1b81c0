"""A site's ports, as the API is given them: each one is the part of the site that answers, with nothing in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.service.port import SiteService
from gateway.site.cluster_document import ClusterView
from gateway.site.looks import SiteLooks
from gateway.site.operations import SiteOperations
from gateway.site.peer_api import PeerApi
from gateway.site.site import Site
from remote_log.replication.messages import TrailNote


def site_service(
    site: Site, operations: SiteOperations, trail: Callable[[TrailNote], Awaitable[TrailNote]] | None = None
) -> SiteService:
    """`trail` answers the other site's calls about its audit trail."""
    looks = SiteLooks(site, operations)
    return SiteService(
        site=site.site, rows=site.rows, tables=site.tables,
        cluster=ClusterView(site, lambda: operations.running_id, lambda: operations.ended, lambda: operations.lasted),
        operations=operations, barriers=site.barrier_calls, backups=site.backups, audits=site.audits, looks=looks,
        peer_call=PeerApi(site, trail, looks.answer).call_bytes,
    )
