"""Makes the values that the templates of *Audits* are drawn with: for a page, and for its event stream.

What always holds: both ask for the same, with the grants of the same caller.
"""

from __future__ import annotations

from typing import Any

from gateway.access.grants import OF_TABLES, READER, Grants
from gateway.service.port import SiteService
from gateway.ui.views.audit import result_shown, running_shown
from gateway.ui.views.audits import audits_page


def audits_values(service: SiteService) -> dict[str, Any]:
    audits, now_ms = service.audits, service.cluster.document().now_ms
    return {"found": audits_page(audits.all(), audits.past(), audits.running.all(), service.barriers.all(), now_ms)}


def audit_values(service: SiteService, audit: str, grants: Grants) -> dict[str, Any]:
    """Raises NotFound for an audit that is not known here."""
    audits, running = service.audits, service.audits.running.get(audit)
    if running is not None:
        return {"id": audit, "running": running_shown(running), "result": None}
    result = result_shown(
        audits.run(audit), audits.report(audit), lambda table: grants.on(READER, table),
        lambda table: any(grants.on(role, table) for role in OF_TABLES), service.cluster.document().now_ms,
    )
    return {"id": audit, "running": None, "result": result}
