"""Faults of a site's files as a plan has them: whose files, as long as they last, and what must not be done to a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.disk_faults.control import RULES, DiskFaults, slow
from chaos.fault_lines import Fault
from chaos.harness.faults.disks import OnDisk
from chaos.harness.faults.files import PLACES, BrokenFiles
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of, need_the_library
from chaos.harness.pair.parts import Parts
from tests.chaos.disk_faults.child import Child, child

NOTHING: Any = None


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[BrokenFiles]:
    with DiskFaults(tmp_path / "table") as faults:
        yield BrokenFiles(tmp_path, faults)


@pytest.fixture
def program(disks: BrokenFiles) -> Iterator[Child]:
    with child("calls", disks.faults.environ()) as running:
        yield running


def file_at(disks: BrokenFiles, site: str, place: str) -> Path:
    path = disks.folder / site / PLACES[place] / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(100))
    return path


def said(program: Child, call: str, path: Path) -> str:
    return program.ask(f"{call} {path}").split()[-1]


async def test_it_breaks_the_files_of_the_site_that_is_the_active_when_it_begins(disks: BrokenFiles, program: Child) -> None:
    active = ["a"]
    effect = OnDisk(disks, Fault(1, "disk-fails", "active", 2, "wal/EROFS"), lambda target: active[0])
    ours, theirs = file_at(disks, "a", "wal"), file_at(disks, "b", "wal")
    assert await effect.why_not() == ""
    assert await effect.inject() == "site a"
    active[0] = "b"
    assert [said(program, "unlink", path) for path in (ours, theirs)] == ["EROFS", "ok"]
    assert await effect.heal() == "calls that met it: 1"
    assert said(program, "unlink", ours) == "ok"
    assert disks.broken == []


@pytest.mark.parametrize(("place", "is_broken"), [("wal", True), ("dfs", True), ("engine", False), ("journal", False)])
async def test_a_log_that_is_synced_again_is_a_violation(
    disks: BrokenFiles, program: Child, place: str, is_broken: bool
) -> None:
    effect = OnDisk(disks, Fault(1, "sync-fails", "b", 2, place), lambda target: target)
    path = file_at(disks, "b", place)
    assert said(program, "hold", path) == "ok"
    await effect.inject()
    assert [said(program, "fsync", path) for _ in range(2)] == ["EIO", "ok"]
    assert await effect.heal() == "calls that met it: 1; uses of a descriptor whose sync had failed: 1"
    assert bool(disks.broken) == is_broken


async def test_what_cannot_be_done_is_said(disks: BrokenFiles) -> None:
    effect = OnDisk(disks, Fault(1, "disk-hangs", "active", 2, "wal"), lambda target: None)
    assert await effect.why_not() == "nobody is the active"
    for number in range(RULES):
        disks.faults.begin(disks.folder / str(number), slow(1))
    effect = OnDisk(disks, Fault(1, "disk-hangs", "a", 2, "wal"), lambda target: target)
    assert await effect.why_not() == f"{RULES} faults of files are there already"


def test_only_such_plans_need_the_library() -> None:
    assert need_the_library([Fault(1, "crash", "a"), Fault(1, "disk-hangs", "a", 1, "wal")])
    assert not need_the_library([Fault(1, "crash", "a"), Fault(1, "black-hole", "a>b", 1)])


@pytest.mark.parametrize(("parts", "place"), [(Parts("hdfs"), "dfs"), (Parts(engine="postgresql"), "engine")])
async def test_the_files_of_a_server_are_left_alone(disks: BrokenFiles, parts: Parts, place: str) -> None:
    sites: Any = SimpleNamespace(parts=parts)
    stage = Stage(sites, NOTHING, NOTHING, lambda: "a", disks)
    assert "is a server in this pair" in await effect_of(Fault(1, "disk-fails", "a", 2, f"{place}/EIO"), stage).why_not()
    assert await effect_of(Fault(1, "disk-fails", "a", 2, "wal/EIO"), stage).why_not() == ""
