"""A schema stays the same object until it changes, so that a write may compare it by identity; a drop under way bars writes."""

from __future__ import annotations

import pytest

from gateway.service.catalog import Catalog
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
