"""Doors for the tests of the HTTP API, each over a DictService with one table.

`door` runs a test twice: "plain" without a server, where every request takes the FastAPI routes and its data crosses the ports
as bytes, and "hot" over a socket, where single-row PUT and GET take the hot path: both must answer the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.door_client import DoorClient, plain_door, served_door


@pytest.fixture(params=["plain", "hot"])
async def door(request: pytest.FixtureRequest) -> AsyncIterator[DoorClient]:
    async with plain_door() if request.param == "plain" else served_door() as opened:
        yield opened


@pytest.fixture
async def plain() -> AsyncIterator[DoorClient]:
    async with plain_door() as opened:
        yield opened


@pytest.fixture
async def served() -> AsyncIterator[DoorClient]:
    async with served_door() as opened:
        yield opened
