"""The executor over plans that only note what they did."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations.executor import Executor
from tests.switchover.operations.plan_world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def executor(world: World) -> AsyncIterator[Executor]:
    one = Executor(MemoryJournal(), SystemClock(), world.plan, Failpoints())
    yield one
    await one.close()
