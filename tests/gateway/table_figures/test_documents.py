"""A site says of a table at the other one only what that one answered."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.table_figures.documents import UNKNOWN_SIZE, OtherTables, TableHeld, TablesHeld, TableSizeDocument, size_document
from storage.engine import TableSize
from storage.rows.schema import parse_table
from tests.gateway.door_client import FLIGHTS

TABLE = replace(parse_table(FLIGHTS), id=7, revision=3)
SIZE = TableSizeDocument(5, "counted", 50, None, 0.1)


@pytest.mark.parametrize(("held", "schema", "revision"), [
    (TablesHeld("b", False, False, [TableHeld(7, 3)]), "same", 3),
    (TablesHeld("b", False, False, [TableHeld(7, 2)]), "behind", 2),
    (TablesHeld("b", False, False, [TableHeld(7, 4)]), "ahead", 4),
    (TablesHeld("b", False, False, [TableHeld(8, 3)]), "absent", None),
    (TablesHeld("b", False, True, [TableHeld(8, 3)]), "unknown", None),  # it may be among those that were left out
    (TablesHeld("b", True, False, []), "loading", None),
    (TablesHeld("b", True, False, [TableHeld(7, 3)]), "loading", 3),  # its rows are no prefix, whatever its schema is
    (None, "unknown", None),
])
def test_how_a_table_stands(held: TablesHeld | None, schema: str, revision: int | None) -> None:
    found = OtherTables("b", held, "" if held else "site b does not answer").of(TABLE)
    assert (found.site, found.schema, found.revision, found.size) == ("b", schema, revision, UNKNOWN_SIZE)
    assert found.error == (None if held else "site b does not answer")


def test_the_size_there_and_a_refused_change_come_along() -> None:
    found = OtherTables("b", TablesHeld("b", False, False, [TableHeld(7, 2, SIZE, "column v: no")])).of(TABLE)
    assert (found.size, found.error) == (SIZE, "column v: no")


def test_a_size_there_is_as_old_as_the_answer_makes_it() -> None:
    held = TablesHeld("b", False, False, [TableHeld(7, 3, SIZE)])
    assert OtherTables("b", held, "site b does not answer", 60.0).of(TABLE).size.age_s == 60.1


def test_a_number_says_whether_it_was_counted() -> None:
    assert size_document(TableSize(5, True, 50), 0.1) == SIZE
    assert size_document(TableSize(1000, False, 5000, 8192), 1.0) == TableSizeDocument(1000, "estimated", 5000, 8192, 1.0)
    assert size_document(TableSize(None, False, None), -1.0) == TableSizeDocument(None, "unknown", None, None, 0.0)
