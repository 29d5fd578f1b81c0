"""The last look before an opening, and the compare-and-set decided on it, in a pair without a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from storage.clock import SystemClock
from switchover.activation.opening import Opening
from switchover.register.port import PairState, update
from switchover.register.transitions import abandon_plan, begin_plan, downgrade, downgrade_closed
from switchover.register.two_dfs import HURRY
from tests.remote_log.dfs.memory_dfs import Fault
from tests.switchover.register.register_world import RegisterWorld
from twinlog.errors import DfsError, PlanSuperseded, Unavailable

LEASE_S = 4.0


class Sleeper(SystemClock):
    """It sleeps in no time. `told`: what was asked for; `meanwhile` happens in the first sleep."""

    def __init__(self) -> None:
        self.told: list[float] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def sleep(self, duration_s: float) -> None:
        self.told.append(duration_s)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()


class Taking:
    """b has begun to take over by force from the asynchronous a, and has nothing of a's DFS in sight."""

    def __init__(self, world: RegisterWorld, begun: PairState) -> None:
        self.world, self.clock, self.door = world, Sleeper(), world.doors["b"]
        epoch = begun.epoch_allocated
        self.last = Opening(self.door, self.clock, "p", epoch, (begun, False), lease_wait_s=LEASE_S, bars_async=False)

    async def value(self) -> PairState:
        return await self.last.value("async", 9)

    async def opened(self) -> PairState | None:
        return await self.door.read()


async def taking() -> Taking:
    world = RegisterWorld()
    await world.open_at_a("async")
    await world.doors["b"].read()
    world.cut("a", sites="b")
    with pytest.raises(Unavailable):
        await world.doors["b"].read()
    return Taking(world, await world.doors["b"].force(
        lambda now: begin_plan(now, "p", "b", "takeover", 1, accept_data_loss=True, epoch_step=1000)
    ))


def epoch_of(state: PairState | None) -> int:
    return state.epoch if state is not None else 0


async def test_what_stays_out_of_sight_is_not_waited_for() -> None:
    plan = await taking()
    await plan.last.open(await plan.value(), "async", 9)
    assert plan.clock.told == []
    assert epoch_of(await plan.opened()) == 1002


async def test_a_lease_is_waited_out_when_the_last_look_sees_both() -> None:
    plan = await taking()
    plan.world.cut("a", sites="b", down=False)
    await plan.last.open(await plan.value(), "async", 9)
    assert plan.clock.told == [LEASE_S]
    assert epoch_of(await plan.opened()) == 1002


async def test_a_lease_is_waited_out_when_only_the_change_itself_sees_both() -> None:
    """Seeds 5133003, 5150616, 5190329: the other DFS came back between the last look and the opening."""
    plan = await taking()
    value = await plan.value()
    plan.world.cut("a", sites="b", down=False)
    waiting: list[int] = []

    async def looks() -> None:
        waiting.append(epoch_of(plan.door.known))

    plan.clock.meanwhile = looks
    await plan.last.open(value, "async", 9)
    assert plan.clock.told == [LEASE_S]
    assert waiting == [1], "before it opens, not after"
    assert epoch_of(await plan.opened()) == 1002


async def test_a_lease_is_waited_out_when_the_old_active_was_at_this_register() -> None:
    """It sees b's DFS although b does not see a's: it was degraded apart, and what it is shows in b's register."""
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b", sites="a")
    await world.doors["a"].force(lambda now: downgrade_closed(now, "a", 5, {1}))
    world.cut("a", sites="b")
    plan = Taking(world, await update(world.doors["b"], lambda now: begin_plan(
        now, "p", "b", "takeover", 1, accept_data_loss=True, epoch_step=1000)))
    world.cut("b", sites="a", down=False)
    await world.doors["a"].read()
    await plan.last.open(await plan.value(), "async", 9)
    assert plan.clock.told == [LEASE_S]
    assert epoch_of(await plan.opened()) == 1002


async def degraded_in_the_wait(*, bars_async: bool) -> Taking:
    """b takes over from the synchronous a without a's DFS in sight, and sees it at the last look; but its copy does not get
    there. So a, which sees nothing of b's DFS, does not know of the plan when it is degraded, while b waits out its lease."""
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("a", sites="b")
    plan = Taking(world, await update(world.doors["b"], lambda now: begin_plan(now, "p", "b", "takeover", 1)))
    plan.last.bars_async = bars_async
    world.cut("a", sites="b", down=False)
    world.cut("b", sites="a")
    way = world.ways["b", "a"]
    way.faults["create_file", way.calls["create_file"] + 1] = Fault(DfsError("the folder takes no files for a moment"))
    plan.clock.meanwhile = lambda: world.doors["a"].force(lambda now: downgrade(now, "a", 1, 0))
    return plan


async def test_an_old_active_that_is_degraded_while_its_lease_is_waited_out_keeps_the_pair() -> None:
    plan = await degraded_in_the_wait(bars_async=True)
    with pytest.raises(PlanSuperseded, match="was degraded by command while this plan ran"):
        await plan.last.open(await plan.value(), "async", 9)
    state = await plan.opened()
    assert state is not None
    assert (state.active, state.epoch, state.mode, state.switching) == ("a", 1, "async", None)


async def test_its_lease_is_waited_out_anew_when_the_loss_was_accepted() -> None:
    plan = await degraded_in_the_wait(bars_async=False)
    await plan.last.open(await plan.value(), "async", 9)
    assert plan.clock.told == [LEASE_S, LEASE_S]
    assert epoch_of(await plan.opened()) == plan.last.epoch


async def test_a_dfs_that_hung_a_moment_ago_is_given_all_its_time_before_an_opening_is_decided_blind() -> None:
    """Seed 6100095: it answers again, but slowly, and the old active could see this site's register meanwhile."""
    plan = await taking()
    plan.door._hung_s["a"], plan.door._deadline_s = plan.clock.monotonic_s(), 10.0
    value = await plan.value()
    plan.world.cut("a", sites="b", down=False)
    way, gate = plan.world.ways["b", "a"], asyncio.Event()
    way.faults["list", way.calls["list"] + 1] = Fault(gate=gate)
    asyncio.get_running_loop().call_later(1.5 * HURRY * plan.door._deadline_s, gate.set)
    await plan.last.open(value, "async", 9)
    assert gate.is_set()
    assert plan.clock.told == [LEASE_S]
    assert plan.door._hung_s == {}, "it hangs no more"


async def test_a_plan_that_lost_the_pair_meanwhile_does_not_open() -> None:
    plan = await taking()
    value = await plan.value()
    await update(plan.door, lambda now: abandon_plan(now, "p"))
    with pytest.raises(PlanSuperseded):
        await plan.last.open(value, "async", 9)
    plan = await taking()
    value = await plan.value()
    plan.world.cut("a", sites="b", down=False)
    await update(plan.door, lambda now: abandon_plan(now, "p"))
    with pytest.raises(PlanSuperseded, match="does not have the pair"):
        await plan.last.open(value, "async", 9)
    assert epoch_of(await plan.opened()) == 1


async def test_a_plan_that_began_on_both_registers_opens_no_other_epoch_than_its_own() -> None:
    """Seed 6120272: its begin got no answer from a's register, where it took place; so it began by command on b's, with another
    epoch, and claimed that one. Then a's was in sight again, and ruled."""
    world = RegisterWorld()
    await world.open_at_a("async")
    door, way = world.doors["b"], world.ways["b", "a"]
    await door.read()
    way.faults["create_file", way.calls["create_file"] + 1] = Fault(DfsError("the answer is lost"), landed=1)
    way.faults["list", way.calls["list"] + 3] = Fault(DfsError("away"))
    began = await door.force(lambda now: begin_plan(now, "p", "b", "takeover", 1, accept_data_loss=True))
    plan = Taking(world, began)
    ruling = await world.doors["a"].read()
    assert ruling is not None
    assert ruling.switching is not None
    assert began.switching is not None
    assert (ruling.switching.plan_id, ruling.switching.epoch, began.switching.epoch) == ("p", 3, 2)
    with pytest.raises(PlanSuperseded, match="has this plan with epoch 3, but 2 was claimed"):
        await plan.value()


async def test_who_has_no_lease_to_wait_out_opens_at_once() -> None:
    plan = await taking()
    plan.last.lease_wait_s = None
    value = await plan.value()
    plan.world.cut("a", sites="b", down=False)
    await plan.last.open(value, "async", 9)
    assert plan.clock.told == []
