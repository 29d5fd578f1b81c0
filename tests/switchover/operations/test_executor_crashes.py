"""Every interruption of a plan, with real journal files: a crash at any point is resumed, or goes back, or is past it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations.executor import Executor
from switchover.operations.journal import Journal
from switchover.operations.sql_journal import SqlJournal
from tests.armed_failpoints import ArmedFailpoints, Crash
from tests.switchover.operations.plan_world import EVERY_POINT, NAMES, UNDO_POINTS, Gate, World, failing, start, states
from twinlog.errors import Refused, Unavailable

DEADLINE_S = 60.0  # how busy the disk is decides nothing here


@pytest.fixture
def world() -> World:
    return World()


async def crash(folder: Path, world: World, point: str, act: Callable[[Executor], Awaitable[Any]]) -> None:
    """A process that dies at `point` while it does `act`; its journal stays as it was on the disk."""
    journal = SqlJournal(f"sqlite:///{folder}/journal.db", DEADLINE_S)
    executor = Executor(journal, SystemClock(), world.plan, ArmedFailpoints(point))
    await act(executor)
    live = executor._live
    assert live is not None
    assert live.task is not None
    with pytest.raises(Crash):
        await live.task
    await journal.close()


def reopened(folder: Path, world: World) -> tuple[Executor, Journal]:
    journal = SqlJournal(f"sqlite:///{folder}/journal.db", DEADLINE_S)
    return Executor(journal, SystemClock(), world.plan, Failpoints()), journal


async def test_the_points_are_all_of_them(world: World) -> None:
    seen = ArmedFailpoints()
    executor = Executor(MemoryJournal(), SystemClock(), world.plan, seen)
    await executor.run("op-1", "switchover", "b", {}, "ann")
    assert seen.seen == [f"plan.switchover.{point}" for point in EVERY_POINT]


@pytest.mark.parametrize("point", EVERY_POINT)
async def test_a_crash_anywhere_is_resumed(tmp_path: Path, world: World, point: str) -> None:
    await crash(tmp_path, world, f"plan.switchover.{point}", start)
    before = list(world.calls)
    executor, _ = reopened(tmp_path, world)
    assert (await executor.operation("op-1")).state == "interrupted"
    await executor.resume("op-1", "bob")
    last = await executor.wait("op-1")
    assert (last.state, states(last)) == ("succeeded", ["done"] * 5)
    assert world.flags == {"begin", "drain", "claim", "open"}
    again = world.calls[len(before) :]
    assert [name for name in again if name != "preflight"] == [name for name in NAMES[1:] if name in again], "in order"
    for name in before:
        finished = EVERY_POINT.index(point) >= EVERY_POINT.index(f"{name}.journaled")
        assert name == "preflight" or (name in again) != finished, "what is journaled as done is not done again"
    await executor.close()


@pytest.mark.parametrize("point", EVERY_POINT)
async def test_a_crash_anywhere_is_aborted_or_is_past_it(tmp_path: Path, world: World, point: str) -> None:
    await crash(tmp_path, world, f"plan.switchover.{point}", start)
    executor, _ = reopened(tmp_path, world)
    if EVERY_POINT.index(point) < EVERY_POINT.index("claim.before"):
        assert (await executor.abort("op-1", "bob")).state == "aborted"
        assert world.flags == set()
    else:
        with pytest.raises(Refused, match="past the point of no return"):
            await executor.abort("op-1", "bob")
    await executor.close()


@pytest.mark.parametrize("point", UNDO_POINTS)
@pytest.mark.parametrize("why", ["failed", "aborted"])
async def test_a_crash_on_the_way_back_is_brought_to_an_end(tmp_path: Path, world: World, point: str, why: str) -> None:
    gate = world.hooks["drain"] = Gate()

    async def go_and_turn(executor: Executor) -> None:
        await start(executor)
        await gate.reached.wait()
        if why == "aborted":
            live = executor._live
            assert live is not None
            await live.interrupt("bob")

    if why == "failed":
        world.hooks["drain"] = failing(Unavailable("the peer is away"))
        await crash(tmp_path, world, f"plan.switchover.{point}", start)
    else:
        await crash(tmp_path, world, f"plan.switchover.{point}", go_and_turn)
    world.hooks.clear()
    executor, _ = reopened(tmp_path, world)
    if why == "aborted":
        with pytest.raises(Refused, match="being aborted"):
            await executor.resume("op-1", "bob")
        assert (await executor.abort("op-1", "bob")).state == "aborted"
        assert world.flags == set()
    else:
        await executor.resume("op-1", "bob")
        assert (await executor.wait("op-1")).state == "succeeded"
        assert world.flags == {"begin", "drain", "claim", "open"}
    await executor.close()


async def test_crash_after_crash_comes_to_an_end(tmp_path: Path, world: World) -> None:
    await crash(tmp_path, world, "plan.switchover.begin.after", start)
    for point in ("drain.after", "claim.before", "claim.journaled", "open.after"):
        await crash(tmp_path, world, f"plan.switchover.{point}", lambda executor: executor.resume("op-1", "bob"))
    executor, _ = reopened(tmp_path, world)
    await executor.resume("op-1", "bob")
    last = await executor.wait("op-1")
    assert (last.state, last.attempt) == ("succeeded", 6)
    await executor.close()


KILLED = """
    import asyncio, os, pathlib, sys
    from storage.clock import SystemClock
    from switchover.operations.executor import Executor
    from switchover.operations.plan import Plan, Step
    from tests.armed_failpoints import ArmedFailpoints
    from switchover.operations.sql_journal import SqlJournal

    folder, point = pathlib.Path(sys.argv[1]), sys.argv[2]

    def step(name, **more):
        async def run():
            (folder / name).touch()
        return Step(name, run, name, **more)

    def plan(kind, to, options):
        return Plan(kind, [step("drain", abortable=True), step("claim"), step("open")])

    async def main():
        die = ArmedFailpoints(f"plan.failover.{point}", die=lambda name: os._exit(70))
        executor = Executor(SqlJournal(f"sqlite:///{folder}/journal.db", 60.0), SystemClock(), plan, die)
        found = await executor.operations()
        if found:
            print(found[0].state, [step.state for step in found[0].steps])
            await executor.resume("op-1", "bob")
        else:
            await executor.start("op-1", "failover", "b", {}, "ann")
        print((await executor.wait("op-1")).state)
        await executor.close()

    asyncio.run(main())
"""


async def test_a_killed_process_leaves_a_journal_that_the_next_one_takes_up(tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent(KILLED))

    async def process(point: str) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        command = [sys.executable, str(script), str(tmp_path), point]
        done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout

    assert await process("claim.after") == (70, "")
    assert (tmp_path / "claim").exists()
    assert not (tmp_path / "open").exists()
    assert await process("open.before") == (70, "interrupted ['done', 'interrupted', 'pending']\n")
    assert await process("none") == (0, "interrupted ['done', 'done', 'interrupted']\nsucceeded\n")
    assert (tmp_path / "open").exists()


async def test_an_operation_that_died_in_its_preflight_bars_no_resume(tmp_path: Path, world: World) -> None:
    """A preflight only looks. Found by the simulator (seed 10009110): the journal still calls such an operation running."""
    await crash(tmp_path, world, "plan.switchover.claim.after", start)
    point = "plan.switchover.preflight.after"
    await crash(tmp_path, world, point, lambda executor: executor.start("op-2", "switchover", "b", {}, "ann"))
    executor, _ = reopened(tmp_path, world)
    await executor.resume("op-1", "bob")
    assert (await executor.wait("op-1")).state == "succeeded"
    await executor.close()
