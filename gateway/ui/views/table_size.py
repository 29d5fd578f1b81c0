"""The figures of a table for the views of tables, in the words of `twinlog tables --figures`.

What always holds: a caller sees of them what the API would answer.
"""

from __future__ import annotations

from msgspec import to_builtins

from gateway.access.caller import Caller
from gateway.access.needs import NEEDS
from gateway.audits.notes import AuditRun
from gateway.table_figures.documents import OtherTableDocument, TableFiguresDocument, TableSizeDocument
from gateway.ui import words
from twinlog.cli.table_figures import bytes_words, held_words, rows_words, schema_words, standing_words

NOT_GRANTED = "not granted to you"


def is_granted(caller: Caller, table: str) -> bool:
    """Returns whether the API would say to this caller how much a table holds."""
    return NEEDS["GET", "/v1/tables/{table}/figures"].missing(caller, table) is None


def rows(size: TableSizeDocument) -> str:
    return rows_words(to_builtins(size))


def content(size: TableSizeDocument) -> str:
    return bytes_words(to_builtins(size))


def holds(size: TableSizeDocument) -> str:
    return held_words(to_builtins(size))


def standing(there: OtherTableDocument) -> str:
    return standing_words(to_builtins(there))


def schema(figures: TableFiguresDocument) -> str:
    return schema_words(figures.revision, to_builtins(figures.other))


def level(there: OtherTableDocument) -> str:
    """The mark: a standby that is behind for a moment is no warning, and a database that refuses a change is one."""
    if there.schema == "same":
        return ""
    return "unknown" if there.schema == "unknown" else "warn" if there.error else "info"


def comparison(run: AuditRun | None) -> str:
    """Says what the last comparison of both sites found, as far as it names tables."""
    if run is None:
        return "no run is known here"
    at = words.moment(round(run.finished_at.timestamp() * 1000))
    match run.outcome:
        case "good":
            return f"equal at {at}"
        case "bad":
            return f"at {at}: its audit found differences"
        case "failed":
            return f"at {at}: its audit failed"
