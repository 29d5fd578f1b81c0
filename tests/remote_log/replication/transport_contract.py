"""The contract of every Transport. A test module for one derives a class from `TransportContract` and gives the fixture
`wire`."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
import pytest

from remote_log.replication.messages import REPLY_BYTES_MAX, DrainReply, Transport
from twinlog import errors
from twinlog.errors import EngineFailed, PeerError, TwinlogError
from twinlog.problem_documents import classes_of

TIMEOUT_S = 5.0
SHORT_S = 0.3


class StubPeer:
    """The other site. `echo` returns what came, `raise` raises `error`, `hold` waits for `go`, `say` answers `words`."""

    def __init__(self) -> None:
        self.error = TwinlogError("none was set")
        self.words = b""
        self.go = asyncio.Event()
        self.arrived: list[str] = []

    async def call_bytes(self, method: str, body: bytes) -> bytes:
        self.arrived.append(method)
        if method == "raise":
            raise self.error
        if method == "hold":
            await self.go.wait()
        return self.words if method == "say" else body


class Wire(Protocol):
    """A transport to `peer`, and the way between them, which can be cut and healed."""

    peer: StubPeer
    transport: Transport

    async def cut(self) -> None: ...

    async def heal(self) -> None: ...


class TransportContract:
    """The fixture to give: `wire`."""

    async def test_the_answer_comes_back_as_it_was_sent(self, wire: Wire) -> None:
        message = {"epoch": 7, "frames": bytes(range(256)) * 400, "rows": [[1, b"k", None], []], "seq": 2**62, "why": "läuft"}
        assert await wire.transport.call("echo", message, dict, TIMEOUT_S) == message
        assert await wire.transport.call("echo", {}, dict, TIMEOUT_S) == {}
        assert wire.peer.arrived == ["echo", "echo"]

    async def test_calls_at_the_same_time_get_their_own_answers(self, wire: Wire) -> None:
        calls = [wire.transport.call("echo", {"n": n}, dict, TIMEOUT_S) for n in range(8)]
        assert await asyncio.gather(*calls) == [{"n": n} for n in range(8)]

    async def test_what_the_peer_raises_arrives_as_the_same_class(self, wire: Wire) -> None:
        for kind in (kind for kind in classes_of() if kind.__module__ == errors.__name__):
            wire.peer.error = kind("the words of the peer", epoch=3)
            with pytest.raises(TwinlogError) as raised:
                await wire.transport.call("raise", {}, dict, TIMEOUT_S)
            assert type(raised.value) is kind
            if kind is not EngineFailed:  # a database's words name its address and user: they stay in the peer's log
                assert (raised.value.message, raised.value.fields["epoch"]) == ("the words of the peer", 3)

    async def test_an_answer_is_of_the_kind_that_was_asked_for(self, wire: Wire) -> None:
        for said in ({}, {"last_seq": -1}, {"last_seq": 1 << 63}, {"last_seq": "1"}):
            wire.peer.words = msgspec.msgpack.encode({**said, "epoch": 2})
            with pytest.raises(PeerError, match="the other site's answer to say is no DrainReply"):
                await wire.transport.call("say", {}, DrainReply, TIMEOUT_S)
        wire.peer.words = msgspec.msgpack.encode({"last_seq": 5, "epoch": 2, "of a later release": [[], []]})
        assert await wire.transport.call("say", {}, DrainReply, TIMEOUT_S) == DrainReply(5, 2)

    async def test_an_answer_has_a_bound(self, wire: Wire) -> None:
        wire.peer.words = msgspec.msgpack.encode({"last_seq": 5, "epoch": 2, "more": bytes(REPLY_BYTES_MAX)})
        with pytest.raises(PeerError, match="the other site's answer to say is longer than 8 MiB"):
            await wire.transport.call("say", {}, DrainReply, 60.0)

    async def test_an_answer_that_is_no_map_is_a_peer_error(self, wire: Wire) -> None:
        for words in (b"", b"\xc1", b"half", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"a": 1})[:-1]):
            wire.peer.words = words
            with pytest.raises(PeerError):
                await wire.transport.call("say", {}, dict, TIMEOUT_S)

    async def test_a_call_without_an_answer_ends_by_its_time_out(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(PeerError):
            await wire.transport.call("hold", {}, dict, SHORT_S)
        assert loop.time() - begun_s >= SHORT_S * 0.9
        assert wire.peer.arrived == ["hold"], "it may have taken effect"
        wire.peer.go.set()
        assert await wire.transport.call("echo", {"n": 1}, dict, TIMEOUT_S) == {"n": 1}

    async def test_a_peer_out_of_reach_is_a_peer_error_until_it_is_back(self, wire: Wire) -> None:
        assert await wire.transport.call("echo", {}, dict, TIMEOUT_S) == {}
        await wire.cut()
        async with asyncio.timeout(120):
            with pytest.raises(PeerError):
                await wire.transport.call("echo", {}, dict, SHORT_S)
        assert wire.peer.arrived == ["echo"]
        await wire.heal()
        assert await wire.transport.call("echo", {"n": 2}, dict, TIMEOUT_S) == {"n": 2}
