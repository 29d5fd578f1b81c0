"""The figures of a table in words, for the views of tables.

What always holds: what was not counted is called about so much; what nobody knows is called not known, never 0; nothing is
said of rows at the other site but what it said itself, or what an audit found.
"""

from __future__ import annotations

from gateway.access.caller import Caller
from gateway.access.needs import NEEDS
from gateway.service.audits import AuditRun
from gateway.service.table_figures import OtherTableDocument, TableSizeDocument
from gateway.ui import words

NOT_KNOWN, NOT_GRANTED = "not known", "not granted to you"


def is_granted(caller: Caller, table: str) -> bool:
    """Returns whether the API would tell this caller how much a table holds."""
    return NEEDS["GET", "/v1/tables/{table}/figures"].missing(caller, table) is None


def rows(size: TableSizeDocument) -> str:
    if size.rows is None:
        return NOT_KNOWN
    return words.number(size.rows) if size.rows_are == "counted" else f"about {words.number(size.rows)}"


def content(size: TableSizeDocument) -> str:
    """The bytes of keys and values."""
    if size.bytes is None:
        return NOT_KNOWN
    return words.size(size.bytes) if size.rows_are == "counted" else f"about {words.size(size.bytes)}"


def holds(size: TableSizeDocument) -> str:
    """One sentence about a site."""
    if size.rows is None and size.disk_bytes is None:
        return NOT_KNOWN
    said = "an unknown number of rows" if size.rows is None else f"{rows(size)} row{'' if size.rows == 1 else 's'}"
    if size.bytes is not None:
        said += f", keys and values of {content(size)}"
    if size.disk_bytes is not None:
        said += f", {words.size(size.disk_bytes)} on its disk with indexes"
    return f"{said} ({'counted' if size.rows_are == 'counted' else 'from a sample'} {words.age(size.age_s)})"


def standing(there: OtherTableDocument) -> str:
    """How the schema stands at the other site, in a few words."""
    site = f"site {there.site}"
    match there.schema:
        case "same":
            return f"{site} has it too"
        case "behind":
            return f"{site} is still at revision {there.revision}" + (": its database refuses the next" if there.error else "")
        case "ahead":
            return f"{site} is at revision {there.revision}"
        case "absent":
            return f"{site} does not have the table"
        case "loading":
            return f"base data of {site} is on its way"
        case "unknown":
            return NOT_KNOWN


def comparison(run: AuditRun | None) -> str:
    """What the last comparison of both sites found, as far as it names tables."""
    if run is None:
        return NOT_KNOWN
    at = words.moment(round(run.finished_at.timestamp() * 1000))
    match run.outcome:
        case "good":
            return f"equal at {at}"
        case "bad":
            return f"at {at}: its audit found differences"
        case "failed":
            return f"at {at}: its audit failed"
