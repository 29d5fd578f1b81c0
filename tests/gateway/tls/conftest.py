"""Each test has a CA and certificates of its own; those with sockets run on the event loop of the gateway, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.gateway.tls.tls_rig import Certificates

_Factories = dict[str, Callable[[], asyncio.AbstractEventLoop]]
_BOTH: _Factories = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
_WITH_SOCKETS = ("test_wire.py", "test_handshake.py", "test_between_sites.py")


def pytest_asyncio_loop_factories(item: pytest.Item) -> _Factories:
    return _BOTH if item.path.name in _WITH_SOCKETS else {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")
