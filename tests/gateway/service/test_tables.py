"""Tables at each kind of site: a standby answers of its own prefix, and the active under a valid lease only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.service.catalog import Catalog
from gateway.service.serving import Serving
from gateway.service.tables import TableSettings, TablesService
from storage.log.record import Record, RecordKind
from switchover.roles.table import Role
from tests.gateway.dict_service import DictService
from twinlog.errors import Conflict, NotActive, NotFound, TwinlogError, Unavailable

BODY = {"name": "t", "columns": [{"name": "k", "type": "int64"}], "primary_key": ["k"]}
OTHER_SHAPE = {**BODY, "columns": [{"name": "k", "type": "string"}]}


class At:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


class Rig:
    """A site that holds the table `t`, as the active of epoch 3 or as a standby; its lease ends at 101 s."""

    def __init__(self, catalog: Catalog, engine: Any) -> None:
        self.clock: Any = At()
        self.is_prefix = True
        self.serving = Serving(self._refused, lambda: self.is_prefix)
        self.epoch: Any = SimpleNamespace(epoch=3, lease=SimpleNamespace(valid_at=lambda now_s: now_s < 101.0))
        self.tables = TablesService(
            self.serving, catalog, engine=engine, try_change=self._try_change, clock=self.clock, deadline_s=5.0,
            settings=TableSettings(),
        )

    def _refused(self, is_write: bool) -> TwinlogError:
        return NotActive("ask the active")

    async def _try_change(self, name: str, table_id: int, schema: bytes | None) -> None:
        raise AssertionError("nothing is to be changed here")


@pytest.fixture
async def rig() -> Rig:
    site = DictService()
    await site.tables.create(BODY)
    await site.apply([Record(RecordKind.NOOP)])
    return Rig(site.catalog, site.engine)


def test_a_standby_knows_the_tables_of_its_prefix_and_asks_the_active_for_others(rig: Rig) -> None:
    rig.serving.set(Role.STANDBY, None)
    assert rig.tables.get("t").name == "t"
    with pytest.raises(NotActive):
        rig.tables.get("just made")
    rig.is_prefix = False
    with pytest.raises(NotActive):
        rig.tables.get("t")


def test_an_active_knows_all_tables(rig: Rig) -> None:
    rig.serving.set(Role.ACTIVE, rig.epoch)
    assert rig.tables.get("t").name == "t"
    with pytest.raises(NotFound):
        rig.tables.get("no such table")


def test_a_closed_site_tells_of_none(rig: Rig) -> None:
    rig.serving.set(Role.CLOSED, None)
    with pytest.raises(NotActive):
        rig.tables.get("t")


async def test_what_is_there_already_is_answered_under_a_valid_lease_only(rig: Rig) -> None:
    """Another active may have dropped it since."""
    rig.serving.set(Role.ACTIVE, rig.epoch)
    found, made = await rig.tables.create(BODY)
    assert (found.name, made) == ("t", False)
    with pytest.raises(Conflict, match="exists with another shape"):
        await rig.tables.create(OTHER_SHAPE)
    rig.clock.now_s = 101.0
    for body in (BODY, OTHER_SHAPE):
        with pytest.raises(Unavailable, match="cannot prove"):
            await rig.tables.create(body)
