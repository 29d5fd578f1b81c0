"""The transport's tests run on the event loop of the tests and on that of the gateway, whose connections differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

_Factories = dict[str, Callable[[], asyncio.AbstractEventLoop]]
USUAL: _Factories = {"asyncio": asyncio.new_event_loop}
BOTH: _Factories = {**USUAL, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> _Factories:
    return BOTH if item.path.name == "test_peer_transport.py" else USUAL
