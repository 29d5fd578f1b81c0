"""A backup goes on behind a change of the active: what the new one never had, the old one has kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.backup.holding import BackupSettings
from storage.backup.kept_log import FOLDER
from storage.backup.manifest import WantedMoment
from storage.engines.opening import open_engine
from tests.gateway.backup.rig import PairSites, Rows, back_up, new_site, restore, rows_of
from tests.pair.pair import OTHER, Pair
from tests.pair.pair_rig import epoch, open_pair, put, site
from twinlog.errors import Conflict, Refused

WIDE = "x" * 2000
WRITES = 120  # several segments of the WAL and of the remote log, so that both sites trim


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path / "old", trim_interval_s=3600.0) as opened:  # `followed` trims: one round at a time
        yield opened


async def write_much(pair: Pair, name: str) -> None:
    for key in range(WRITES):
        await put(pair, name, key, f"{name} {key} {WIDE}")


async def followed(pair: Pair, active: str) -> None:
    """The other site has all of it durably, and the active has trimmed both logs by that."""
    ends = site(pair, active).parts.engine
    await pair.until(lambda: (epoch(pair, active).shipper.view.durable_seq or 0) >= ends.applied.seq - 3)
    await pair.until(lambda: ends.durable_seq >= ends.applied.seq - 5)
    await epoch(pair, active).trim()


async def switch_over(pair: Pair, to: str) -> None:
    await followed(pair, OTHER[to])
    done = await pair.operate(to, "switchover", to)
    assert done.state == "succeeded", done
    await pair.until(lambda: pair.role(to) == "ACTIVE" and pair.role(OTHER[to]) == "STANDBY")


def kept(pair: Pair, name: str) -> list[Path]:
    return sorted((pair.root / name / FOLDER).glob("*/*"))


async def check(folder: Path, tmp_path: Path, moments: list[tuple[int, Rows]]) -> None:
    for number, (seq, wanted) in enumerate(moments):
        config = new_site(tmp_path / f"new {number}")
        await restore(folder, tmp_path / f"new {number}", WantedMoment(seq=seq))
        storage = await open_engine(config.engine, config.data_dir, config.pair, config.site)
        assert await rows_of(storage) == wanted, seq
        await storage.close()


async def moment(pair: Pair, name: str) -> tuple[int, Rows]:
    engine = site(pair, name).parts.engine
    return engine.applied.seq, await rows_of(engine)


async def test_the_chain_goes_on_behind_a_switchover_and_back(pair: Pair, tmp_path: Path) -> None:
    folder, moments = tmp_path / "backup", []
    first = (await back_up(pair, folder)).manifest
    active = "a"
    for _ in range(2):
        await write_much(pair, active)
        moments.append(await moment(pair, active))
        active = OTHER[active]
        await switch_over(pair, active)
        await write_much(pair, active)
        await followed(pair, active)
        moments.append(await moment(pair, active))
        assert kept(pair, OTHER[active])
        sites = PairSites(pair)
        taken = await back_up(sites, folder)
        assert (taken.is_new_base, sites.asked) == (False, ["log", *(["kept"] if active == "b" else ["kept", "kept"]), "log"])
        assert taken.manifest.base.id == first.base.id
        assert not kept(pair, OTHER[active])  # the backup has it
    await check(folder, tmp_path, moments)


async def test_several_changes_between_two_calls(pair: Pair, tmp_path: Path) -> None:
    folder, moments = tmp_path / "backup", []
    await back_up(pair, folder)
    for active in "aba":
        await write_much(pair, active)
        moments.append(await moment(pair, active))
        await switch_over(pair, OTHER[active])
    sites = PairSites(pair)
    assert not (await back_up(sites, folder)).is_new_base
    assert sites.asked.count("log") > 1
    await check(folder, tmp_path, moments)


async def test_the_former_active_comes_back_behind_a_failover(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    await back_up(pair, folder)
    await write_much(pair, "a")
    before = await moment(pair, "a")
    await followed(pair, "a")
    await pair.stop("a")
    assert (await pair.operate("b", "failover", "b")).state == "succeeded"
    await put(pair, "b", 1, "of b alone")
    said = "begin a new base.*no site has kept it: site a does not answer .once it follows, run the backup again.; site b keeps"
    with pytest.raises(Conflict, match=said):
        await back_up(pair, folder)
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "STANDBY")
    await pair.until(lambda: site(pair, "a").parts.engine.applied.seq == site(pair, "b").parts.engine.applied.seq)
    assert not (await back_up(pair, folder)).is_new_base
    await check(folder, tmp_path, [before, await moment(pair, "b")])


async def test_nothing_is_kept_without_a_backup_nor_behind_its_release(pair: Pair, tmp_path: Path) -> None:
    await write_much(pair, "a")
    await switch_over(pair, "b")
    assert not kept(pair, "a")
    manifest = (await back_up(pair, tmp_path / "backup")).manifest
    target, identity = manifest.target, manifest.identity
    for name in "ab":
        assert site(pair, name).parts.cursors.of_kind("backup")
        figures = site(pair, name).backup_holds.figures(BackupSettings(old_after_s=7))
        assert figures["last_backup_age_max_seconds"] == 7
        assert 0 <= figures["last_backup_age_seconds"] < 3600 < figures["last_backup_timestamp_seconds"]
        assert "last_backup_age_max_seconds" not in site(pair, name).backup_holds.figures(BackupSettings(old_after_s=0))
    await write_much(pair, "b")
    await switch_over(pair, "a")
    assert kept(pair, "b")
    for name in "ab":
        with pytest.raises(Refused, match="name the configuration of the backup's own pair"):
            await pair.running[name].service.backups.release(target, "f" * 16)
        assert site(pair, name).parts.cursors.of_kind("backup")
        await pair.running[name].service.backups.release(target, identity)
        assert not site(pair, name).parts.cursors.of_kind("backup")
        assert not kept(pair, name)
        assert site(pair, name).backup_holds.figures(BackupSettings()) == {}


async def test_what_is_kept_has_a_bound(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await back_up(pair, tmp_path / "backup")
    await write_much(pair, "a")
    monkeypatch.setattr(type(site(pair, "a").parts.wal), "backup_bytes_max", 100 << 10)
    await switch_over(pair, "b")
    assert sum(one.stat().st_size for one in kept(pair, "a")) <= 100 << 10
