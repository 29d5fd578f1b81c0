"""Single steps of the plans that make a site the active, where a whole pair would hardly come to their refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from remote_log.replication.messages import DrainReply, LogPoint
from storage.clock import SystemClock
from switchover.plans.follow import Follow
from switchover.plans.takeover import SwitchoverSettings, Takeover
from switchover.register.port import PairState, Switching
from switchover.roles.table import Event, Role
from twinlog.errors import Fenced, PeerError, Refused, TwinlogError

RUNNING = Switching("p", "b", 4, "takeover", 0)
STATE = PairState(state_id=7, epoch=3, epoch_allocated=4, active="a", switching=RUNNING)


class OneRegister:
    """Register of one value, which nobody else changes."""

    def __init__(self, value: PairState) -> None:
        self.value = value

    async def read(self) -> PairState:
        return self.value

    async def compare_and_set(self, expected: PairState, new: PairState, *, blind: bool = False) -> PairState:
        assert expected is self.value
        self.value = new
        return new


def site(**parts: Any) -> Any:
    """Site b, which is to be the active of epoch 4."""
    return SimpleNamespace(site="b", peer="a", epoch=4, parts=SimpleNamespace(clock=SystemClock(), **parts))


def plan(control: Any, kind: str = "switchover") -> Takeover:
    return Takeover(control, kind, {}, cast(Any, None), SwitchoverSettings())


@pytest.mark.parametrize("answer", [Fenced("epoch 3 is over", epoch=3, by_epoch=4), None])
async def test_a_site_that_accepts_the_frames_of_an_older_epoch_is_not_verified(answer: TwinlogError | None) -> None:
    asked: list[int] = []

    async def replicate(request: Any) -> None:
        asked.append(request.epoch)
        if answer is not None:
            raise answer

    async def canary() -> int:
        return 50

    control = site()
    control.sink, control.canary = SimpleNamespace(point=LogPoint(49, 4), replicate=replicate), canary
    if answer is None:
        with pytest.raises(Refused, match="was not rejected"):
            await plan(control)._verify()
    else:
        assert await plan(control)._verify() == {"zombie_rejected": True, "canary_seq": 50}
    assert asked == [3]


@pytest.mark.parametrize("epoch", [3, 2])
async def test_a_standby_of_another_log_has_not_caught_up(epoch: int) -> None:
    """It ends at the very sequence at which the active was drained, in an epoch of its own."""
    async def flush() -> int:
        return 90

    taking = plan(site(engine=SimpleNamespace(applied=SimpleNamespace(seq=90, epoch=epoch), flush=flush)))
    taking._drained = DrainReply(last_seq=90, epoch=3)
    if epoch == 3:
        assert await taking._catch_up() == {"applied_seq": 90, "durable_seq": 90}
    else:
        with pytest.raises(Refused, match="one of the two does not hold this pair's log"):
            await taking._catch_up()
    assert taking._caught_up is (epoch == 3)


@pytest.mark.parametrize("holder", ["a", "b"])
async def test_the_way_back_gives_up_the_own_plan_only(holder: str) -> None:
    register = OneRegister(replace(STATE, switching=replace(RUNNING, site=holder)))
    before = register.value
    await plan(site(coordinator=register))._abandon()
    assert (register.value is before) is (holder == "a")
    assert (register.value.switching is None) is (holder == "b")


@pytest.mark.parametrize(("follows_async", "caught_up", "refused"), [
    (True, False, True), (True, True, False), (False, False, False),
])
async def test_a_resumed_switchover_stops_where_the_old_active_may_hold_more(
    follows_async: bool, caught_up: bool, refused: bool
) -> None:
    async def step_down(plan_id: str, drained: object, timeout_s: float) -> None:
        raise PeerError("site a does not answer")

    async def begin() -> None:
        return None

    async def guard(work: Any) -> Any:
        return await work()

    register = OneRegister(STATE)
    taking = plan(site(coordinator=register, other_site=SimpleNamespace(step_down=step_down)))
    taking._activation = cast(Any, SimpleNamespace(
        follows_async=follows_async, begin=begin, request=SimpleNamespace(plan_id="p")
    ))
    taking._caught_up, taking._guard = caught_up, guard  # type: ignore[method-assign]
    if refused:
        with pytest.raises(Refused, match="acknowledged asynchronously, and cannot be asked now"):
            await taking._step_down()
    else:
        assert (await taking._step_down())["confirmed"] is False
    assert (register.value.switching is None) is refused


@pytest.mark.parametrize("again", [False, True])
async def test_a_standby_rejoins_once_more_if_it_is_asked_to(again: bool) -> None:
    events: list[Event] = []

    async def rejoin(accepted: object) -> Any:
        raise PeerError("site a does not answer")

    control = site()
    control.role, control.event, control.rejoin = Role.STANDBY, events.append, rejoin
    following = Follow(control, {"again": again}, cast(Any, None), cast(Any, None))
    if again:
        with pytest.raises(PeerError):
            await following._rejoin()
    else:
        assert await following._rejoin() == {"note": "this site follows the active already"}
    assert events == ([Event.REJOIN_STARTED] if again else [])


@pytest.mark.parametrize("unseen", [(), ("a",), ("b",)])
def test_a_pair_that_begins_anew_says_whose_dfs_was_not_seen(unseen: tuple[str, ...]) -> None:
    """The other site's has what this one claimed and wrote as the active."""
    [about, *more] = plan(site(), "failover")._lost(cast(Any, SimpleNamespace(unseen_dfs=unseen)))
    assert about.startswith("whether site a was the active")
    assert [said.partition(":")[0] for said in more] == (["site a's DFS does not answer"] if "a" in unseen else [])
