"""Shared parts of these tests: a pair with one table, requests at a site, events at a named moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.epoch.active_epoch import ActiveEpoch, AvailableSettings
from gateway.service.port import Condition, Mutation, WriteRequest, WriteResult
from gateway.site.site import Site
from storage.engines.settings import EngineSettings
from storage.failpoints import Failpoints
from storage.log.encryption import NO_KEYS, Keyring
from storage.rows.codec import RowCodec
from switchover.register.port import PairState
from tests.pair.pair import Pair, settings

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
NEVER_S = 3600.0


class Moments(Failpoints):
    """Runs an action the first time that its named point is hit."""

    def __init__(self, actions: dict[str, Callable[[], None]]) -> None:
        self._actions = actions

    def hit(self, name: str) -> None:
        action = self._actions.pop(name, None)
        if action is not None:
            action()


@asynccontextmanager
async def open_pair(
    root: Path, *, deadline_s: float = 5.0, flush_interval_s: float = 0.2, lease_s: float = 0.4,
    resync_after_s: float | None = 0.1, degrade_after_s: float | None = None, remote_keys: Keyring = NO_KEYS,
    wal_keys: Keyring = NO_KEYS, keeps_trails: bool = False, **changes: Any
) -> AsyncIterator[Pair]:
    """a ACTIVE with the table `t`, b STANDBY; `changes` are of ActiveSettings at both sites. With `degrade_after_s` the policy
    is `available`. `resync_after_s` None: by command only."""
    after_s = NEVER_S if resync_after_s is None else resync_after_s
    available = AvailableSettings(degrade_after_s=degrade_after_s or 5.0, resync_after_s=after_s)
    pair = Pair(root, remote_keys=dict.fromkeys("ab", remote_keys), wal_keys=dict.fromkeys("ab", wal_keys))
    pair.keeps_trails = keeps_trails
    for name in "ab":
        usual = settings(name)
        pair.settings[name] = {
            "http": replace(usual.http, request_deadline_s=deadline_s), "lease": replace(usual.lease, lease_s=lease_s),
            "engine": EngineSettings(flush_interval_s=flush_interval_s), "protect_resync_after_s": resync_after_s,
            "policy": "available" if degrade_after_s is not None else "protect", "available": available, **changes,
        }
    try:
        for name in "ab":
            await pair.start(name)
        await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
        await pair.until(lambda: all(one.operations.running_id is None for one in pair.running.values()))
        await pair.running["a"].service.tables.create(TABLE)
        yield pair
    finally:
        for faults in pair.faults.values():
            faults.hold_remote.set()
            faults.hold_deletes.set()
        await pair.stop_all()


def site(pair: Pair, name: str) -> Site:
    return pair.running[name].site


def epoch(pair: Pair, name: str) -> ActiveEpoch:
    found = site(pair, name).active_epoch
    assert found is not None
    return found


async def put(
    pair: Pair, name: str, key: int, value: str, *, op: str = "upsert", request: str | None = None,
    conditions: tuple[Condition, ...] = (), deadline_s: float | None = None,
) -> WriteResult:
    service = pair.running[name].service
    table = service.tables.get("t")
    row_key, row_value = RowCodec(table).encode_json_row({"k": key, "v": value})
    mutations = [Mutation(op, row_key, b"" if op == "delete" else row_value)]
    digest = b"digest" if request is not None else b""
    return await service.rows.write(WriteRequest(table, mutations, conditions, request, digest), deadline_s)


def key_of(pair: Pair, name: str, key: int) -> bytes:
    table = site(pair, name).catalog.get("t")
    return RowCodec(table).encode_json_row({"k": key, "v": ""})[0]


async def rows(pair: Pair, name: str) -> dict[int, str]:
    """Rows 0 to 49 as the site's storage has them."""
    table = site(pair, name).catalog.find("t")
    if table is None:
        return {}
    codec = RowCodec(table)
    found = {}
    for key in range(50):
        row = await site(pair, name).parts.engine.get(table.id, codec.encode_json_row({"k": key, "v": ""})[0])
        if row is not None:
            found[key] = codec.decode_row(row.key, row.value)["v"]
    return found


async def holds(pair: Pair, name: str, expected: dict[int, str]) -> bool:
    return await rows(pair, name) == expected


async def coordinator_value(pair: Pair, name: str) -> PairState:
    state = await site(pair, name).parts.coordinator.read()
    assert state is not None
    return state


def caught_up(pair: Pair, active: str, standby: str) -> bool:
    ahead, behind = site(pair, active), site(pair, standby)
    return behind.takeover_blocker() is None and behind.parts.engine.applied.seq == ahead.parts.engine.applied.seq > 0


async def turns(count: int = 20) -> None:
    """Let everything that can go on without waiting for a thread go on."""
    for _ in range(count):
        await asyncio.sleep(0)
