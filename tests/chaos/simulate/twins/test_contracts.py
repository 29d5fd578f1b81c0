"""The simulated twins obey the contracts of what they stand for: the same suites as for the real parts, on virtual time."""

from __future__ import annotations

import inspect
import random

import pytest

from chaos.simulate.twins.clock import SimClock
from chaos.simulate.twins.coordinator import SimCoordinator, SimRegister
from chaos.simulate.twins.dfs import SimDfs, SimDfsCluster
from chaos.simulate.twins.disk import SimDisk, SimFiles
from chaos.simulate.twins.engine import SimEngine
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import Network
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.transport import SimTransport
from tests.chaos.simulate.on_virtual_loop import on_loop, suite
from tests.remote_log.dfs.dfs_contract import DfsContract
from tests.remote_log.replication.transport_contract import StubPeer, TransportContract
from tests.storage.clock_contract import ClockContract
from tests.storage.disk.files_contract import FilesContract
from tests.storage.engines.engine_contract import EngineContract
from tests.storage.engines.engine_contract_reopen import EngineReopenContract
from tests.storage.engines.engine_contract_time import EngineTimeContract
from tests.storage.engines.engine_contract_trial import EngineTrialContract
from tests.storage.engines.memory_rig import MemoryRig
from tests.switchover.register import test_coordinator
from tests.switchover.register.test_coordinator import Doors


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop()


class TestSimClock(suite(ClockContract)):  # type: ignore[misc]
    @pytest.fixture(params=[1.0, 0.9, 1.1])
    def clock(self, loop: VirtualLoop, request: pytest.FixtureRequest) -> SimClock:
        return SimClock(loop, rate=request.param, ahead_ms=-3000)


class TestSimDfs(suite(DfsContract)):  # type: ignore[misc]
    @pytest.fixture(params=range(4))
    def dfs(self, loop: VirtualLoop, request: pytest.FixtureRequest) -> SimDfs:
        source = random.Random(request.param)
        cluster, network = SimDfsCluster(loop, source), Network(loop, source)
        return cluster.client(Process("one"), "a", "b", network)

    @pytest.fixture
    def other(self, dfs: SimDfs) -> SimDfs:
        return dfs.cluster.client(Process("other"), "b", "b", dfs.network)


class NothingMore(random.Random):
    """A crash goes back to the last flush exactly, as the contract's tests expect."""

    def random(self) -> float:
        return 0.0 if self.getrandbits(1) else 0.8


@pytest.fixture
def rig() -> MemoryRig:
    return MemoryRig(SimEngine(NothingMore(1)))


class TestSimEngine(suite(EngineContract)): ...  # type: ignore[misc]


class TestSimEngineOverTime(suite(EngineTimeContract)): ...  # type: ignore[misc]


class TestSimEngineTries(suite(EngineTrialContract)): ...  # type: ignore[misc]


class TestSimEngineOpenedAnew(suite(EngineReopenContract)): ...  # type: ignore[misc]


class TestSimFiles(suite(FilesContract)):  # type: ignore[misc]
    @pytest.fixture
    def files(self, loop: VirtualLoop) -> SimFiles:
        return SimDisk(loop, random.Random(1)).files(Process("one"))


class SimWire:
    """Two processes, at "a" and "b", and the simulated network between them."""

    def __init__(self, loop: VirtualLoop, source: random.Random) -> None:
        self.peer, process = StubPeer(), Process("b")
        self._network = Network(loop, source)
        self.transport = SimTransport("a", "b", self._network, lambda: (process, self.peer))

    async def cut(self) -> None:
        self._network.cut("a", "b")

    async def heal(self) -> None:
        self._network.heal()


class TestSimTransport(suite(TransportContract)):  # type: ignore[misc]
    @pytest.fixture(params=range(4))
    def wire(self, loop: VirtualLoop, request: pytest.FixtureRequest) -> SimWire:
        return SimWire(loop, random.Random(request.param))


@pytest.fixture
def doors(loop: VirtualLoop) -> Doors:
    register, network = SimRegister(), Network(loop, random.Random(1))
    return Doors(SimCoordinator(register, "a", network), SimCoordinator(register, "b", network))


@pytest.mark.parametrize("name", [
    name for name, test in inspect.getmembers(test_coordinator, inspect.iscoroutinefunction)
    if list(inspect.signature(test).parameters) == ["doors"]
])
def test_sim_coordinator(name: str, loop: VirtualLoop, doors: Doors) -> None:
    on_loop(getattr(test_coordinator, name))(doors, loop=loop)
