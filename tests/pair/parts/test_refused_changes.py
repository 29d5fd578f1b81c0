"""A schema change that the database of one site refuses: it is found out before it is logged, and by whom is said.

Where the trial could not say so, the site stands at the change, and `twinlog log skip` lets it go on. A row that is refused
is found out when it is applied: the site stands at it until somebody mends the database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.service.documents import ServingDocument
from gateway.service.tables import TableSettings
from gateway.site.serving_facts import site_condition
from storage.engine import RefusedChange, StorageEngine
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.rows.schema import decode_schema
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, put, site
from tests.storage.engines.sql.rig import a_database, postgres
from twinlog.errors import InvalidInput, OutcomeUnknown, Refused, Unavailable

DROP_V = {"drop": ["v"], "add": [{"name": "w", "type": "string"}]}


class Refusing:
    """A pair of which one site, `name`, keeps its rows in the PostgreSQL database `database`."""

    def __init__(self, pair: Pair, name: str, database: str) -> None:
        self.pair, self.name, self.database = pair, name, database

    def person(self, statement: str) -> None:
        """Somebody with psql does this."""
        with postgres().connect(self.database) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def reading(self) -> Any:
        """Somebody with psql has read the table in a transaction that stays open."""
        with psycopg.connect(postgres().url(self.database).replace("postgresql+psycopg", "postgresql")) as connection:
            connection.execute("SELECT * FROM t")
            yield

    async def alter(self, change: dict[str, Any]) -> None:
        await self.pair.running["a"].service.tables.alter("t", change)

    async def check(self) -> None:
        """Both sites hold the same tables and rows."""
        await self.pair.until(lambda: caught_up(self.pair, "a", "b"))
        one, other = (site(self.pair, name).parts.engine for name in "ab")
        assert one.applied.schemas() == other.applied.schemas()
        for table in one.applied.schemas():
            found = await one.scan(table, None, None, reverse=False, limit=1000)
            assert found == await other.scan(table, None, None, reverse=False, limit=1000)


@pytest.fixture(params=["a", "b"], ids=["the active's", "the standby's"])
async def refusing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Refusing]:
    pair = Pair(tmp_path)
    with a_database() as database:
        async def open_sql(_: Path) -> StorageEngine:
            return await SqlEngine.open(SqlSettings(postgres().url(database), "test", request.param, lock_wait_s=2.0))

        pair.engines[request.param] = open_sql
        try:
            for name in "ab":
                await pair.start(name)
            await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
            await pair.running["a"].service.tables.create(TABLE)
            await put(pair, "a", 1, "one")
            await pair.until(lambda: caught_up(pair, "a", "b"))
            yield Refusing(pair, request.param, database)
        finally:
            await pair.stop_all()


async def test_what_a_database_refuses_is_not_logged(refusing: Refusing) -> None:
    refusing.person("CREATE VIEW mine AS SELECT v FROM t")
    before = site(refusing.pair, "a").parts.engine.applied.schemas()
    with pytest.raises(InvalidInput, match=f"storage of site {refusing.name} refuses .*view mine depends") as raised:
        await refusing.alter(DROP_V)
    assert raised.value.fields["site"] == refusing.name
    assert site(refusing.pair, "a").parts.engine.applied.schemas() == before
    await put(refusing.pair, "a", 2, "two")
    await refusing.check()
    assert (refusing.pair.role("a"), refusing.pair.role("b")) == ("ACTIVE", "STANDBY")
    refusing.person("DROP VIEW mine")
    await refusing.alter(DROP_V)
    await refusing.check()


async def test_a_dropped_table_that_somebody_sees_is_kept_and_holds_no_other_up(refusing: Refusing) -> None:
    """Its rows cannot go as long as a database refuses that; those of the others go when their time is over."""
    tables, engine = refusing.pair.running["a"].service.tables, site(refusing.pair, "a").parts.engine
    refusing.person("CREATE VIEW mine AS SELECT v FROM t")
    for name in ("before", "t", "after"):
        if name != "t":
            await tables.create({**TABLE, "name": name})
        await tables.drop(name, confirm=name)
    service = site(refusing.pair, "a").tables
    service._settings = TableSettings(drop_kept_s=0)
    with pytest.raises(InvalidInput, match=f"site {refusing.name} refuses .*view mine depends"):
        await service.purge_dropped()
    assert [decode_schema(schema).name.split("~")[0] for schema in engine.applied.schemas().values()] == ["t"]
    refusing.person("DROP VIEW mine")
    await service.purge_dropped()
    assert engine.applied.schemas() == {}
    await refusing.check()


async def test_a_lock_that_passes_is_no_refusal(refusing: Refusing) -> None:
    """At the active the client is asked to try again, and nothing is logged; the standby waits for its lock by itself."""
    with refusing.reading():
        if refusing.name == "a":
            with pytest.raises(Unavailable, match="try again"):
                await refusing.alter(DROP_V)
            await put(refusing.pair, "a", 2, "two")
        else:
            await refusing.alter(DROP_V)
    await refusing.check()
    assert site(refusing.pair, "a").parts.engine.failure is None


async def test_a_site_that_does_not_answer_holds_nothing_up(refusing: Refusing) -> None:
    await refusing.pair.stop("b")
    await refusing.alter(DROP_V)
    await refusing.pair.start("b")
    await refusing.check()


async def _never_refused(name: str, table: int, schema: bytes | None) -> None:
    """A trial that finds nothing: what stands in the way came a moment later."""


async def refused_in_the_log(refusing: Refusing, monkeypatch: pytest.MonkeyPatch) -> RefusedChange:
    """The site stands at a change that is in the log for good."""
    pair = refusing.pair
    monkeypatch.setattr(pair.running["a"].service.tables, "_try_change", _never_refused)
    refusing.person("CREATE VIEW mine AS SELECT v FROM t")
    if refusing.name == "a":
        with pytest.raises(OutcomeUnknown):
            await refusing.alter(DROP_V)
    else:
        await refusing.alter(DROP_V)
    engine = site(pair, refusing.name).parts.engine
    await pair.until(lambda: engine.refused is not None)
    assert engine.refused is not None
    return engine.refused


def skip(pair: Pair, name: str, change: RefusedChange) -> Any:
    return pair.operate(name, "skip", to=name, epoch=change.epoch, seq=change.seq, reason="nobody knows whose view it is")


async def test_a_change_in_the_log_that_a_database_refuses_is_skipped_by_command(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, name = refusing.pair, refusing.name
    change = await refused_in_the_log(refusing, monkeypatch)
    command = f"twinlog log skip {name} --epoch {change.epoch} --seq {change.seq}"
    await pair.until(lambda: command in (site(pair, name).waiting_for or ""))
    assert "twinlog log skip" in (site(pair, name).takeover_blocker() or "")
    with pytest.raises(Refused, match=f"stands at sequence {change.seq} "):
        await skip(pair, name, change._replace(seq=change.seq + 1))
    with pytest.raises(Refused, match="runs at site"):
        await pair.running["b" if name == "a" else "a"].operations.start("skip", name, {}, False, "test")
    ended = await skip(pair, name, change)
    assert ended.state == "succeeded"
    assert "view mine depends" in str(ended.steps[0].detail), "the operations trail has the evidence"
    await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
    await refusing.check()
    await pair.until(lambda: site(pair, name).waiting_for is None)
    with pytest.raises(Refused, match="nothing to skip"):
        await skip(pair, name, change)
    await pair.crash(name)
    await pair.start(name)
    await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
    await pair.until(lambda: pair.running["b"].operations.running_id is None)
    assert (await pair.operate("b", "switchover", to="b")).state == "succeeded"
    tables = pair.running["b"].service.tables
    assert [column.name for column in tables.get("t").columns] == ["k", "w"]
    refusing.person("DROP VIEW mine")
    await tables.alter("t", {"add": [{"name": "x", "type": "int32"}]})
    await refusing.check()


async def test_a_database_that_takes_the_change_after_all_needs_no_command(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await refused_in_the_log(refusing, monkeypatch)
    refusing.person("DROP VIEW mine")
    await refusing.pair.until(lambda: refusing.pair.role("a") == "ACTIVE" and refusing.pair.role("b") == "STANDBY")
    await refusing.check()
    assert site(refusing.pair, refusing.name).parts.engine.refused is None


TRIGGER = """
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.k = 5 THEN RAISE EXCEPTION 'not five'; END IF;
RETURN NEW; END $$; CREATE TRIGGER no BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION no()
"""


async def test_a_row_that_a_database_refuses_is_on_every_screen_until_somebody_mends_it(refusing: Refusing) -> None:
    """The table is named, and the site does not seem to be whole whenever its storage was just opened anew."""
    pair, name = refusing.pair, refusing.name
    refusing.person(TRIGGER)
    if name == "a":
        with pytest.raises(OutcomeUnknown):
            await put(pair, "a", 5, "five")
    else:
        await put(pair, "a", 5, "five")
    mine = site(pair, name)
    await pair.until(lambda: mine.parts.engine.failure is not None)
    shown: list[ServingDocument] = []
    opened: list[int] = []
    reopen = mine.parts.engine.reopen

    async def counted() -> None:
        await reopen()
        opened.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mine.parts.engine, "reopen", counted)

        def looked() -> bool:
            shown.append(site_condition(mine).serving)
            return len(opened) >= 4

        await pair.until(looked)
    assert not any(one.follows or one.reads for one in shown)
    assert all("refuses rows of its table 't': not five" in str(one.why) for one in shown)
    assert name == "a" or "refuses rows of its table 't'" in (mine.takeover_blocker() or "")
    refusing.person("DROP TRIGGER no ON t")
    await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
    await refusing.check()
    await pair.until(lambda: site_condition(mine).serving.why is None)
