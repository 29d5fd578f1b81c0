"""A gateway that may not start on a broken disk is started again until it does, as a supervisor would."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.harness.faults import processes
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.processes import STARVED, started_again
from chaos.harness.steps.points import THREAD
from chaos.harness.steps.table import Deed, TrapTable
from twinlog.errors import Unavailable


class FakeSites:
    """Each start ends as `ends` says: with an error, or with what the gateway said. `broken`: faults of files before each."""

    def __init__(self, *ends: str | Unavailable, broken: int) -> None:
        self.ends, self.excused, self.broken = list(ends), 0, broken
        self.servers, self.links = SimpleNamespace(are_well=lambda site: True), ()
        self.lives = {"a": SimpleNamespace(starts=1, starved=0)}
        self.traps: dict[str, TrapTable] = {}

    def start_and_hear(self, site: str) -> str:
        self.lives[site].starts += 1
        self.broken -= 1
        end = self.ends.pop(0)
        if isinstance(end, Unavailable):
            raise end
        return end

    def excuse(self, site: str) -> None:
        self.excused += 1


def staged(sites: FakeSites) -> Any:
    nothing: Any = None
    files: Any = SimpleNamespace(faults=SimpleNamespace(in_force=lambda: max(0, sites.broken)))
    given: Any = sites
    return Stage(given, nothing, nothing, lambda: "a", files)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "AGAIN_S", 0)


async def test_it_is_started_until_it_answers_also_when_the_fault_ends_while_it_starts() -> None:
    sites = FakeSites(Unavailable("no disk"), Unavailable("no disk"), "", broken=2)
    assert await started_again(staged(sites), "a") == "site a did not start on a broken disk"
    assert (sites.excused, sites.ends) == (2, [])


async def test_what_it_said_last_is_shown() -> None:
    sites = FakeSites(Unavailable("no disk"), "damaged-log: wal/1", broken=1)
    assert await started_again(staged(sites), "a") == "site a did not start on a broken disk; refused: damaged-log: wal/1"


async def test_without_a_reason_an_end_is_an_error() -> None:
    sites = FakeSites(Unavailable("no disk"), Unavailable("it ended"), broken=1)
    with pytest.raises(Unavailable, match="it ended"):
        await started_again(staged(sites), "a")
    assert sites.excused == 1


async def test_a_start_that_another_fault_left_without_memory_is_repeated_and_no_other_one() -> None:
    sites = FakeSites(Unavailable("no memory"), Unavailable("it ended"), broken=0)
    sites.lives["a"].starved = 2
    with pytest.raises(Unavailable, match="it ended"):
        await started_again(staged(sites), "a")
    assert sites.excused == 1


async def test_a_start_while_no_thread_can_be_started_is_repeated_until_one_can(tmp_path: Path) -> None:
    sites = FakeSites(Unavailable("no-thread"), "", broken=0)
    sites.traps["a"] = TrapTable(tmp_path / "traps", new=True)
    number = sites.traps["a"].arm(THREAD, 1, Deed.REFUSE)
    assert await started_again(staged(sites), "a") == f"site a did not start {STARVED}"
    sites.traps["a"].disarm(number)
    sites.ends = [Unavailable("it ended")]
    with pytest.raises(Unavailable, match="it ended"):
        await started_again(staged(sites), "a")
