"""Changes of mode, one step at a time, where a whole pair would hide which step did it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import Modes
from storage.failpoints import Failpoints
from switchover.register.port import PairState
from twinlog.errors import EngineFailed


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


def modes(core: Any, *, engine: Any = None, register: OneRegister | None = None) -> Modes:
    parts: Any = SimpleNamespace(
        site="a", coordinator=register, engine=engine, clock=Sleepless(), peer_dfs=None, layout=None, failpoints=Failpoints()
    )
    commit: Any = SimpleNamespace(core=core)
    nothing: Any = None
    return Modes(parts, epoch=7, commit=commit, peer=nothing, make_remote=nothing, on_mode=lambda: None)


async def test_a_resync_waits_for_what_is_committed_and_for_nothing_more() -> None:
    await modes(SimpleNamespace(mode=CommitMode.TIGHTENING, remote=41, committed=41))._tightened()


async def test_a_degrade_that_is_recorded_and_fails_at_this_site_is_still_to_be_settled() -> None:
    """Nobody may take over without force as long as the register says async; and the site stays synchronous."""
    async def set_meta(name: str, value: bytes | None) -> None:
        raise EngineFailed("no")

    register = OneRegister(PairState(state_id=4, epoch=7, epoch_allocated=7, active="a"))
    core = SimpleNamespace(mode=CommitMode.SYNC, needs_remote=True, remote=41)
    changing = modes(core, engine=SimpleNamespace(set_meta=set_meta), register=register)
    with pytest.raises(EngineFailed):
        await changing.degrade(by_command=False)
    assert (register.value.mode, core.mode) == ("async", CommitMode.SYNC)
    assert changing.unsettled
    await changing.settle()
    assert (register.value.mode, changing.unsettled) == ("sync", False)
