"""The view *Tables*: one page of many, and what it says of each table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.access.caller import ANONYMOUS
from gateway.audits.notes import AuditRun
from gateway.table_figures.documents import OtherTableDocument, OtherTables, TableHeld, TablesHeld, TableSizeDocument
from gateway.ui.views import table_size
from gateway.ui.views.tables import TABLES_SHOWN, table_rows, tables_found
from storage.rows.schema import parse_table
from tests.gateway.door_client import FLIGHTS

COUNTED = TableSizeDocument(1234, "counted", 2_000_000, None, 0.2)
ESTIMATED = TableSizeDocument(120_000, "estimated", 29_000_000, 41_000_000, 12.0)
UNKNOWN = TableSizeDocument(None, "unknown", None, None, 0.0)
AT = datetime(2013, 1, 1, 5, 1, tzinfo=UTC)
RUN = AuditRun(
    id="1", job="compare", started_at=AT, finished_at=AT, outcome="good", barrier=None, differences=0, tables=["flights"], by=""
)


def test_of_ten_thousand_tables_only_one_page_is_looked_at() -> None:
    flights = parse_table(FLIGHTS)
    every = [replace(flights, name=f"table{number}") for number in range(10_000)]
    page = tables_found(every, ANONYMOUS, "", 2)
    assert (len(page.tables), page.tables[0].name, page.found, page.pages) == (
        TABLES_SHOWN, f"table{TABLES_SHOWN}", 10_000, 50
    )


def test_a_line_says_what_is_known_and_what_is_not() -> None:
    flights = replace(parse_table(FLIGHTS), id=7, revision=3)
    planes = replace(flights, id=8, name="planes")
    other = OtherTables("b", TablesHeld("b", False, False, [TableHeld(7, 3)]))
    one, two = table_rows([flights, planes], ANONYMOUS, {7: ESTIMATED}, other, RUN)
    assert (one.rows, one.bytes, one.revision, one.other, one.level) == (
        "about 120,000", "about 28 MiB", 3, "site b has the same", ""
    )
    assert one.compared == "equal at 2013-01-01 05:01:00"
    assert (two.rows, two.bytes, two.other, two.level, two.compared) == (
        "unknown", "unknown", "site b does not have the table", "info", "no run is known here"
    )


@pytest.mark.parametrize(("size", "text"), [
    (COUNTED, "1,234 rows, 1.9 MiB of keys and values (counted now)"),
    (replace(COUNTED, rows=1), "1 row, 1.9 MiB of keys and values (counted now)"),
    (
        ESTIMATED,
        "about 120,000 rows, about 28 MiB of keys and values, 39.1 MiB on the disk of its database, with indexes "
        "(from a sample 12 s ago)",
    ),
    (UNKNOWN, "unknown"),
    (replace(UNKNOWN, disk_bytes=8192), "unknown; 8.0 KiB on the disk of its database, with indexes"),
])
def test_what_a_site_holds_in_one_sentence(size: TableSizeDocument, text: str) -> None:
    assert table_size.holds(size) == text


@pytest.mark.parametrize(("there", "level", "text"), [
    (OtherTableDocument("b", "behind", 2), "info", "site b is still at revision 2"),
    (OtherTableDocument("b", "behind", 2, error="no"), "warn", "site b is still at revision 2: its database refuses the next"),
    (OtherTableDocument("b", "ahead", 4), "info", "site b is at revision 4 already"),
    (OtherTableDocument("b", "loading", 3), "info", "base data of site b is on its way"),
    (OtherTableDocument("b", "unknown"), "unknown", "unknown"),
])
def test_how_the_schema_stands_at_the_other_site(there: OtherTableDocument, level: str, text: str) -> None:
    assert (table_size.standing(there), table_size.level(there)) == (text, level)


@pytest.mark.parametrize(("changes", "text"), [
    ({"outcome": "bad", "differences": 3}, "at 2013-01-01 05:01:00: its audit found differences"),
    ({"outcome": "failed"}, "at 2013-01-01 05:01:00: its audit failed"),
])
def test_what_the_last_comparison_found(changes: dict[str, Any], text: str) -> None:
    assert table_size.comparison(replace(RUN, **changes)) == text
