"""Kept journals and logs of real runs become the plans that those runs had, as far as a log can show them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.harness.incident.cli import main
from chaos.harness.incident.draft import Incident, incident
from chaos.harness.incident.sources import read
from chaos.harness.incident.texts import for_the_harness, for_the_simulator
from chaos.harness.plan import parse
from chaos.simulate import plan as simulated
from tests.chaos.harness.incident.records import kept

LINES = {
    "active-killed": ["crash a for 10.6", "failover b", "rejoin a", "switchover a"],
    "active-stopped": ["pause a for 8.5", "failover b", "rejoin a", "switchover a"],
    "standby-degraded": ["terminate b for 11.7", "degrade active", "resync active"],
    "link-cut-a-to-b": ["black-hole a>b for 10.3"],
    "resets": ["reset a>b for 2.0", "down a>b for 3.0"],
    "dfs-hangs": [
        "disk-hangs b for 11.0 how dfs", "degrade active", "resync active", "crash a for 7.6", "disk-hangs b for 10.0 how dfs",
        "failover b",
    ],
    "sync-fails": [
        "disk-fails a for 7.6 how engine/EIO", "disk-fails a for 0.3 how wal/EROFS", "disk-fails a for 7.8 how engine/EROFS",
    ],
}
SIMULATED = {
    "active-killed": ["crash a for 10.6 how process", "failover b", "rejoin a", "switchover a"],
    "link-cut-a-to-b": ["cut a>b for 10.3"],
    "dfs-hangs": [
        "hang-dfs b for 11.0", "degrade active", "resync active", "crash a for 7.6 how process", "hang-dfs b for 10.0",
        "failover b",
    ],
}


def faults_of(text: str) -> list[str]:
    """The lines of faults and commands, without their times."""
    return [line.split(maxsplit=2)[2] for line in text.splitlines() if line.startswith("at ")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def found_in(places: list[tuple[str, Path]]) -> Incident:
    """Reading a journal runs a loop of its own."""
    return incident(await asyncio.to_thread(read, places))


@pytest.mark.parametrize("name", sorted(LINES))
async def test_a_kept_run_becomes_its_plan(name: str, tmp_path: Path) -> None:
    places = await kept(name, tmp_path)
    text = for_the_harness(await found_in(places))
    assert faults_of(text) == LINES[name]
    plan = parse(text)
    assert len(plan.faults) == len(LINES[name])
    before: list[str] = []
    for line in text.splitlines():
        if line.startswith("at "):
            assert any(" site.log line " in each or " journal, operation " in each for each in before), f"{line} has no source"
            before = []
        elif line.startswith("#"):
            before.append(line)


@pytest.mark.parametrize("name", sorted(SIMULATED))
async def test_a_kept_run_becomes_a_plan_of_the_simulator(name: str, tmp_path: Path) -> None:
    text = for_the_simulator(await found_in(await kept(name, tmp_path)))
    assert faults_of(text) == SIMULATED[name]
    assert simulated.parse(text).operations > 500, "the clients work for as long as it lasts"


async def test_the_command_writes_the_plan_and_nothing_where_the_journals_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = await kept("active-killed", tmp_path)
    before = contents(tmp_path)
    out = tmp_path / "plan.txt"
    given = [word for site, path in places for word in ("--site", f"{site}={path}")]
    assert await asyncio.to_thread(main, [*given, "--out", str(out)]) == 0
    assert "commands: 3, faults: 1; python -m chaos run" in capsys.readouterr().out
    assert faults_of(out.read_text()) == LINES["active-killed"]
    out.unlink()
    assert contents(tmp_path) == before
