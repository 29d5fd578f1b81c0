"""Parts that go back: what the copy holds, what lies aside, and who is started."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.older import CoordinatorBack
from chaos.harness.faults.registry import BY_NAME, effect_of
from chaos.harness.pair.files.copies import COORDINATOR
from chaos.harness.pair.sites import RealSites


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    sites = RealSites(tmp_path)
    started: list[str] = []
    monkeypatch.setattr(sites, "start_and_hear", lambda site: (started.append(site), "damaged-log: x")[1])
    for site in "ab":
        for name in ("data/wal/1", "data/engine/rocksdb/1.sst", "data/journal.db", "data/journal.db-wal", "dfs/demo/0/1/1.1"):
            path = tmp_path / site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old")
    return Stage(sites, None, None, lambda: "a")  # type: ignore[arg-type]


def content(stage: Stage, name: str) -> str:
    return (stage.sites.folder / name).read_text()


@pytest.mark.parametrize(("kind", "how", "goes", "stays"), [
    ("part-back", "wal", "data/wal/1", "data/engine/rocksdb/1.sst"),
    ("part-back", "journal", "data/journal.db-wal", "data/wal/1"),
    ("storage-back", "", "data/engine/rocksdb/1.sst", "data/wal/1"), ("disk-back", "", "data/wal/1", "dfs/demo/0/1/1.1"),
    ("dfs-back", "", "dfs/demo/0/1/1.1", "data/wal/1"),
])
async def test_a_part_is_as_it_was_and_the_newest_lies_aside(stage: Stage, kind: str, how: str, goes: str, stays: str) -> None:
    folder = stage.sites.folder
    effect = effect_of(Fault(1, kind, "standby", 2, how), stage)
    assert await effect.why_not() == ""
    await effect.inject()
    for name in (goes, stays):
        (folder / "b" / name).write_text("new")
    (folder / "b" / goes).with_name("made-since").write_text("new")
    told = await effect.heal()
    assert (content(stage, f"b/{goes}"), content(stage, f"b/{stays}"), content(stage, f"a/{goes}")) == ("old", "new", "old")
    newest = stage.sites.spoiled.newest["b", how or kind.removesuffix("-back")]
    assert (newest / goes).read_text() == "new"
    assert (folder / "b" / goes).with_name("made-since").exists() == (how == "journal")
    assert ("refused: damaged-log: x" in told) == (kind != "dfs-back")
    assert stage.sites.lives["b"].may_refuse == (kind != "dfs-back")


async def test_hard_links_and_hidden_names_of_a_dfs_come_back(stage: Stage) -> None:
    segment = stage.sites.folder / "b/dfs/demo/0/1/1.1"
    closed = segment.with_name(".1.1.closed")
    closed.hardlink_to(segment)
    (stage.sites.folder / "b/dfs/.twinlog").mkdir()
    root = (stage.sites.folder / "b/dfs").stat().st_ino
    effect = effect_of(Fault(1, "dfs-back", "b", 2), stage)
    await effect.inject()
    await effect.heal()
    assert segment.stat().st_ino == closed.stat().st_ino
    assert (stage.sites.folder / "b/dfs/.twinlog").is_dir()
    assert (stage.sites.folder / "b/dfs").stat().st_ino == root


@pytest.mark.parametrize("how", ["", "lost"])
async def test_the_coordinator_goes_back_under_whoever_has_it_open(stage: Stage, how: str) -> None:
    database = stage.sites.coordinator
    with closing(sqlite3.connect(database)) as held:
        held.execute("pragma journal_mode = wal")
        held.execute("create table t (x)")
        held.execute("insert into t values (1)")
        held.commit()
        effect = effect_of(Fault(1, "coordinator-back", "w", 2, how), stage)
        assert isinstance(effect, CoordinatorBack)
        await effect.inject()
        held.execute("insert into t values (2)")
        held.commit()
        await effect.heal()
        with closing(sqlite3.connect(database)) as found:
            assert found.execute("select count(*) from t").fetchone() == (1,)
    assert (COORDINATOR in stage.sites.spoiled.newest) == (how == "")
    if not how:
        newest = stage.sites.spoiled.newest[COORDINATOR] / database.name
        with closing(sqlite3.connect(newest)) as found:
            assert found.execute("select count(*) from t").fetchone() == (2,)


async def test_a_pair_without_a_coordinator_has_none_that_goes_back(stage: Stage) -> None:
    assert await effect_of(Fault(1, "coordinator-back", "w", 2), stage).why_not() == "this pair has no coordinator in a file"
    assert BY_NAME["coordinator-back"].targets == ("w",)
