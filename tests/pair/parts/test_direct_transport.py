"""The transport of pairs in one process keeps the contract of the port."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.pair.faults import Faults
from tests.pair.pair import DirectTransport
from tests.remote_log.replication.transport_contract import StubPeer, TransportContract, Wire


class DirectWire:
    def __init__(self) -> None:
        self.peer = StubPeer()
        self._pair: Any = SimpleNamespace(running={"b": SimpleNamespace(peer_api=self.peer)}, cut=False)
        self.transport = DirectTransport(self._pair, "b", Faults())

    async def cut(self) -> None:
        self._pair.cut = True

    async def heal(self) -> None:
        self._pair.cut = False


class TestDirectTransport(TransportContract):
    @pytest.fixture
    def wire(self) -> Wire:
        return DirectWire()
