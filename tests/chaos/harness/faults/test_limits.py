"""Limits of a process that runs: what it still gets, that it gets no more, and that all of it comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of, need_steps
from chaos.harness.steps.points import THREAD
from chaos.harness.steps.table import Deed, TrapTable
from twinlog.errors import Unavailable

PROGRAM = """
import sys
held, blocks = [open("/dev/null") for _ in range(9)], []
del held[2:5]  # numbers below the highest one are free
for line in sys.stdin:
    try:
        if line.strip() == "file":
            held.append(open("/dev/null"))
        else:
            blocks.append(bytes(int(line) << 20))
        print("ok", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    except MemoryError:
        print("no memory", flush=True)
"""


class Site:
    """A process that takes what it is told to, as the only site. `answers`: once it has memory again."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lives = {"a": SimpleNamespace(starts=3, starved=0)}
        self.foreseen, self.mute, self.done = frozenset[str](), list[str](), list[str]()
        self.answers, self.traps = True, dict[str, object]()
        self.servers, self.links = SimpleNamespace(are_well=lambda site: True), ()

    def take(self, what: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def pid(self, site: str) -> int | None:
        return self.process.pid if self.is_running(site) else None

    def is_running(self, site: str) -> bool:
        return self.process.poll() is None

    def wait_for_answer(self, site: str) -> None:
        if not self.answers:
            raise Unavailable(f"site {site} does not answer")

    def kill(self, site: str) -> None:
        self.process.kill()
        self.process.wait()

    def excuse(self, site: str, start: int) -> None:
        self.done.append(f"excuse {site} {start}")

    def start_and_hear(self, site: str) -> str:
        self.done.append(f"start {site}")
        return ""


@pytest.fixture
def site() -> Iterator[Site]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        found = Site(process)
        assert found.take("file") == "ok"
        yield found
        process.kill()


def stage(sites: Any) -> Stage:
    nothing: Any = None
    return Stage(sites, nothing, nothing, lambda: "a")


async def test_as_many_files_as_are_left_and_then_all_again(site: Site) -> None:
    fault = effect_of(Fault(1.0, "few-files", "active", 2.0, "3"), stage(site))
    assert await fault.why_not() == ""
    await fault.inject()
    assert [site.take("file") for _ in range(5)] == ["ok", "ok", "ok", "24", "24"]
    assert site.lives["a"].starved == 3  # whoever waits for this start knows why it may fail
    await fault.heal()
    assert [site.take("file") for _ in range(5)] == ["ok"] * 5


async def test_no_more_memory_than_is_left_and_then_all_again(site: Site) -> None:
    fault = effect_of(Fault(1.0, "few-memory", "a", 2.0, "64"), stage(site))
    await fault.inject()
    assert site.take("16") == "ok"
    assert site.take("256") == "no memory"
    assert site.lives["a"].starved == 3  # whoever waits for this start knows why it may fail
    await fault.heal()
    assert site.take("256") == "ok"


async def test_a_gateway_that_ended_itself_once_it_had_memory_is_started_again(site: Site) -> None:
    fault = effect_of(Fault(1.0, "few-memory", "a", 2.0, "0"), stage(site))
    await fault.inject()
    site.wait_for_answer = site.kill  # type: ignore[method-assign]
    assert await fault.heal() == "its process is gone"
    assert (site.done, site.mute) == (["excuse a 3", "start a"], [])


async def test_a_gateway_that_neither_answers_nor_ends_is_found(site: Site) -> None:
    fault = effect_of(Fault(1.0, "few-memory", "a", 2.0, "0"), stage(site))
    await fault.inject()
    site.answers = False
    assert await fault.heal() == "its process is gone"
    assert site.mute == ["The gateway of site a has memory again, and neither answers nor ends itself."]
    assert site.done == ["excuse a 3", "start a"]


async def test_the_life_that_had_no_memory_is_excused_also_when_somebody_else_has_started_the_next(site: Site) -> None:
    fault = effect_of(Fault(1.0, "few-memory", "a", 2.0, "0"), stage(site))
    await fault.inject()
    fault.pid = 0  # type: ignore[attr-defined]
    assert await fault.heal() == "its process is gone"
    assert site.done == ["excuse a 3"]


async def test_no_thread_starts_until_it_is_healed(tmp_path: Path) -> None:
    table = TrapTable(tmp_path / "traps", new=True)
    there = TrapTable(table.path)
    line = Fault(1.0, "no-threads", "a", 2.0)
    assert need_steps([line])
    lives = {"a": SimpleNamespace(starts=1, starved=0)}
    fault = effect_of(line, stage(SimpleNamespace(traps={"a": table}, foreseen=set(), lives=lives)))
    await fault.inject()
    number = there.pass_by(THREAD)
    assert number is not None
    assert number[1] is Deed.REFUSE
    assert lives["a"].starved == 1
    assert there.pass_by(THREAD) == number
    assert await fault.heal() == "threads that were not started: 2"
    assert there.pass_by(THREAD) is None
