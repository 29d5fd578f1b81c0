"""Switchovers in which the old active cannot say that it has stopped, will not, or holds more than has arrived."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

from remote_log.replication.messages import STEP_DOWN
from tests.pair.pair_rig import Moments, caught_up, epoch, open_pair, put, rows
from twinlog.errors import Conflict, PeerError


async def test_a_switchover_goes_on_when_the_old_active_cannot_confirm_that_it_stopped(tmp_path: Path) -> None:
    """Its coordinator call fails just then: like a site that does not answer, its lease is waited out."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")

        def lose_coordinator() -> None:
            pair.faults["a"].coordinator_down = True

        pair.running["b"].operations._executor._failpoints = Moments({"plan.switchover.catch_up.after": lose_coordinator})
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "succeeded", ended
        pair.faults["a"].coordinator_down = False
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        assert await rows(pair, "b") == {1: "x"}


async def test_a_site_whose_step_down_was_refused_is_closed_and_not_stuck(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        api = pair.running["a"].peer_api
        call, refusals = api.call_bytes, [1]

        async def refusing(method: str, body: bytes) -> bytes:
            if method == STEP_DOWN and refusals:
                refusals.pop()
                raise Conflict("injected")
            return await call(method, body)

        api.call_bytes = refusing  # type: ignore[method-assign]
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "failed", ended
        assert pair.role("b") == "CLOSED"
        assert pair.role("a") == "DRAINING"
        await pair.running["b"].operations.resume(ended.id)
        await pair.until(lambda: pair.role("b") in ("ACTIVE", "DOWNGRADE_ACTIVE"))
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))


async def test_a_switchover_stops_when_the_old_active_holds_more_than_arrived(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None, lease_s=30.0) as pair:  # the plan keeps the lease from being renewed
        await pair.operate("a", "degrade")
        asked, shipped = pair.running["a"].peer_api, pair.running["b"].peer_api
        answer = asked.call_bytes
        late: list[asyncio.Future[Any]] = []

        async def away(method: str, body: bytes) -> bytes:
            raise PeerError("site b does not answer")

        async def after_the_write(method: str, body: bytes) -> bytes:
            if late:
                await asyncio.wait(late)
            return await answer(method, body)

        def write_behind_its_back() -> None:
            shipped.call_bytes = away  # type: ignore[method-assign]  # nothing more is shipped
            pair.running["a"].site.undrain()
            late.append(asyncio.ensure_future(put(pair, "a", 1, "late")))

        asked.call_bytes = after_the_write  # type: ignore[method-assign]
        moments = {"plan.switchover.catch_up.after": write_behind_its_back}
        pair.running["b"].operations._executor._failpoints = Moments(moments)
        started = await pair.running["b"].operations.start("switchover", "b", {}, False, "test")
        last = [shown async for shown in pair.running["b"].operations.follow(started.id)][-1]
        assert (await late[0]).mode == "async"
        assert last.steps[5].detail["confirmed"], last
        assert (last.state, last.error.code) == ("failed", "log-gap"), last


async def test_nothing_keeps_an_epoch_behind_its_end(tmp_path: Path) -> None:
    """A standby that had been the active kept its old write path, with the frames that the remote log never took."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        ended = weakref.ref(epoch(pair, "a").commit)
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        gc.collect()
        assert ended() is None
