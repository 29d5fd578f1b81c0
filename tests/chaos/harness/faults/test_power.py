"""Power loss as a plan has it: whose files, with whose death, and what of them; and both libraries in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.disk_faults.control import DiskFaults, failing
from chaos.fault_lines import Fault
from chaos.harness.faults.files import PoweredFiles, environ_of
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.power import PowerLost
from chaos.harness.faults.processes import OnProcess
from chaos.harness.faults.registry import need_the_library, need_the_record
from chaos.harness.pair import sites
from chaos.harness.pair.sites import RealSites
from chaos.power_loss.losing import all_lost
from tests.chaos.disk_faults.child import child
from twinlog.errors import Unavailable

ROOT = str(Path(__file__).resolve().parents[4])
NOTHING: Any = None


class Pair:
    """Both sites, each with a gateway that does steps (tests/chaos/power_loss/programs) in place of the product."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.powered = folder, PoweredFiles(folder, 1)
        processes = self.powered.losses.processes
        environs = dict.fromkeys("ab", environ_of(processes))
        self.sites = RealSites(folder, "", environs, before_kill=processes.cut)
        self.active: str | None = "a"
        self.stage = Stage(self.sites, NOTHING, NOTHING, lambda: self.active, None, self.powered)

    def start(self, site: str) -> None:
        self.sites.start(site)
        for place in ("data", "dfs"):  # what it syncs, and what not
            path = self.folder / site / place
            for number, step in enumerate(("synced", "unsynced")):
                self.do(site, "make", str(path / step))
                self.do(site, "sync-folder", str(path)) if number == 0 else None
        self.do(site, "sync", 0)

    def do(self, site: str, *step: str | int) -> None:
        process: Any = self.sites.lives[site].process
        process.stdin.write((json.dumps(step) + "\n").encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"ok\n"

    def left(self, site: str) -> dict[str, list[str]]:
        return {place: sorted(os.listdir(self.folder / site / place)) for place in ("data", "dfs")}

    def power_loss(self, target: str, how: str = "lost") -> PowerLost:
        return PowerLost(self.stage, self.powered, Fault(1.0, "power-loss", target, 0, how))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    started: list[subprocess.Popen[bytes]] = []

    def start_child(command: list[str], log: Any, *, folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.power_loss.programs.steps"], env={**environ, "PYTHONPATH": ROOT}, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ))
        return started[-1]

    monkeypatch.setattr(sites, "start_child", start_child)
    monkeypatch.setattr(RealSites, "wait_for_answer", lambda self, site: None)
    pair = Pair(tmp_path)
    for site in sites.SITES:
        pair.start(site)
    yield pair
    for process in started:
        process.kill()
        process.communicate()


BOTH, SYNCED = ["synced", "unsynced"], ["synced"]


@pytest.mark.parametrize(("target", "site"), [("a", "a"), ("active", "a"), ("standby", "b")])
async def test_a_site_loses_its_data_and_keeps_its_dfs(pair: Pair, target: str, site: str) -> None:
    effect, other = pair.power_loss(target), sites.OTHER[site]
    assert await effect.why_not() == ""
    assert await effect.inject() == f"{site}/data: of what was not synced, all of it lost (unsynced)"
    assert pair.left(site) == {"data": SYNCED, "dfs": BOTH}
    assert pair.left(other) == {"data": BOTH, "dfs": BOTH}
    assert [pair.sites.is_running(each) for each in (site, other)] == [False, True]
    pair.active = other  # whoever it is by now
    await effect.heal()
    assert pair.sites.is_running(site)
    assert list(pair.sites.died()) == []


async def test_both_sites_lose_their_dfs_too(pair: Pair) -> None:
    effect = pair.power_loss("both")
    assert await effect.why_not() == ""
    await effect.inject()
    assert [pair.left(site) for site in sites.SITES] == [{"data": SYNCED, "dfs": SYNCED}] * 2
    assert not any(map(pair.sites.is_running, sites.SITES))
    await effect.heal()
    assert all(map(pair.sites.is_running, sites.SITES))


async def test_a_site_that_was_killed_before_loses_what_it_had_not_synced_then(pair: Pair) -> None:
    crash = OnProcess(pair.stage, "crash", "a")
    await crash.inject()
    assert pair.left("a")["data"] == BOTH
    await pair.power_loss("a").inject()
    assert pair.left("a")["data"] == SYNCED


async def test_a_site_that_was_lost_begins_anew(pair: Pair) -> None:
    await OnProcess(pair.stage, "site-lost", "b").inject()
    await pair.power_loss("b").inject()
    assert pair.left("b") == {"data": [], "dfs": []}
    pair.start("b")
    await pair.power_loss("b").inject()
    assert pair.left("b") == {"data": SYNCED, "dfs": BOTH}


async def test_what_is_lost_is_drawn_from_the_seed(pair: Pair) -> None:
    kept = []
    for number in range(12):
        pair.sites.start("a")
        pair.do("a", "make", str(pair.folder / "a" / "data" / str(number)))
        await pair.power_loss("a", "").inject()
        kept.append(str(number) in pair.left("a")["data"])
    assert {*kept} == {True, False}
    assert PoweredFiles(pair.folder / "again", 1).drawn.random() == Random("1 power").random()


async def test_nothing_is_lost_of_a_site_that_is_paused_or_where_nobody_is_the_active(pair: Pair) -> None:
    pair.sites.pause("b")
    assert await pair.power_loss("both").why_not() == await pair.power_loss("b").why_not() == "site b is paused"
    assert await pair.power_loss("a").why_not() == ""
    pair.sites.resume("b")
    pair.active = None
    assert await pair.power_loss("standby").why_not() == "nobody is the active"


async def test_files_that_the_record_does_not_explain_end_the_run(pair: Pair) -> None:
    (pair.folder / "a" / "data" / "synced").write_bytes(b"by somebody who is not recorded")
    with pytest.raises(Unavailable, match="does not show all that was done to synced in"):
        await pair.power_loss("a").inject()
    assert pair.left("a")["data"] == BOTH


def test_a_call_that_fails_by_a_rule_is_not_recorded(tmp_path: Path) -> None:
    powered = PoweredFiles(tmp_path, 1)
    path = tmp_path / "a" / "data" / "file"
    path.write_bytes(b"before, and so durable")
    powered.losses.renewed(path.parent)
    with DiskFaults(tmp_path / "table") as faults:
        with child("calls", environ_of(faults, powered.losses.processes)) as program:
            faults.begin(path.parent, failing("EIO"))
            assert program.ask(f"unlink {path}").endswith("EIO")
            assert program.ask(f"hold {path}").endswith("ok")
            assert program.ask(f"pwritev2-syncs {path}").endswith("EIO")
            cut_ns = powered.losses.processes.cut(program.pid)
        powered.losses.lose([path.parent], all_lost, cut_ns)
    assert path.read_bytes() == b"before, and so durable"


def test_only_such_plans_need_the_record() -> None:
    assert need_the_record([Fault(1, "crash", "a"), Fault(1, "power-loss", "both")])
    assert not need_the_record([Fault(1, "crash", "a"), Fault(1, "disk-hangs", "a", 1, "wal")])
    assert not need_the_library([Fault(1, "power-loss", "both")])
    assert environ_of() == {}
