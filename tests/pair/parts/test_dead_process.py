"""A process that a test lets die: what it had not ended never ends, and it calls nobody. The image of its disk is made at that
moment, so what would be acknowledged or shipped later would be lost by the test, and not by the pair."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pair.faults import Faults, FaultyDfsWriter, FaultyLogFile
from tests.pair.pair import DirectTransport
from twinlog.errors import DfsError, PeerError, SyncFailed


class Held:
    """A file whose appends end when the test says so."""

    def __init__(self) -> None:
        self.appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def append(self, data: bytes) -> asyncio.Future[None]:
        return self.appended


@pytest.mark.parametrize(("kind", "error"), [(FaultyLogFile, SyncFailed), (FaultyDfsWriter, DfsError)])
async def test_an_append_that_ends_behind_its_process_has_failed(kind: Any, error: type[Exception]) -> None:
    held, faults = Held(), Faults()
    appending = asyncio.ensure_future(kind(held, faults).append(b"frame"))
    await asyncio.sleep(0)
    faults.dead = True
    held.appended.set_result(None)
    with pytest.raises(error, match="the process died"):
        await appending


async def test_a_dead_process_calls_nobody() -> None:
    faults = Faults()
    pair: Any = SimpleNamespace(running={"b": None}, cut=False)
    faults.dead = True
    with pytest.raises(PeerError):
        await DirectTransport(pair, "b", faults).call("status", {}, dict, 1.0)
