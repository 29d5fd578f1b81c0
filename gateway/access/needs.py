"""The one table of the grant that each route needs. A route without a line here is answered to nobody.

What always holds: a need is judged by the method and the path as they stand in the request line, before a byte of a body is
read, and without a look at whether there is such a table; a role does not include another one. docs/security.md explains the
table.
This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.access.caller import Caller, forbidden
from gateway.access.grants import ADMIN, AUDITOR, METRICS, OF_TABLES, OPERATOR, READER, REPLICATOR, WRITER
from twinlog.errors import Forbidden

Route = tuple[str, str]  # method, path with its parameters in braces


@dataclass(frozen=True, slots=True)
class Need:
    """`roles`: of each of these groups one. `scope`: open (nobody has to say who they are), identity (any caller), pair, table
    (that of the path), some_table (on whichever table: the handler judges each), all_tables (what is of tables, on every one),
    or peer (the other site)."""

    scope: str
    roles: tuple[tuple[str, ...], ...] = ()

    def missing(self, caller: Caller, table: str) -> Forbidden | None:
        """The refusal, where a grant is missing. `table` is percent-decoded; empty where the path names none."""
        grants = caller.grants
        if self.scope == "peer":
            return None if caller.is_site else forbidden(REPLICATOR)
        for group in self.roles:
            if self.scope == "table":
                held = any(grants.on(role, table) for role in group)
            elif self.scope == "some_table":
                held = any(grants.anywhere(role) or role in grants.pair for role in group)
            elif self.scope == "all_tables":
                held = any(grants.on(role, "*") or role in grants.pair for role in group)
            else:
                held = any(role in grants.pair for role in group)
            if not held:
                every = self.scope == "all_tables" and group[0] in OF_TABLES
                return forbidden(f"{group[0]}:{'*' if every else table[:128]}" if every or self.scope == "table" else group[0])
        return None


OPEN, IDENTITY, PEER = Need("open"), Need("identity"), Need("peer")


def _table(*roles: str) -> Need:
    """Every one of these roles on the table of the path."""
    return Need("table", tuple((role,) for role in roles))


def _pair(*roles: str) -> Need:
    """Any of these roles."""
    return Need("pair", (roles,))


_TABLE, _ROW = "/v1/tables/{table}", "/v1/tables/{table}/rows/{key}"
_OPERATION = "/v1/operations/{operation_id}"

NEEDS: dict[Route, Need] = {
    ("GET", "/health/live"): OPEN,
    ("GET", "/health/ready"): OPEN,
    ("GET", "/health/primary"): OPEN,
    ("GET", "/health/standby"): OPEN,
    ("GET", "/metrics"): _pair(METRICS),
    ("GET", "/"): IDENTITY,
    ("GET", "/docs"): IDENTITY,
    ("GET", "/openapi.json"): IDENTITY,
    ("GET", "/v1/cluster"): IDENTITY,
    ("GET", "/v1/cluster/events"): IDENTITY,
    ("GET", "/v1/receipts/{receipt}"): Need("some_table", ((READER, WRITER, ADMIN),)),
    ("POST", "/v1/tables"): Need("some_table", ((ADMIN,),)),  # on the table that the body names
    ("GET", "/v1/tables"): Need("some_table", ((READER, WRITER, ADMIN),)),  # shows those that the caller may know
    ("GET", _TABLE): Need("table", ((READER, WRITER, ADMIN),)),
    ("GET", f"{_TABLE}/figures"): Need("table", ((READER, ADMIN),)),  # how many rows there are says something of them
    ("PATCH", _TABLE): _table(ADMIN),
    ("DELETE", _TABLE): _table(ADMIN),
    ("POST", f"{_TABLE}:restore"): _table(ADMIN),
    ("GET", f"{_TABLE}/rows"): _table(READER),
    ("DELETE", f"{_TABLE}/scans/{{page_token}}"): _table(READER),
    ("POST", f"{_TABLE}/rows:mutate"): _table(WRITER),
    ("GET", _ROW): _table(READER),
    ("PUT", _ROW): _table(WRITER),
    ("PATCH", _ROW): _table(WRITER),
    ("DELETE", _ROW): _table(WRITER),
    ("POST", f"{_ROW}:check"): _table(WRITER, READER),  # whether a condition holds says what the row has
    ("GET", "/v1/checks"): _pair(OPERATOR, AUDITOR),
    ("GET", "/v1/view"): _pair(OPERATOR, AUDITOR, METRICS),
    ("POST", "/v1/operations"): _pair(OPERATOR),
    ("GET", "/v1/operations"): _pair(OPERATOR, AUDITOR),
    ("GET", _OPERATION): _pair(OPERATOR, AUDITOR),
    ("GET", f"{_OPERATION}/events"): _pair(OPERATOR, AUDITOR),
    ("POST", f"{_OPERATION}:abort"): _pair(OPERATOR),
    ("POST", f"{_OPERATION}:resume"): _pair(OPERATOR),
    ("POST", "/v1/configuration:reload"): _pair(OPERATOR),
    ("POST", "/v1/configuration:log-level"): _pair(OPERATOR),
    ("GET", "/v1/trail"): _pair(AUDITOR),
    ("POST", "/v1/barriers"): _pair(AUDITOR),
    ("GET", "/v1/barriers"): _pair(AUDITOR),
    ("GET", "/v1/barriers/{name}"): _pair(AUDITOR),
    ("DELETE", "/v1/barriers/{name}"): _pair(AUDITOR),
    ("POST", "/v1/backups/{target}:base"): Need("all_tables", ((AUDITOR,), (READER,))),
    ("POST", "/v1/backups/{target}:log"): Need("all_tables", ((AUDITOR,), (READER,))),
    ("POST", "/v1/backups/{target}:kept"): Need("all_tables", ((AUDITOR,), (READER,))),
    ("POST", "/v1/backups/{target}:complete"): Need("all_tables", ((AUDITOR,), (READER,))),
    ("DELETE", "/v1/backups/{target}"): Need("all_tables", ((AUDITOR,), (READER,))),
    ("POST", "/v1/audits"): _pair(AUDITOR),
    ("GET", "/v1/audits/last"): _pair(AUDITOR, OPERATOR),
    ("GET", "/v1/audits"): _pair(AUDITOR, OPERATOR),
    ("GET", "/v1/audits/{audit}"): _pair(AUDITOR, OPERATOR),  # keys in its report besides need `reader` on their table
    ("PUT", "/v1/audits/{audit}/report"): _pair(AUDITOR),
    ("PUT", "/v1/audits/{audit}/progress"): _pair(AUDITOR),
    ("POST", "/internal/v1/peer/{method}"): PEER,
    ("GET", "/ui"): IDENTITY,  # it shows each caller what the routes above would answer
    ("GET", "/ui/events"): IDENTITY,
    ("GET", "/ui/login"): OPEN,
    ("POST", "/ui/login"): OPEN,
    ("GET", "/ui/login/oidc"): OPEN,  # leads to the issuer
    ("GET", "/ui/login/oidc/leave"): OPEN,  # and to the log-out there
    ("GET", "/ui/login/callback"): OPEN,  # judged by what the issuer answered (gateway/access/log_in)
    ("POST", "/ui/logout"): OPEN,
    ("GET", "/ui/static/{file}"): OPEN,
    ("GET", "/ui/change"): _pair(OPERATOR, AUDITOR),
    ("POST", "/ui/change"): _pair(OPERATOR),
    ("POST", "/ui/operation"): _pair(OPERATOR),
    ("GET", "/ui/history"): _pair(OPERATOR, AUDITOR),
    ("GET", "/ui/tables"): Need("some_table", ((READER, WRITER, ADMIN),)),
    ("GET", "/ui/tables/{table}"): Need("table", ((READER, WRITER, ADMIN),)),
    ("GET", "/ui/audits"): _pair(AUDITOR, OPERATOR),
    ("GET", "/ui/audits/{audit}"): _pair(AUDITOR, OPERATOR),  # as the API's: keys need `reader` on their table
    ("GET", "/ui/log"): _pair(OPERATOR, AUDITOR),
}
