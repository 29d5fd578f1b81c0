"""A provider, and a door whose page logs people in by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.gateway.access.log_in.log_in_rig import LogInDoor, log_in_door
from tests.gateway.access.log_in.provider_twin import Provider, running_provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
async def door(provider: Provider, tmp_path: Path) -> AsyncIterator[LogInDoor]:
    async with log_in_door(provider, tmp_path) as opened:
        yield opened
