"""Forged calls of the other site at the doors of two whole sites: whoever makes one changes nothing at either of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.simulate.actors.lies import LIES, Victim
from gateway.api.problems import answer_for
from remote_log.replication.messages import pack_history
from storage.rows.schema import decode_schema
from tests.pair.pair import OTHER, Pair
from tests.pair.pair_rig import caught_up, holds, open_pair, put, rows, site
from twinlog.errors import MalformedBody, PeerError, TwinlogError


async def victim_of(pair: Pair, name: str) -> Victim:
    """All that its liar can know of a site; no row of it is missing at the other one."""
    one = site(pair, name)
    engine = one.parts.engine
    (number, data), = engine.applied.schemas().items()
    row = (await engine.scan(number, None, None, reverse=False, limit=1))[0]
    return Victim(
        one.sink.followed_epoch or one.epoch, name, OTHER[name], one.sink.point, decode_schema(data),
        (number, row.key, row.value), pack_history(engine.applied.epochs), one.parts.clock.wall_ms(),
    )


async def state_of(pair: Pair, name: str) -> tuple[Any, ...]:
    """All of a site that a lie could change; what an idle pair logs is left out."""
    one = site(pair, name)
    applied = one.parts.engine.applied
    return (
        one.role, one.epoch, one.mode, one.sink.followed_epoch, one.sink.needs_base, one.sink.is_prefix,
        applied.epoch, applied.schemas(), [epoch.epoch for epoch in applied.epochs], await rows(pair, name),
        [kept.name for kept in one.parts.engine.kept_snapshots()],
    )


async def test_a_call_of_another_shape_is_malformed_and_its_caller_says_that_it_is_not_understood(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        peer_api = pair.running["b"].peer_api
        named = {"pair": site(pair, "b").parts.coordinator.met_pair}
        for method, body in (("replicate", named), ("drain", {**named, "plan_id": 1}), ("status", {"pair": 7}), ("rows", [])):
            with pytest.raises(MalformedBody, match=f"the body of {method} is no ") as raised:
                await peer_api.call_bytes(method, msgspec.msgpack.encode(body))
            assert answer_for(raised.value, is_write=False).status == 400
        honest = peer_api.call_bytes

        async def call_bytes(called: str, body: bytes) -> bytes:
            return await honest(called, msgspec.msgpack.encode(named if called == "replicate" else [called]))

        peer_api.call_bytes = call_bytes  # type: ignore[method-assign]
        with pytest.raises(PeerError, match="the other site does not understand status of this one") as failed:
            await site(pair, "a").parts.other_site.status(5.0)
        assert answer_for(failed.value, is_write=False).status == 502
        epoch = site(pair, "a").active_epoch
        assert epoch is not None
        await pair.until(lambda: epoch.shipper.view.state == "refused")
        assert "does not understand" in str(epoch.shipper.view)
        peer_api.call_bytes = honest  # type: ignore[method-assign]
        await put(pair, "a", 2, "y")
        await pair.until(lambda: caught_up(pair, "a", "b"))


@pytest.mark.parametrize("name", ["a", "b"], ids=["active", "standby"])
async def test_a_lie_changes_nothing(tmp_path: Path, name: str) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        for lie, made in LIES.items():
            before = await state_of(pair, name)
            method, message = made(await victim_of(pair, name))
            named = {"pair": site(pair, name).parts.coordinator.met_pair, **message}
            with suppress(TwinlogError):
                await pair.running[name].peer_api.call_bytes(method, msgspec.msgpack.encode(named))
            assert await state_of(pair, name) == before, lie
        await put(pair, "a", 2, "y")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert await holds(pair, "b", {1: "x", 2: "y"})
