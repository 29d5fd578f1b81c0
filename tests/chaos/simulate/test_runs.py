"""One seed gives one trace, and processes stop exactly where they are told to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from tests.chaos.simulate.on_virtual_loop import run
from tests.chaos.simulate.twins.all_twins import play
from tools.sources import ROOT


def played(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos.simulate.twins.all_twins", "3"],
        capture_output=True, text=True, check=True, timeout=50,
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed},
    ).stdout


def test_one_seed_gives_one_trace_whatever_the_interpreters_hashes_are() -> None:
    first = played("0")
    assert first == played("1")
    assert len({line.split()[1] for line in first.splitlines()}) == 3


def test_again_in_the_same_interpreter() -> None:
    digest = play(3)
    assert play(3) == digest
    assert play(4) != digest


class Steps:
    """A process that counts its steps, a hundredth of a second each."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.process = loop, Process("p")
        self.count = 0
        self.cleaned = False

    async def walk(self) -> None:
        try:
            while True:
                self.count += 1
                await asyncio.sleep(0.01)
        finally:
            self.cleaned = True


def test_a_killed_process_takes_no_further_step_not_even_a_finally() -> None:
    loop = VirtualLoop()
    steps = Steps(loop)

    async def main() -> None:
        task = steps.process.spawn(steps.walk())
        child = steps.process.spawn(asyncio.wait_for(asyncio.shield(task), 100))
        await asyncio.sleep(0.105)
        assert steps.count == 11
        task.cancel()  # under way, and never delivered
        loop.kill(steps.process)
        await asyncio.sleep(1000)
        assert steps.count == 11
        assert not steps.cleaned
        assert not task.done()
        assert not child.done()

    run(loop, main())


def test_what_is_spawned_in_a_killed_process_never_begins() -> None:
    loop = VirtualLoop()
    steps = Steps(loop)
    walk = steps.walk()

    async def main() -> None:
        loop.kill(steps.process)
        steps.process.spawn(walk)
        await asyncio.sleep(1)
        assert steps.count == 0

    run(loop, main())
    walk.close()  # or the interpreter says that nobody awaited it


def test_a_paused_process_goes_on_where_it_was_with_its_timers_run_out() -> None:
    loop = VirtualLoop()
    steps = Steps(loop)
    late: list[float] = []

    async def sleeper() -> None:
        await asyncio.sleep(0.5)
        late.append(loop.now_s)

    async def main() -> None:
        steps.process.spawn(steps.walk())
        steps.process.spawn(sleeper())
        await asyncio.sleep(0.105)
        loop.pause(steps.process)
        await asyncio.sleep(10)
        assert (steps.count, late) == (11, [])
        loop.go_on(steps.process)
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.001)
        assert steps.count == 12
        assert late == [10.105]
        await asyncio.sleep(0.05)
        assert steps.count > 15
        loop.pause(steps.process)
        await asyncio.sleep(1)
        loop.kill(steps.process)
        loop.go_on(steps.process)
        count = steps.count
        await asyncio.sleep(1)
        assert steps.count == count

    run(loop, main())


def test_one_process_does_not_stop_another() -> None:
    loop = VirtualLoop()
    one, other = Steps(loop), Steps(loop)

    async def main() -> None:
        for steps in (one, other):
            steps.process.spawn(steps.walk())
        await asyncio.sleep(0.105)
        loop.kill(one.process)
        await asyncio.sleep(0.1)
        assert (one.count, other.count) == (11, 21)

    run(loop, main())
