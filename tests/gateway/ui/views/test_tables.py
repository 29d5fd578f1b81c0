"""The view *Tables* of a pair with many tables."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.access.caller import ANONYMOUS
from gateway.ui.views import tables as room
from gateway.ui.views.tables import TABLES_SHOWN, tables_page
from storage.rows.schema import parse_table
from tests.gateway.door_client import FLIGHTS


def test_of_ten_thousand_tables_only_one_page_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    draw = room._row

    def counted(table: Any) -> Any:
        drawn.append(table.name)
        return draw(table)

    monkeypatch.setattr(room, "_row", counted)
    flights = parse_table(FLIGHTS)
    every = [replace(flights, name=f"table{number}") for number in range(10_000)]
    page = tables_page(every, ANONYMOUS, "", 2)
    assert (len(drawn), drawn[0], page.found, page.pages) == (TABLES_SHOWN, f"table{TABLES_SHOWN}", 10_000, 50)
