"""Faults at steps: before the call it is not made, after it it is; each trap strikes once; a step without one costs nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import StepFailpoints, Stepped, Steps, Trap
from tests.chaos.simulate.on_virtual_loop import run
from twinlog.errors import DfsError


class Port:
    def __init__(self) -> None:
        self.calls = 0

    async def read(self) -> int:
        self.calls += 1
        return self.calls

    def count(self) -> int:
        return self.calls

    @property
    def has_calls(self) -> bool:
        return self.calls > 0


class World:
    def __init__(self) -> None:
        self.loop, self.process, self.port = VirtualLoop(), Process("a"), Port()  # type: ignore[abstract]
        self.noted: list[str] = []
        self.steps = Steps(self.noted.append)
        self.stepped = Stepped(self.port, "own_dfs", self.steps, self.process)
        self.answers: list[object] = []

    async def ask(self) -> None:
        try:
            self.answers.append(await self.stepped.read())
        except DfsError as error:
            self.answers.append(error.message)


def test_what_is_not_awaited_shows_the_port_as_it_is_now() -> None:
    world = World()
    shown: Any = world.stepped
    for _ in range(2):
        assert (shown.calls, shown.has_calls, shown.count()) == (world.port.calls, world.port.has_calls, world.port.calls)
        run(world.loop, world.ask())
    assert (shown.calls, shown.has_calls) == (2, True)
    assert world.steps.census == {"own_dfs.read.before": 2, "own_dfs.read.after": 2}


@pytest.mark.parametrize(("when", "calls"), [("before", 0), ("after", 1)])
def test_a_process_that_is_killed_at_a_step_takes_no_further_one(when: str, calls: int) -> None:
    world = World()

    async def main() -> None:
        world.steps.arm(Trap(f"own_dfs.read.{when}", 1, world.loop.kill))
        world.process.spawn(world.ask())
        await asyncio.sleep(10.0)

    run(world.loop, main())
    assert (world.port.calls, world.answers) == (calls, [])
    assert world.noted == [f"at step own_dfs.read.{when} of a"]


@pytest.mark.parametrize(("when", "calls"), [("before", 1), ("after", 2)])
def test_a_call_fails_once_at_the_hit_that_is_named(when: str, calls: int) -> None:
    world = World()

    async def main() -> None:
        world.steps.arm(Trap(f"own_dfs.read.{when}", 2, fails=True))
        for _ in range(3):
            await world.process.spawn(world.ask())

    run(world.loop, main())
    assert world.answers == [1, f"injected: own_dfs.read.{when}", calls + 1]
    assert world.steps.census[f"own_dfs.read.{when}"] == 3


def test_an_answer_comes_late_and_a_paused_process_waits() -> None:
    world = World()
    at_s: list[float] = []

    async def main() -> None:
        world.steps.arm(Trap("own_dfs.read.after", 1, delay_s=2.5))
        await world.process.spawn(world.ask())
        at_s.append(world.loop.now_s)
        world.steps.arm(Trap("own_dfs.read.before", 1, world.loop.pause))
        asking = world.process.spawn(world.ask())
        await asyncio.sleep(1.0)
        assert world.port.calls == 1
        world.loop.go_on(world.process)
        await asking

    run(world.loop, main())
    assert at_s == [2.5]
    assert world.answers == [1, 2]


def test_a_step_that_nobody_armed_costs_no_time_and_what_is_cleared_does_not_strike() -> None:
    world = World()

    async def main() -> None:
        world.steps.arm(Trap("own_dfs.read.before", 1, world.loop.kill))
        world.steps.clear()
        await world.process.spawn(world.ask())
        assert world.loop.now_s == 0.0

    run(world.loop, main())
    assert (world.answers, world.noted, world.stepped.count()) == ([1], [], 1)


def test_a_failpoint_of_the_product_strikes_once_its_code_waits() -> None:
    world = World()
    reached: list[str] = []

    async def work() -> None:
        StepFailpoints(world.steps, world.process, world.loop).hit("commit.framed")
        reached.append("the same step")
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.1)
        reached.append("the next one")

    async def main() -> None:
        world.steps.arm(Trap("commit.framed", 1, world.loop.kill))
        world.process.spawn(work())
        await asyncio.sleep(1.0)

    run(world.loop, main())
    assert reached == ["the same step"]
