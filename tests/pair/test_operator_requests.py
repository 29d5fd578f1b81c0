"""Requests of an operator to a pair: keys that make a request one, checks that both sites answer, the loss that is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.log.record import RequestMark
from switchover.preflight.preflight import ChecksDocument
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, coordinator_value, open_pair, put, site
from twinlog.errors import Conflict, InvalidInput, NotFound, Refused
from twinlog.operation_ids import operation_of_key

OTHER_TABLE = {**TABLE, "name": "other"}
CHANGE = {"add": [{"name": "extra", "type": "int32"}]}


def mark(key: str, body: bytes = b"") -> RequestMark:
    return RequestMark(key, body, 1)


def checks(found: ChecksDocument) -> dict[str, str]:
    return {check.id: check.status for check in found.checks}


async def test_a_change_of_a_table_is_made_once_under_its_key_also_at_the_next_active(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        a = pair.running["a"].service
        made = await a.tables.create(OTHER_TABLE, mark("k1"))
        assert await a.tables.create(OTHER_TABLE, mark("k1")) == made
        assert await a.tables.create(OTHER_TABLE, mark("k2")) == (made[0], False), "another request: it exists"
        altered = await a.tables.alter("other", CHANGE, mark("k3"))
        assert await a.tables.alter("other", CHANGE, mark("k3")) == altered
        with pytest.raises(InvalidInput, match="different request"):
            await a.tables.alter("other", CHANGE, mark("k3", b"another body"))
        await a.tables.drop("other", mark("k4"))
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        b = pair.running["b"].service
        await b.tables.drop("other", mark("k4"))
        with pytest.raises(NotFound):
            await b.tables.drop("other", mark("k5"))
        with pytest.raises(Conflict, match="dropped since"):
            await b.tables.create(OTHER_TABLE, mark("k1"))


async def test_an_operation_is_begun_once_under_its_key_whatever_has_become_of_the_site(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        a = pair.running["a"].operations
        first = await a.start("degrade", None, {}, False, "ann", "k1")
        assert first.id == operation_of_key("k1")
        await a._executor.wait(first.id)
        again = await a.start("degrade", None, {}, False, "bob", "k1")
        assert (again.id, again.actor, again.state) == (first.id, "ann", "succeeded")
        with pytest.raises(Conflict, match="another request"):
            await a.start("resync", None, {}, False, "ann", "k1")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        assert (await a.start("degrade", None, {}, False, "ann", "k1")).state == "succeeded", "it is no longer the active"
        assert len([one for one in await a.all() if one.kind == "degrade"]) == 1


async def test_the_checks_look_at_both_sites_and_leave_nothing_behind(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        before = await pair.running["b"].operations.all()
        found = await pair.running["b"].service.operations.checks("switchover")
        assert {name for name, status in checks(found).items() if status != "ok"} == {"wal.disk-space"}, "nobody measures it"
        assert found.ok
        assert checks(await pair.running["a"].service.operations.checks("switchover"))["pair.active"] == "failed"
        pair.cut = True
        silent = checks(await pair.running["b"].service.operations.checks("switchover"))
        assert (silent["peer.answers"], silent["clock.skew"]) == ("failed", "unknown")
        pair.faults["b"].coordinator_down = True
        blind = await pair.running["b"].service.operations.checks("failover")
        assert (blind.ok, checks(blind)["coordinator.answers"]) == (False, "failed")
        with pytest.raises(InvalidInput, match="there are no checks for"):
            await pair.running["b"].service.operations.checks("promotion")
        assert await pair.running["b"].operations.all() == before


async def lose_writes(pair: Pair, count: int) -> None:
    """a acknowledges `count` rows that b never sees, tells the coordinator so, and dies."""
    await pair.until(lambda: caught_up(pair, "a", "b"))
    await pair.operate("a", "degrade")
    await pair.until(lambda: caught_up(pair, "a", "b"))
    pair.cut = True
    for number in range(count):
        await put(pair, "a", number, "x")
    beats, committed = (await coordinator_value(pair, "a")).lease_beats, site(pair, "a").parts.engine.applied.seq
    for _ in range(100):
        state = await coordinator_value(pair, "a")
        if state.lease_beats > beats and state.beat is not None and state.beat.committed_seq >= committed:
            break
        await site(pair, "a").parts.clock.sleep(0.02)
    await pair.crash("a")


async def test_a_failover_that_loses_begins_only_with_the_count_that_is_so(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await lose_writes(pair, 3)
        operations = pair.running["b"].operations
        before = len(await operations.all())
        for accepted in ({}, {"accept_data_loss": 2}, {"accept_data_loss": 4}, {"accept_data_loss": "unknown"}):
            with pytest.raises(Refused) as refused:
                await operations.start("failover", "b", accepted, False, "test")
            assert refused.value.fields["manifest"]["records_at_risk"] == 3
        with pytest.raises(InvalidInput):
            await operations.start("failover", "b", {"accept_data_loss": True}, False, "test")
        assert len(await operations.all()) == before, "nothing was begun"
        assert (await pair.operate("b", "failover", "b", accept_data_loss=3)).state == "succeeded"


async def test_what_an_active_that_lives_will_have_acknowledged_is_unknown(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")
        pair.cut = True
        beats = (await coordinator_value(pair, "a")).lease_beats
        while (await coordinator_value(pair, "a")).lease_beats == beats:
            await site(pair, "a").parts.clock.sleep(0.02)
        with pytest.raises(Refused, match="now shows unknown") as refused:
            await pair.running["b"].operations.start("failover", "b", {"accept_data_loss": 0}, False, "test")
        manifest: Any = refused.value.fields["manifest"]
        assert (manifest["records_at_risk"], "continues to acknowledge" in manifest["statement"]) == (None, True)
        assert (await pair.operate("b", "failover", "b", accept_data_loss="unknown")).state == "succeeded"
