"""Shared parts of the remote writer's tests: a DFS, writers that are closed at the end, and an event loop that is watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.writing.remote_rig import NotingWriter
from tests.remote_log.writing.writer_rig import Make


@pytest.fixture
def dfs() -> MemoryDfs:
    return MemoryDfs()


@pytest.fixture
async def make(dfs: MemoryDfs) -> AsyncIterator[Make]:
    """Writers that are closed at the end."""
    made: list[NotingWriter] = []

    def build(**settings: Any) -> NotingWriter:
        made.append(NotingWriter(dfs, **settings))
        return made[-1]

    yield build
    dfs.down = False
    for fault in dfs.faults.values():
        if fault.gate is not None:
            fault.gate.set()
    for writer in made:
        await writer.close()


@pytest.fixture
async def nothing_is_raised_into_the_event_loop() -> AsyncIterator[None]:
    """Callbacks and tasks raise there; nobody would see it."""
    raised: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
    yield
    assert raised == []
