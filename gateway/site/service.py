"""A site's ports, as the API is given them: each one is the part of the site that answers, with nothing in between."""

from __future__ import annotations

from gateway.service.port import SiteService
from gateway.site.cluster_document import ClusterView
from gateway.site.operations import SiteOperations
from gateway.site.peer_api import PeerApi
from gateway.site.site import Site


def site_service(site: Site, operations: SiteOperations) -> SiteService:
    return SiteService(
        site=site.site, rows=site.rows, tables=site.tables, cluster=ClusterView(site, lambda: operations.running_id),
        operations=operations, barriers=site.barrier_calls, audits=site.audits, peer_call=PeerApi(site).call_bytes,
    )
