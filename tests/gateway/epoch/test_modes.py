"""Changes of mode, one step at a time, where a whole pair would hide which step did it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import Modes
from remote_log.replication.shipper import PeerView
from storage.failpoints import Failpoints
from switchover.register.port import PairState
from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT
from twinlog.errors import EngineFailed, Fenced, Refused, Unavailable


class OneRegister:
    """Coordinator of one value, which nobody else changes."""

    def __init__(self, value: PairState) -> None:
        self.value = value

    async def read(self) -> PairState:
        return self.value

    async def compare_and_set(self, expected: PairState, new: PairState, *, blind: bool = False) -> PairState:
        assert expected is self.value
        self.value = new
        return new


class Sleepless:
    async def sleep(self, duration_s: float) -> None:
        raise AssertionError("there is nothing to wait for")


class OnePeer:
    """Follower that was last seen like this, and how often it was asked to flush."""

    def __init__(self, state: str, durable_seq: int | None) -> None:
        self.view, self.asked = PeerView(state, durable_seq, durable_seq), 0

    def ask_flush(self) -> None:
        self.asked += 1


def modes(
    core: Any, *, engine: Any = None, register: OneRegister | None = None, peer: Any = None, dfs: MemoryDfs | None = None
) -> Modes:
    parts: Any = SimpleNamespace(
        site="a", coordinator=register, engine=engine, clock=Sleepless(), peer_dfs=dfs, layout=LAYOUT, failpoints=Failpoints()
    )
    commit: Any = SimpleNamespace(core=core, set_mode=lambda mode: setattr(core, "mode", mode))
    nothing: Any = None
    return Modes(parts, epoch=7, commit=commit, peer=peer, make_remote=nothing, on_mode=lambda: None)


async def test_a_resync_waits_for_what_is_committed_and_for_nothing_more() -> None:
    await modes(SimpleNamespace(mode=CommitMode.TIGHTENING, remote=41, committed=41))._tightened()


async def test_a_degrade_that_is_recorded_and_fails_at_this_site_is_still_to_be_settled() -> None:
    """Nobody may take over without force as long as the register says async; and the site stays synchronous."""
    async def set_meta(name: str, value: bytes | None) -> None:
        raise EngineFailed("no")

    register = OneRegister(PairState(state_id=4, epoch=7, epoch_allocated=7, active="a"))
    core = SimpleNamespace(mode=CommitMode.SYNC, needs_remote=True, remote=41, committed=38)
    changing = modes(core, engine=SimpleNamespace(set_meta=set_meta), register=register)
    with pytest.raises(EngineFailed):
        await changing.degrade(by_command=False)
    assert (register.value.mode, core.mode) == ("async", CommitMode.SYNC)
    assert register.value.async_since_seq == 38, "a restart has so much, also if its disk was behind the remote log"
    assert changing.unsettled
    await changing.settle()
    assert (register.value.mode, changing.unsettled) == ("sync", False)


@pytest.mark.parametrize(("state", "durable_seq", "caught_up"), [
    ("following", 40, True), ("following", 41, True), ("following", 39, False), ("following", None, False),
    ("unknown", None, False), ("loading", 99, False), ("diverged", 99, False), ("busy", 99, False), ("unreachable", 99, False),
])
def test_a_site_has_caught_up_when_it_follows_and_has_the_target_durably(
    state: str, durable_seq: int | None, caught_up: bool
) -> None:
    peer = OnePeer(state, durable_seq)
    changing = modes(SimpleNamespace(mode=CommitMode.CATCHING, standing=50), peer=peer)
    changing.catch_target = 40
    assert changing._peer_has_caught_up() is caught_up
    assert peer.asked == (0 if caught_up else 1)


def test_a_resync_does_not_wait_for_frames_that_have_failed_since() -> None:
    changing = modes(SimpleNamespace(mode=CommitMode.CATCHING, standing=35), peer=OnePeer("following", 35))
    changing.catch_target = 40
    assert changing._peer_has_caught_up()


async def test_a_resync_that_is_refused_loosens_the_rule_again() -> None:
    """Else each write would wait for the remote log, and be acknowledged as asynchronous, for good."""
    core = SimpleNamespace(mode=CommitMode.TIGHTENING, remote=41, committed=41)
    register = OneRegister(PairState(state_id=4, epoch=9, epoch_allocated=9, active="b"))
    with pytest.raises(Fenced):
        await modes(core, register=register).resync()
    assert core.mode is CommitMode.CATCHING


async def test_a_resync_without_an_answer_does_not_loosen_the_rule() -> None:
    """The register may say sync: then only a recorded degrade may loosen it."""
    async def compare_and_set(expected: PairState, new: PairState, *, blind: bool = False) -> PairState:
        raise Unavailable("no answer")

    core = SimpleNamespace(mode=CommitMode.TIGHTENING, remote=41, committed=41)
    register = OneRegister(PairState(state_id=4, epoch=7, epoch_allocated=7, active="a", mode="async"))
    register.compare_and_set = compare_and_set  # type: ignore[method-assign]
    changing = modes(core, register=register)
    with pytest.raises(Unavailable):
        await changing.resync()
    changing._loosen()
    assert core.mode is CommitMode.TIGHTENING


def test_a_degrade_that_finds_async_is_a_new_value_all_the_same() -> None:
    """A resync whose answer was lost still compares with the old value, and must not take place behind the degrade."""
    state = PairState(state_id=4, epoch=7, epoch_allocated=7, active="a", mode="async", async_since_seq=3)
    changed = modes(None)._downgraded(state, 3)
    assert changed != state
    assert (changed.mode, changed.async_since_seq) == ("async", 3)


async def test_a_resync_gives_way_to_a_degrade_and_to_the_end_of_the_epoch() -> None:
    changing = modes(None)
    changing.degrades_waiting = 1
    with pytest.raises(Refused, match="a degrade is asked for"):
        await changing._wait("nothing", lambda: False)
    changing.ended = Fenced("over")
    with pytest.raises(Fenced, match="over"):
        await changing._wait("nothing", lambda: False)


@pytest.mark.parametrize("claimed", [7, 9], ids=["made", "refused"])
async def test_a_writer_is_being_made_only_as_long_as_it_is(claimed: int) -> None:
    """Else the trimmer would leave every segment open that nobody writes any more."""
    dfs = MemoryDfs()
    await dfs.create_file(LAYOUT.claim(claimed), b"{}")
    core = SimpleNamespace(mode=CommitMode.ASYNC, next_seq=5, switch_remote_on=lambda: 4)
    changing, seen = modes(core, dfs=dfs, peer=OnePeer("following", 4)), []

    async def opened(next_seq: int, first_frames: object) -> None:
        seen.append(changing.making_remote)

    changing._make_remote = lambda epoch: SimpleNamespace(open=opened)  # type: ignore[assignment, return-value]
    if claimed > 7:
        with pytest.raises(Fenced):
            await changing._switch_on()
    else:
        await changing._switch_on()
        assert seen == [True]
    assert not changing.making_remote


async def test_a_writer_that_is_made_when_the_epoch_has_ended_is_closed() -> None:
    """Whoever ended the epoch closed the writer that there was: this one would keep its segment open for as long as the site
    runs, and no other writer of the epoch comes to close it."""
    done: list[str] = []

    async def opened(next_seq: int, first_frames: object) -> None:
        changing.ended = EngineFailed("the disk is full")

    async def close() -> None:
        done.append("closed")

    dfs = MemoryDfs()
    await dfs.create_file(LAYOUT.claim(7), b"{}")
    core = SimpleNamespace(mode=CommitMode.ASYNC, next_seq=5, switch_remote_on=lambda: 4)
    changing = modes(core, dfs=dfs, peer=OnePeer("following", 4))
    changing._make_remote = lambda epoch: SimpleNamespace(open=opened, close=close)  # type: ignore[assignment,return-value]
    with pytest.raises(EngineFailed):
        await changing._switch_on()
    assert (done, changing.remote, changing.making_remote) == (["closed"], None, False)
