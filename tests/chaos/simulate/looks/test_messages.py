"""An answer to the active that must not be, and a belief about the standby that nobody told of, are reported."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from chaos.simulate.looks.messages import Messages
from chaos.simulate.twins.process import Process
from chaos.simulate.world import Life
from remote_log.replication.messages import FOLLOW, REPLICATE, LogPoint, Position, ReplicateRequest, Stamp, Vouched, to_message
from remote_log.replication.setback import Setback
from remote_log.replication.shipper import PeerView
from remote_log.replication.sink import FOLLOWED_EPOCH
from tests.chaos.simulate.looks.a_world import a_world


def said(
    request: ReplicateRequest, *, followed: int = 3, as_of_s: float | None = None, committed: int = 9,
    method: str = REPLICATE, is_answered: bool = True,
) -> list[str]:
    """Returns what is said of the answer of site b, whose storage has applied nothing, and which takes its rows to be of
    `as_of_s` after the call was sent, by its own clock."""
    world, found = a_world(), list[str]()
    look, engine, sink = Messages(world, found.append), world.machines["b"].engine, SimpleNamespace(as_of_s=None)
    asyncio.run(engine.set_meta(FOLLOWED_EPOCH, str(followed).encode()))
    active: Any = SimpleNamespace(epoch=3, core=SimpleNamespace(committed=committed))
    sites: list[Any] = [
        SimpleNamespace(active_epoch=active),
        SimpleNamespace(active_epoch=None, sink=sink, parts=SimpleNamespace(engine=engine)),
    ]
    for name, site in zip("ab", sites, strict=True):
        world.lives[name] = Life(Process(f"{name}.1"), site)
    world.loop.now_s = 5.0
    body = msgspec.msgpack.encode(to_message(request))
    arrived = look.arrives("b", method, body, 4.9)
    clock = world.machines["b"].clock
    sink.as_of_s = None if as_of_s is None else clock.monotonic_s() - 0.1 * clock.rate + as_of_s
    look.answered(arrived, "b", method, body, b"" if is_answered else None)
    return found


def a_request(
    *, epoch: int = 3, seq: int = 0, flush: bool = False, word: tuple[float, float, int] | None = None
) -> ReplicateRequest:
    vouched = None if word is None else Vouched(Stamp("x", word[0]), word[1], word[2])
    return ReplicateRequest(epoch, LogPoint(seq, epoch), b"", flush, vouched)


@pytest.mark.parametrize("method", [FOLLOW, REPLICATE])
def test_a_call_of_an_older_epoch_gets_no_answer(method: str) -> None:
    assert said(a_request(), method=method) == []
    assert said(a_request(epoch=2), method=method, is_answered=False) == []
    assert said(a_request(epoch=2), method=method) == [f"Site b follows epoch 3, and answers a call of epoch 2: {method}."]


def test_other_calls_have_no_epoch() -> None:
    assert said(a_request(epoch=2), method="status") == []


@pytest.mark.parametrize(("as_of_s", "upto", "sentences"), [
    (None, 0, []), (-0.1, 0, []), (0.0, 0, []),
    (0.01, 0, ["Site b takes its rows for newer than any word of the active is."]),
    (-0.1, 1, ["Site b takes a word about 1 for its own rows, which end at 0."]),
])
def test_rows_are_as_old_as_the_word_for_them(as_of_s: float | None, upto: int, sentences: list[str]) -> None:
    assert said(a_request(word=(1000.0, 0.5, upto)), as_of_s=as_of_s) == sentences


class _Engine(SimpleNamespace):
    def meta(self, name: str) -> bytes:
        return b"3"


@pytest.mark.parametrize(("durable_seq", "flush", "committed", "sentences"), [
    (7, True, 7, []), (6, False, 7, []), (6, True, 7, ["Site b was asked to make all durable, and is so up to 6 of 7."]),
    (7, False, 6, ["Site b has applied 7, and site a committed 6."]),
])
def test_what_is_applied_was_committed_and_is_durable_when_asked(
    durable_seq: int, flush: bool, committed: int, sentences: list[str]
) -> None:
    engine = _Engine(applied=SimpleNamespace(seq=7, epoch=3), durable_seq=durable_seq)
    world, found = a_world(), list[str]()
    look = Messages(world, found.append)
    active: Any = SimpleNamespace(active_epoch=SimpleNamespace(epoch=3, core=SimpleNamespace(committed=committed)))
    standby: Any = SimpleNamespace(active_epoch=None, sink=SimpleNamespace(as_of_s=None), parts=SimpleNamespace(engine=engine))
    world.lives = {"a": Life(Process("a.1"), active), "b": Life(Process("b.1"), standby)}
    body = msgspec.msgpack.encode(to_message(a_request(seq=7, flush=flush)))
    look.answered(look.arrives("b", REPLICATE, body, 0.0), "b", REPLICATE, body, b"")
    assert found == sentences


@pytest.mark.parametrize(("told", "newest", "view", "sentence"), [
    ([("following", 9)], None, ("following", 9), ""),
    ([("following", 9), ("following", 4)], Setback(9, 4, 0.0), ("following", 4), ""),
    ([("following", 9), ("loading", 0)], Setback(9, 0, 0.0), ("loading", None), ""),
    ([("following", 9), ("loading", 0)], None, ("loading", None), "has heard that its standby, which had 9, is filled anew"),
    ([("loading", 9), ("following", 4)], Setback(9, 4, 0.0), ("following", 4), "says that its standby had 9, which that never"),
    ([("following", 9), ("busy", 4)], Setback(9, 4, 0.0), ("busy", None), "says that its standby is back at 4, which"),
    ([("following", 9), ("following", 4), ("following", 9)], Setback(9, 4, 0.0), ("following", 9), "says that its standby"),
])
def test_an_active_believes_of_its_standby_what_it_was_told(
    told: list[tuple[Any, int]], newest: Setback | None, view: tuple[str, int | None], sentence: str
) -> None:
    world = a_world()
    look = Messages(world, lambda sentence: None)
    shipper = SimpleNamespace(view=PeerView(view[0], view[1], view[1]), setbacks=SimpleNamespace(newest=newest))
    site: Any = SimpleNamespace(active_epoch=SimpleNamespace(shipper=shipper))
    world.lives["a"] = Life(Process("a.1"), site)
    for state, durable_seq in told:
        look.heard("a", FOLLOW, Position(state, durable_seq, 3, durable_seq))
    found = look.look("a", site)
    assert [each.removeprefix("Site a ")[: len(sentence)] for each in found] == ([sentence] if sentence else [])
