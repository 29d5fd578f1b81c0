"""The simulated network: late, lost, doubled and cut messages, deadlines, and calls of processes that are killed or paused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from chaos.simulate.twins.coordinator import SimCoordinator, SimRegister
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import PLACES, REFUSED_MAX_S, CallInFlight, Connection, HowCut, Network
from chaos.simulate.twins.process import CURRENT, Process
from chaos.simulate.twins.transport import SimTransport
from switchover.register.port import PairState
from tests.chaos.simulate.on_virtual_loop import run
from twinlog.errors import LogGap, NotActive, PeerError, TwinlogError, Unavailable


class Broken(Exception):
    def __init__(self, why: str, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Rig:
    """A server at "b" that notes what arrives, and calls of it from "a"."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop, random.Random(seed))
        self.caller = Process("caller")
        self.arrived: list[tuple[str, float, Process | None]] = []
        self.outcomes: dict[str, object] = {}

    def serve(self, name: str, call: CallInFlight) -> None:
        self.arrived.append((name, self.loop.now_s, CURRENT.get()))
        call.answer(name)

    async def call(self, name: str = "x", timeout_s: float = 1.0, serve: Callable[[CallInFlight], None] | None = None) -> None:
        try:
            serve = serve or partial(self.serve, name)
            self.outcomes[name] = await self.network.call("a", "b", serve, timeout_s, Broken, may_repeat=True)
        except (Broken, TwinlogError) as error:
            self.outcomes[name] = error

    def run(self, work: Coroutine[Any, Any, Any], process: Process | None = None) -> None:
        run(self.loop, work, process)

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.arrived]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_call_takes_its_time_and_is_served_in_no_process(rig: Rig) -> None:
    link = rig.network.link("a", "b")
    link.base_s, link.jitter_s = 0.2, 0.0
    rig.run(rig.call(), rig.caller)
    assert rig.arrived == [("x", 0.2, None)]
    assert rig.outcomes == {"x": "x"}
    assert 0.2 < rig.loop.now_s < 0.3


def test_calls_overtake_one_another(rig: Rig) -> None:
    rig.network.link("a", "b").jitter_s = 0.5

    async def many() -> None:
        await asyncio.gather(*[rig.call(str(n)) for n in range(10)])

    rig.run(many(), rig.caller)
    assert sorted(rig.names) == [str(n) for n in range(10)]
    assert rig.names != sorted(rig.names)


def test_a_lost_request_ends_by_its_deadline(rig: Rig) -> None:
    rig.network.link("a", "b").loss = 1.0
    rig.run(rig.call(timeout_s=2.0), rig.caller)
    error = rig.outcomes["x"]
    assert isinstance(error, Broken)
    assert error.sent
    assert (rig.arrived, rig.loop.now_s) == ([], 2.0)


def test_a_lost_answer_ends_by_its_deadline_though_it_was_served(rig: Rig) -> None:
    rig.network.link("b", "a").loss = 1.0
    rig.run(rig.call(), rig.caller)
    assert isinstance(rig.outcomes["x"], Broken)
    assert rig.names == ["x"]


def test_a_repeated_request_is_served_twice_and_answered_once(rig: Rig) -> None:
    rig.network.link("a", "b").repeat = 1.0

    async def calls() -> None:
        await rig.call()
        await asyncio.sleep(3)

    rig.run(calls(), rig.caller)
    assert rig.names == ["x", "x"]
    assert rig.outcomes == {"x": "x"}


@pytest.mark.parametrize("how", ["silent", "refused"])
def test_a_cut_is_heard_of_at_the_deadline_or_soon(rig: Rig, how: HowCut) -> None:
    rig.network.cut("a", "b", how)
    rig.run(rig.call(timeout_s=5.0), rig.caller)
    error = rig.outcomes["x"]
    assert isinstance(error, Broken)
    assert error.sent == (how == "silent")  # nobody can tell a silent one from a late one
    assert rig.loop.now_s == 5.0 if how == "silent" else rig.loop.now_s <= REFUSED_MAX_S
    rig.network.heal("a", "b")
    rig.run(rig.call("again"), rig.caller)
    assert rig.outcomes["again"] == "again"


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_what_is_on_its_way_when_the_link_is_cut_is_lost_even_if_it_heals(rig: Rig, way: tuple[str, str]) -> None:
    link = rig.network.link(*way)
    link.base_s = 0.5

    async def calls() -> None:
        calling = asyncio.ensure_future(rig.call())
        await asyncio.sleep(0.2)
        rig.network.cut(*way)
        rig.network.heal(*way)
        await calling

    rig.run(calls(), rig.caller)
    assert isinstance(rig.outcomes["x"], Broken)
    assert rig.names == ([] if way == ("a", "b") else ["x"])


def test_isolation_leaves_the_others_and_the_place_itself(rig: Rig) -> None:
    rig.network.isolate("b")
    cut = {(one, other) for one in PLACES for other in PLACES if rig.network.link(one, other).cut}
    assert cut == {(one, other) for one in PLACES for other in PLACES if one != other and "b" in (one, other)}
    rig.network.heal(src="b")
    assert not rig.network.link("b", "a").cut
    assert rig.network.link("a", "b").cut


def test_an_answer_for_a_killed_caller_changes_nothing(rig: Rig) -> None:
    seen: list[str] = []

    async def caller() -> None:
        try:
            await rig.call()
            seen.append("answered")
        finally:
            seen.append("finally")

    async def main() -> None:
        rig.caller.spawn(caller())
        await asyncio.sleep(0)
        rig.loop.kill(rig.caller)
        await asyncio.sleep(5)

    rig.run(main())
    assert rig.names == ["x"]  # it was on its way
    assert seen == []


@pytest.mark.parametrize("way_s", [0.0, 3.0])
def test_an_answer_that_came_during_a_pause_is_taken_though_the_deadline_passed(rig: Rig, way_s: float) -> None:
    rig.network.link("a", "b").base_s = way_s
    async def main() -> None:
        calling = rig.caller.spawn(rig.call(timeout_s=1.0))
        await asyncio.sleep(0)
        rig.loop.pause(rig.caller)
        await asyncio.sleep(10)
        assert rig.outcomes == {}
        rig.loop.go_on(rig.caller)
        await calling

    rig.run(main())
    assert rig.outcomes == {"x": "x"}


class Gateway:
    """The answering side of a gateway, in its process."""

    def __init__(self) -> None:
        self.process = Process("gateway")
        self.seen: list[tuple[str, bytes, Process | None]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def call_bytes(self, method: str, body: bytes) -> bytes:
        self.seen.append((method, body, CURRENT.get()))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return body


def peer(rig: Rig, gateway: Gateway | None) -> SimTransport:
    return SimTransport("a", "b", rig.network, lambda: None if gateway is None else (gateway.process, gateway))


def test_a_transport_call_runs_in_the_other_gateways_process(rig: Rig) -> None:
    gateway = Gateway()

    async def main() -> None:
        assert await peer(rig, gateway).call("status", {"x": [1, b"2"]}, dict, 1.0) == {"x": [1, b"2"]}

    rig.run(main(), rig.caller)
    assert [(method, process) for method, _, process in gateway.seen] == [("status", gateway.process)]


def test_errors_arrive_as_what_they_are(rig: Rig) -> None:
    gateway = Gateway()

    async def main() -> None:
        gateway.error = LogGap("frames are missing", held_seq=3, offered_previous=5)
        with pytest.raises(LogGap, match="frames are missing") as gap:
            await peer(rig, gateway).call("replicate", {}, dict, 1.0)
        assert (gap.value.fields["held_seq"], gap.value.fields["offered_previous"]) == (3, 5)
        gateway.error = NotActive("ask b", active=None)
        with pytest.raises(NotActive):
            await peer(rig, gateway).call("rows", {}, dict, 1.0)
        with pytest.raises(PeerError, match="nobody listens") as refused:
            await peer(rig, None).call("rows", {}, dict, 1.0)
        assert refused.value.fields == {"sent": False}

    rig.run(main(), rig.caller)


def test_an_unexpected_error_of_a_gateway_is_a_finding(rig: Rig) -> None:
    gateway = Gateway()
    gateway.error = ZeroDivisionError("a fault of ours")

    async def main() -> None:
        with pytest.raises(TwinlogError):
            await peer(rig, gateway).call("status", {}, dict, 1.0)

    rig.loop.run(main(), steps_max=1000)
    assert rig.loop.errors == [gateway.error]


@pytest.mark.parametrize("told", [True, False])
def test_a_gateway_that_is_killed_while_it_serves_never_answers(rig: Rig, told: bool) -> None:
    gateway = Gateway()
    gateway.gate.clear()

    async def main() -> None:
        calling = rig.caller.spawn(peer(rig, gateway).call("status", {}, dict, 30.0))
        await asyncio.sleep(1)
        assert gateway.seen
        rig.loop.kill(gateway.process)
        if told:
            rig.network.reset(gateway.process)
        gateway.gate.set()
        with pytest.raises(PeerError, match="reset" if told else "no answer"):
            await calling
        assert rig.loop.now_s == 30.0 if not told else rig.loop.now_s < 2.0

    rig.run(main())


def test_a_paused_gateway_answers_when_it_goes_on(rig: Rig) -> None:
    gateway = Gateway()

    async def main() -> None:
        rig.loop.pause(gateway.process)
        calling = rig.caller.spawn(peer(rig, gateway).call("status", {}, dict, 30.0))
        await asyncio.sleep(10)
        assert gateway.seen == []
        rig.loop.go_on(gateway.process)
        assert await calling == {}
        assert 10 <= rig.loop.now_s < 11

    rig.run(main())


class Sent:
    """A connection from "a" to "b", and what became of what was sent."""

    def __init__(self, rig: Rig) -> None:
        self.got: list[int] = []
        self.broke: list[str] = []
        self.connection = Connection(rig.network, "a", "b", self.broke.append)

    def send(self, *numbers: int) -> None:
        for n in numbers:
            self.connection.send(self.got.append, n)


def test_a_connection_keeps_order_and_what_is_lost_is_only_late(rig: Rig) -> None:
    link = rig.network.link("a", "b")
    link.jitter_s, link.loss = 0.5, 0.5
    sent = Sent(rig)

    async def main() -> None:
        sent.send(*range(20))
        await asyncio.sleep(5)

    rig.run(main())
    assert (sent.got, sent.broke) == (list(range(20)), [])


def test_what_is_behind_something_slow_on_a_connection_is_slow_too(rig: Rig) -> None:
    at: list[tuple[str, float]] = []
    connection = Connection(rig.network, "a", "b", lambda _: None)

    async def main() -> None:
        connection.send(lambda: at.append(("slow", rig.loop.now_s)), after_s=5.0)
        connection.send(lambda: at.append(("quick", rig.loop.now_s)))
        await asyncio.sleep(10)

    rig.run(main())
    assert [name for name, _ in at] == ["slow", "quick"]
    assert all(5.0 < moment < 5.1 for _, moment in at)


def test_a_silent_cut_delays_a_connection_until_it_heals(rig: Rig) -> None:
    rig.network.link("a", "b").base_s = 0.5
    sent = Sent(rig)

    async def main() -> None:
        sent.send(1, 2)
        await asyncio.sleep(0.1)
        rig.network.cut("a", "b")
        await asyncio.sleep(1)
        sent.send(3)
        await asyncio.sleep(10)
        assert sent.got == []
        rig.network.heal()
        sent.send(4)
        await asyncio.sleep(5)

    rig.run(main())
    assert (sent.got, sent.broke) == ([1, 2, 3, 4], [])


@pytest.mark.parametrize("silent_first", [True, False])
def test_a_refused_cut_breaks_a_connection_for_good(rig: Rig, silent_first: bool) -> None:
    rig.network.link("a", "b").base_s = 0.5
    sent = Sent(rig)

    async def main() -> None:
        sent.send(1)
        await asyncio.sleep(1)
        sent.send(2, 3)
        if silent_first:
            rig.network.cut("a", "b")
            await asyncio.sleep(1)
        rig.network.cut("a", "b", "refused")
        rig.network.heal()
        sent.send(4)
        await asyncio.sleep(5)
        sent.send(5)
        await asyncio.sleep(5)

    rig.run(main())
    assert sent.got == [1]
    assert len(sent.broke) == 1


def test_the_coordinator_when_requests_or_answers_are_lost_and_when_it_is_down(rig: Rig) -> None:
    register = SimRegister()
    a, b = SimCoordinator(register, "a", rig.network), SimCoordinator(register, "b", rig.network)

    async def main() -> None:
        rig.network.cut("a", "w")
        with pytest.raises(Unavailable):
            await a.compare_and_set(None, PairState())
        assert await b.read() is None
        rig.network.heal()
        rig.network.cut("w", "a")
        with pytest.raises(Unavailable) as unavailable:
            await a.compare_and_set(None, PairState(reason="mine"))
        assert unavailable.value.fields["waiting_for"] == "coordinator"
        rig.network.heal()
        value = await b.read()
        assert value is not None
        assert (value.state_id, value.reason) == (1, "mine")
        register.down = True
        for asked in (b.read(), b.compare_and_set(value, PairState())):
            with pytest.raises(Unavailable):
                await asked
        register.down = False
        assert (await b.compare_and_set(value, PairState())).state_id == 2
        assert [one.state_id for one in register.history] == [1, 2]

    rig.run(main(), rig.caller)
