"""An active believes that a follower is where its own log has a frame's end, and nowhere else: the rest has diverged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from remote_log.replication.messages import LogPoint, ReplicateRequest
from remote_log.replication.shipper import holds
from storage.log.frame import make_frame
from storage.log.record import Record
from tests.remote_log.replication.base_world import World, a_world
from tests.remote_log.replication.tables import upsert
from tests.storage.engines.engine_rig import noop, value


class Views(list[Any]):
    """Every view that the shipper had of its follower."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def watch(self, world: World) -> None:
        see = world.shipper._on_position

        def note(view: Any) -> None:
            self.append(view)
            self.came.set()
            see(view)

        world.shipper._on_position = note

    async def until(self, state: str) -> Any:
        async with asyncio.timeout(120):
            while not (found := [view for view in self if view.state == state]):
                self.came.clear()
                await self.came.wait()
        return found[0]

    async def until_stored(self, seq: int) -> None:
        """Until the newest view says that exactly so much, or more where it is above 1, is durable at the follower."""
        async with asyncio.timeout(120):
            while not self or (self[-1].durable_seq != 1 if seq == 1 else (self[-1].durable_seq or 0) < seq):
                self.came.clear()
                await self.came.wait()


class Stopped:
    """A transport of one function."""

    def __init__(self, call: Any) -> None:
        self.call = call


async def following() -> World:
    world = await a_world()
    await world.equal()
    await world.write(upsert(b"000", value(c1="shipped")))
    await world.equal()
    return world


async def forge(world: World, *records: Record) -> None:
    """Has the standby apply a frame of well-formed records that the active never logged."""
    sink, applied = world.standby.sink, world.standby.engine.applied
    frame = make_frame(
        epoch=applied.epoch, first_seq=applied.seq + 1, previous=applied.seq, timestamp=applied.timestamp + 1,
        committed=applied.seq, records=list(records),
    )
    position = await sink.replicate(ReplicateRequest(sink.followed_epoch, sink.point, frame.data))
    assert position.applied_seq == frame.last_seq


@pytest.mark.parametrize("forged", [1, 5])
async def test_a_forged_row_is_found_and_the_follower_is_filled_again(forged: int) -> None:
    """Below the end of the log or above it: the active meanwhile writes three frames of its own."""
    world, views = await following(), Views()
    views.watch(world)
    world.running.cancel()
    await asyncio.gather(world.running, return_exceptions=True)
    for n in range(forged):
        await forge(world, upsert(b"000", value(c1=f"forged {n}")))
    for n in range(3):
        await world.write(upsert(b"001", value(c1=n)))
    world.running = asyncio.create_task(world.shipper.run())
    assert "log here" in (await views.until("diverged")).why
    assert all(view.durable_seq is None for view in views if view.state == "diverged")
    await world.finish()
    await world.close()


async def test_a_forged_row_in_the_middle_of_a_session_is_found() -> None:
    world, views = await following(), Views()
    views.watch(world)
    await forge(world, upsert(b"000", value(c1="forged")))
    await world.write(upsert(b"001", value(c1=1)))
    await views.until("diverged")
    await world.finish()
    await world.close()


async def test_a_follower_that_holds_less_than_it_had_stored_is_told_until_it_has_all_of_it_again() -> None:
    world, views = await following(), Views()
    views.watch(world)
    had = await world.standby.engine.flush()
    await world.write(upsert(b"001", value(c1=1)))
    await views.until_stored(had)
    assert world.shipper.setbacks.newest is None
    answer = world.standby.answer

    async def older(method: str, body: bytes) -> bytes:
        return msgspec.msgpack.encode({**msgspec.msgpack.decode(await answer(method, body)), "durable_seq": 1})

    world.standby.answer = older  # type: ignore[method-assign]
    await world.write(upsert(b"001", value(c1=2)))
    await views.until_stored(1)
    setback = world.shipper.setbacks.newest
    assert setback is not None
    assert (setback.had_seq >= had, setback.held_seq, setback.is_over, world.shipper.setbacks.count) == (True, 1, False, 1)
    world.standby.answer = answer  # type: ignore[method-assign]
    had = await world.standby.engine.flush()
    await world.write(upsert(b"001", value(c1=3)))
    await views.until_stored(had)
    assert world.shipper.setbacks.newest == msgspec.structs.replace(setback, is_over=True)
    await world.finish()
    await world.close()


@pytest.mark.parametrize("lie", [
    {"applied_seq": 1 << 40}, {"applied_epoch": 7}, {"durable_seq": 1 << 40}, {"applied_seq": 1 << 40, "durable_seq": 1 << 40},
    {"applied_crc": 1},
])
async def test_a_position_that_the_log_does_not_hold_is_no_position(lie: dict[str, Any]) -> None:
    """Nothing is known to be durable there, nor is it close behind."""
    world, views = await following(), Views()
    views.watch(world)
    answer = world.standby.answer

    async def lying(method: str, body: bytes) -> bytes:
        return msgspec.msgpack.encode({**msgspec.msgpack.decode(await answer(method, body)), **lie})

    world.standby.answer = lying  # type: ignore[method-assign]
    await world.write(noop())
    view = await views.until("diverged")
    assert (view.applied_seq, view.durable_seq) == (None, None)
    assert all(each.state != "following" for each in views)
    await world.close()


async def test_what_is_durable_counts_only_while_it_follows() -> None:
    """A follower that does not follow may hold another log, or lie: a lag must not count what it holds."""
    world, views = await following(), Views()
    views.watch(world)
    answer = world.standby.answer

    async def lying(method: str, body: bytes) -> bytes:
        return msgspec.msgpack.encode({**msgspec.msgpack.decode(await answer(method, body)), "state": "busy"})

    world.standby.answer = lying  # type: ignore[method-assign]
    await world.write(noop())
    assert (await views.until("busy")).durable_seq is None
    world.standby.answer = answer  # type: ignore[method-assign]
    await world.finish()
    await world.close()


async def test_what_a_log_holds() -> None:
    world = await following()
    end = world.engine.applied.seq
    frame = await world.wal.frame_at(end)
    assert frame is not None
    assert await holds(world.wal, end, LogPoint(end, frame.epoch, frame.crc))
    assert await holds(world.wal, end, LogPoint(end, frame.epoch))
    assert not await holds(world.wal, end, LogPoint(end, frame.epoch, frame.crc ^ 1))
    assert not await holds(world.wal, end, LogPoint(end, frame.epoch + 1))
    assert not await holds(world.wal, end, LogPoint(end + 1, frame.epoch))
    first = world.wal.first_previous or 0
    assert await holds(world.wal, end, LogPoint(first, 1, 5)), "that frame was trimmed: nobody knows"
    await world.close()


async def test_an_answer_that_lay_about_is_as_old_as_its_question() -> None:
    """The active's process was stopped behind a call: the answer waits in its socket, and the follower may have lost since."""
    world, views = await following(), Views()
    views.watch(world)
    ask = world.call
    asked_s: list[float] = []

    async def stopped(method: str, message: dict[str, Any], kind: type[Any], timeout_s: float) -> Any:
        asked_s.append(world.clock.now_s)
        answer = await ask(method, message, kind, timeout_s)
        world.clock.now_s += 3.4
        return answer

    world.shipper._ports = replace(world.shipper._ports, transport=Stopped(stopped))
    await world.write(upsert(b"000", value(c1="after")))
    await views.until("following")
    assert views[0].at_s == asked_s[0]
    await world.close()
