"""The events of the audit trail by their names, which are stable: people and programs search for them.

What always holds: docs/security.md lists every one of them (tests/gateway/trail/test_events.py).
This module is pure.
"""

from __future__ import annotations

# ---- of the trail itself
OPENED = "trail.opened"  # the first line of each file
GAP = "trail.gap"  # entries that were left out, for too many waited
# ---- of the gateway
STARTED, STOPPED = "gateway.started", "gateway.stopped"
ACCESS = "access.files"  # who is known here, at a start and at each change of the files that say it
REFUSED = "request.refused"  # 401 and 403
LOG_IN, LOG_OUT = "session.login", "session.logout"  # of the page
# ---- of role changes
ASKED = "operation.asked"  # a command that came to nothing
BEGUN, STEP, ENDED = "operation.begun", "operation.step", "operation.ended"
ABORT, RESUMED = "operation.abort", "operation.resumed"
ROLE = "role.changed"  # a step of the role table, or a change of mode
FENCES = "role.fences"  # this site has closed every log of older epochs under its writer
ROLE_CHANGE = frozenset({BEGUN, ABORT, RESUMED, ENDED, ROLE})  # what the other site's trail gets, too
# ---- of the other site
PEER_CHANGE = "peer.change"  # a role change, from its trail
PEER_HEAD = "peer.trail"  # how far its trail has come
OF_PEER = (PEER_CHANGE, PEER_HEAD)
# ---- of requests
CREATE, ALTER, DROP, RESTORE = "table.create", "table.alter", "table.drop", "table.restore"
TAKE, RELEASE = "barrier.take", "barrier.release"
BACKUP = "backup.read"  # all rows, or the log, for a backup
BACKUP_COMPLETE, BACKUP_RELEASE = "backup.complete", "backup.release"
AUDIT = "audit.note"  # what an audit or a repair did
AUDIT_REPORT = "audit.report"  # its report was kept, in place of an earlier one
RELOAD, LOG_LEVEL = "configuration.reload", "configuration.level"

EVENTS = frozenset({
    OPENED, GAP, STARTED, STOPPED, ACCESS, REFUSED, LOG_IN, LOG_OUT, ASKED, STEP, FENCES, *ROLE_CHANGE, *OF_PEER, CREATE, ALTER,
    DROP, RESTORE, TAKE, RELEASE, BACKUP, BACKUP_COMPLETE, BACKUP_RELEASE, AUDIT, AUDIT_REPORT, RELOAD, LOG_LEVEL,
})
