"""A schema stays the same object until it changes, so that a write may compare it by identity; a drop under way bars writes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gateway.service.catalog import Catalog
from storage.engine import EngineState, Table, TableSet
from storage.rows.schema import encode_schema, parse_table
from tests.gateway.dict_service import DictService
from twinlog.errors import Conflict

COLUMNS = [{"name": "k", "type": "int64"}]


async def test_a_schema_stays_the_same_object_until_it_changes() -> None:
    site = DictService()
    first, _ = await site.tables.create({"name": "first", "columns": COLUMNS, "primary_key": ["k"]})
    await site.tables.create({"name": "second", "columns": COLUMNS, "primary_key": ["k"]})
    assert site.catalog.get("first") is first is site.catalog.writable[first.id]
    changed = await site.tables.alter("first", {"add": [{"name": "v", "type": "string"}]})
    assert changed is not first
    assert site.catalog.writable[first.id] is changed
    with pytest.raises(Conflict, match="changed"):
        site.catalog.check_current(first)


async def test_a_table_whose_drop_is_under_way_is_not_writable_also_after_another_change() -> None:
    site = DictService()
    table, _ = await site.tables.create({"name": "t", "columns": COLUMNS, "primary_key": ["k"]})
    catalog = Catalog(site.engine)
    catalog.drop_begins(table.id)
    catalog.reload()
    assert catalog.writable == {}
    with pytest.raises(Conflict, match="being dropped"):
        catalog.check_current(table)
    catalog.drop_ended()
    catalog.check_current(table)
    assert list(catalog.writable) == [table.id]


async def test_what_is_applied_reads_no_schema_again_however_many_tables_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts work: a site with 10,000 tables would build and compare them for each frame that it applies."""
    tables = TableSet({number: Table(encode_schema(parse_table(_body(number), number)), 0, 0) for number in range(1, 101)})
    engine = SimpleNamespace(applied=EngineState(seq=1, tables=tables))
    catalog = Catalog(engine)  # type: ignore[arg-type]
    read: list[int] = []
    schemas = TableSet.schemas
    monkeypatch.setattr(TableSet, "schemas", lambda self: read.append(1) or schemas(self))
    for seq in range(2, 1_000):
        engine.applied = EngineState(seq=seq, tables=tables)
        catalog.applied()
    assert read == []
    first = catalog.get("t1")
    engine.applied = EngineState(seq=1_000, tables=TableSet(dict(tables.by_id)))  # equal ones, as after a rejoin
    catalog.applied()
    assert catalog.get("t1") is first
    engine.applied = EngineState(seq=1_001, tables=tables.changed(1, None))
    catalog.applied()
    assert catalog.find("t1") is None
    assert [table.name for table in catalog.all()] == sorted(f"t{number}" for number in range(2, 101))


def _body(number: int) -> dict[str, object]:
    return {"name": f"t{number}", "columns": COLUMNS, "primary_key": ["k"]}
