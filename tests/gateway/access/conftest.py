"""A door with a gate, for the tests of who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.access.rig import GuardedDoor, guarded_door


@pytest.fixture
async def door() -> AsyncIterator[GuardedDoor]:
    async with guarded_door() as opened:
        yield opened
