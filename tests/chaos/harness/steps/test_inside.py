"""A process dies or stops at a step with a trap, and a call waits or is refused there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.harness.steps.inside import RealSteps
from chaos.harness.steps.table import Deed, TrapTable
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import Stepped
from gateway.demo.servers import child_environ
from tests.processes import wait_for
from twinlog.errors import Unavailable

PROGRAM = """
import sys
from pathlib import Path
from chaos.harness.steps.inside import RealSteps
from chaos.harness.steps.table import TrapTable
from chaos.simulate.twins.process import Process
RealSteps(TrapTable(Path(sys.argv[1]))).hit("commit.framed", Process("gateway"))
raise SystemExit(7)
"""


class Port:
    def __init__(self) -> None:
        self.calls = 0

    async def read(self) -> int:
        self.calls += 1
        return self.calls


@pytest.fixture
def table(tmp_path: Path) -> TrapTable:
    return TrapTable(tmp_path / "traps", new=True)


def stepped(table: TrapTable, port: Port) -> Port:
    wrapper: Port = Stepped(port, "coordinator", RealSteps(TrapTable(table.path)), Process("gateway"))  # type: ignore[assignment]
    return wrapper


async def test_a_call_is_refused_once_before_or_after_it_was_made(table: TrapTable) -> None:
    port = Port()
    wrapper = stepped(table, port)
    table.arm("coordinator.read.before", 1, Deed.FAIL)
    table.arm("coordinator.read.after", 2, Deed.FAIL)
    for calls in (0, 2):
        with pytest.raises(Unavailable, match=r"injected: coordinator\.read\."):
            await wrapper.read()
        assert port.calls == calls
        assert await wrapper.read() == calls + 1


async def test_a_call_waits_until_its_trap_is_taken_away(table: TrapTable) -> None:
    port = Port()
    number = table.arm("coordinator.read.before", 1, Deed.WAIT)
    waiting = asyncio.create_task(stepped(table, port).read())
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    struck, passed = table.disarm(number)
    assert (struck > 0, passed) == (True, 1)
    assert await waiting == 1


def test_a_process_kills_itself_at_the_step(table: TrapTable) -> None:
    number = table.arm("commit.framed", 1, Deed.CRASH)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(table.path)], check=False, env=child_environ())
    assert done.returncode == -signal.SIGKILL
    assert table.has_struck(number)


def test_a_process_stops_itself_at_the_step_and_goes_on(table: TrapTable) -> None:
    table.arm("commit.framed", 1, Deed.PAUSE)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(table.path)], env=child_environ()) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 7


def test_the_loop_stands_at_the_step_until_its_trap_is_taken_away(table: TrapTable) -> None:
    number = table.arm("commit.framed", 1, Deed.STAND)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(table.path)], env=child_environ()) as process:
        assert wait_for(lambda: table.has_struck(number))
        assert process.poll() is None
        assert table.disarm(number)[1] == 1
        assert process.wait() == 7
