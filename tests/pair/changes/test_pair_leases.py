"""The read lease at its edges: what tells of stored rows without being a read, scans at a hand-over, a lapse while idle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.service.port import Condition
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, epoch, key_of, open_pair, put, rows, site
from twinlog.errors import Conflict, InvalidInput, NotActive, PreconditionFailed, TwinlogError, Unavailable


async def cut_off(pair: Pair, name: str) -> None:
    """The site reaches nothing but its clients, and its lease has run out."""
    pair.cut = True
    pair.faults[name].remote_down = pair.faults[name].coordinator_down = True
    clock = site(pair, name).parts.clock
    await pair.until(lambda: not epoch(pair, name).lease.valid_at(clock.monotonic_s()))


async def test_a_site_cut_off_tells_nothing_of_what_it_stores(tmp_path: Path) -> None:
    """A refused condition, an outcome answered again, a table that exists: each may be false since another epoch opened."""
    async with open_pair(tmp_path, deadline_s=0.3) as pair:
        await put(pair, "a", 1, "first", request="request 1")
        await cut_off(pair, "a")
        with pytest.raises(Unavailable):
            await put(pair, "a", 1, "again", op="insert")
        with pytest.raises(Unavailable):
            await put(pair, "a", 1, "again", conditions=(Condition(key_of(pair, "a", 1), version=1),))
        with pytest.raises(Unavailable):
            await put(pair, "a", 1, "first", request="request 1")
        with pytest.raises(Unavailable):
            await pair.running["a"].service.tables.create(TABLE)


async def test_conditions_and_replays_are_answered_once_the_lease_is_proved_again(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        first = await put(pair, "a", 1, "first", request="request 1")
        await cut_off(pair, "a")
        asked = [
            asyncio.ensure_future(put(pair, "a", 1, "again", op="insert")),
            asyncio.ensure_future(put(pair, "a", 1, "again", conditions=(Condition(key_of(pair, "a", 1), version=1),))),
            asyncio.ensure_future(put(pair, "a", 1, "first", request="request 1")),
        ]
        pair.cut = False
        pair.faults["a"].remote_down = pair.faults["a"].coordinator_down = False
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers[:2]} <= {Conflict, PreconditionFailed}
        assert not isinstance(answers[2], BaseException)
        assert answers[2].version == first.version, "answered from the record of the first one"
        with pytest.raises(InvalidInput):
            await pair.running["a"].service.tables.create({**TABLE, "name": ""})


async def test_a_scan_under_way_when_the_site_hands_over_is_not_answered(tmp_path: Path) -> None:
    """The next active did not wait for this site's lease, because this site said that it had stopped."""
    async with open_pair(tmp_path, lease_s=30.0) as pair:
        await put(pair, "a", 1, "old")
        service, engine = pair.running["a"].service, site(pair, "a").parts.engine
        scan, go_on, reached = engine.scan, asyncio.Event(), asyncio.Event()

        async def held(*args: Any, **options: Any) -> Any:
            found = await scan(*args, **options)
            reached.set()
            await go_on.wait()
            return found

        engine.scan = held  # type: ignore[method-assign]
        reading = asyncio.ensure_future(service.rows.scan(service.tables.get("t"), None, None, reverse=False, limit=10))
        await reached.wait()
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "succeeded", ended
        assert (await put(pair, "b", 1, "new")).mode == "sync"
        go_on.set()
        with pytest.raises(TwinlogError) as refused:
            await reading
        assert isinstance(refused.value, Unavailable | NotActive)


async def test_a_lease_that_lapsed_while_nothing_was_written_is_proved_again(tmp_path: Path) -> None:
    """A remote log that hung for longer than the lease, and a pair that is only read."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        lease, clock = epoch(pair, "a").lease, site(pair, "a").parts.clock
        pair.faults["a"].hold_remote.clear()
        await pair.until(lambda: epoch(pair, "a").core.frames_in_flight > 0)
        over_s = clock.monotonic_s() + lease.lease_s  # what is on its way proves nothing any more when it arrives
        await pair.until(lambda: clock.monotonic_s() > over_s)
        pair.faults["a"].hold_remote.set()
        await pair.until(lambda: epoch(pair, "a").core.frames_in_flight == 0)
        await pair.until(lambda: lease.valid_at(clock.monotonic_s()))
        assert await rows(pair, "a") == {1: "x"}
        service = pair.running["a"].service
        assert await service.rows.read(service.tables.get("t"), key_of(pair, "a", 1)) is not None
