"""Connections never take the file descriptors that the storage needs."""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack

import pytest

from gateway.http import descriptors
from gateway.http.descriptors import BACKLOG_MAX, OTHER_FILES, fitting
from gateway.http.lingering import LINGERING_MAX
from gateway.http.protocol import ConnectionLimits
from storage.engines.rocks.opening import RocksSettings
from tests.gateway.door_client import served_door
from twinlog.errors import ConfigError

RESERVED = RocksSettings().open_files_max + OTHER_FILES


class Process:
    """A process with limits of its own; `stuck`: nobody may raise them."""

    def __init__(self, soft: int, hard: int, *, stuck: bool = False) -> None:
        self.soft, self.hard, self.stuck = soft, hard, stuck

    def getrlimit(self, what: int) -> tuple[int, int]:
        return self.soft, self.hard

    def setrlimit(self, what: int, limits: tuple[int, int]) -> None:
        if self.stuck or limits[0] > self.hard != resource.RLIM_INFINITY:
            raise ValueError("not allowed to raise maximum limit")
        self.soft, self.hard = limits


def _fitting(process: Process, wanted: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    monkeypatch.setattr(resource, "getrlimit", process.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", process.setrlimit)
    return fitting(wanted)


@pytest.mark.parametrize(("soft", "hard"), [(1024, 1 << 20), (1024, resource.RLIM_INFINITY), (1 << 16, 1 << 20)])
def test_the_limit_is_raised_where_it_may_be(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    process = Process(soft, hard)
    assert _fitting(process, 2000, monkeypatch) == (2000, BACKLOG_MAX)
    assert process.soft >= RESERVED + 2000 + BACKLOG_MAX
    assert process.hard == hard


@pytest.mark.parametrize("process", [Process(1024, 1024), Process(1024, 1 << 20, stuck=True), Process(700, 2000)])
def test_fewer_connections_where_it_may_not(monkeypatch: pytest.MonkeyPatch, process: Process) -> None:
    """Even with all that wait to be accepted they leave the others theirs."""
    connections, backlog = _fitting(process, 2000, monkeypatch)
    assert descriptors.CONNECTIONS_MIN <= connections < 2000
    assert connections + backlog + RESERVED <= process.soft


def test_a_site_without_room_for_any_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"ulimit -n.*LimitNOFILE"):
        _fitting(Process(256, 256), 2000, monkeypatch)


@pytest.mark.parametrize("refused", [2, 40, LINGERING_MAX + 20])
async def test_one_address_leaves_connections_to_others(refused: int) -> None:
    """However many it opens and keeps open: a refused one takes no place, and few of them may wait for their clients."""
    async with served_door(limits=ConnectionLimits(connections_max=10, per_address_max=3)) as door, AsyncExitStack() as stack:

        async def status(address: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port, local_addr=(address, 0))
            stack.callback(writer.close)
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            return (await reader.readline())[9:12]

        places = door.server._server.config.http_protocol_class.places  # type: ignore[union-attr]
        assert [await status("127.0.0.1") for _ in range(3 + refused)] == [b"200"] * 3 + [b"503"] * refused
        assert [await status("127.0.0.2") for _ in range(4)] == [b"200"] * 3 + [b"503"]
        assert (places.served, dict(places.by_address)) == (6, {"127.0.0.1": 3, "127.0.0.2": 3})
        assert 0 < places.lingering <= LINGERING_MAX
    assert (places.served, places.lingering, places.by_address) == (0, 0, {})
