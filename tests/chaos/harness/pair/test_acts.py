"""An act by hand is one that the handbook names, for what a site itself says, and never on the only copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.harness.pair import acts
from chaos.harness.pair.acts import Acts
from chaos.harness.pair.commands import Typed
from chaos.harness.pair.files.copies import COORDINATOR
from chaos.harness.pair.files.spoiled import Damage
from chaos.harness.pair.sites import RealSites

HANDBOOK = Path(__file__).resolve().parents[4] / "docs" / "operations.md"


class Operator:
    """Commands that are typed, and do nothing."""

    def __init__(self) -> None:
        self.typed: list[str] = []

    async def run(self, *words: str, why: str) -> Typed:
        self.typed.append(" ".join(words))
        return Typed(" ".join(words), why, 0, 0, 0, "")


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealSites:
    sites = RealSites(tmp_path)
    monkeypatch.setattr(sites, "start", lambda site: None)
    for name in ("a/data/wal/1", "a/data/cursors/holders.json", "b/data/wal/1", "b/dfs/demo/0/1/1.1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(9))
    return sites


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def hands(sites: RealSites, operator: Operator) -> Acts:
    return Acts(sites, operator, lambda line: None)  # type: ignore[arg-type]


def pair(a: str | None = "ACTIVE", b: str | None = "STANDBY", waits: str = "") -> dict[str, dict[str, Any]]:
    return {site: {"role": role, "waiting_for": waits if site == "a" else None} for site, role in (("a", a), ("b", b)) if role}


@pytest.mark.parametrize("quote", ["HOLDERS", "MARK", "WAL", "STORAGE", "REMOTE", "NEWEST", "DATABASE"])
def test_the_handbook_has_these_words(quote: str) -> None:
    text = " ".join(HANDBOOK.read_text().lower().replace("**", "").replace("\n", " ").split())
    for words in getattr(acts, quote).split(" ... "):
        assert words.lower() in text, words


async def test_a_site_with_a_damaged_wal_is_emptied_once_the_other_one_is_the_active(hands: Acts, sites: RealSites) -> None:
    sites.lives["a"].refused = "damaged-log: wal/000000000001-00000001: the frame at offset 64 is damaged"
    assert not await hands.help(pair(None, "STANDBY"))
    assert sites.data_dir("a").exists()
    assert await hands.help(pair(None, "DOWNGRADE_ACTIVE"))
    assert not sites.data_dir("a").exists()
    assert sites.data_dir("b").exists()


async def test_a_closed_site_with_a_damaged_storage_is_emptied_too(hands: Acts, sites: RealSites) -> None:
    documents = pair("CLOSED", "ACTIVE", "the storage cannot be opened anew: Corruption: block checksum mismatch")
    assert await hands.help(documents)
    assert not sites.data_dir("a").exists()


async def test_a_site_is_not_emptied_for_a_remote_log_that_it_cannot_read(hands: Acts, sites: RealSites) -> None:
    said = "damaged-log: /demo/0/000000000001/000000000001-00000001.1: the frame at offset 512 is damaged"
    assert not await hands.help(pair("CLOSED", "ACTIVE", said))
    assert sites.data_dir("a").exists()


@pytest.mark.parametrize("name", ["cursors/holders.json", "register/met.json"])
async def test_of_a_damaged_small_file_that_file_alone_goes(hands: Acts, sites: RealSites, name: str) -> None:
    path = sites.data_dir("a") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    sites.lives["a"].refused = f"damaged-log: {name} is damaged: its checksum does not fit"
    assert await hands.help(pair(None, "STANDBY"))
    assert not path.exists()
    assert (sites.data_dir("a") / "wal/1").exists()


async def test_the_newest_database_is_put_back(hands: Acts, sites: RealSites, tmp_path: Path) -> None:
    sites.coordinator.write_text("older")
    newest = tmp_path / "newest"
    newest.mkdir()
    (newest / "coordinator.db").write_text("newest")
    assert not await hands.help(pair("CLOSED", waits="the register went back: it is at 12"))
    sites.spoiled.newest[COORDINATOR] = newest
    assert not await hands.help(pair())
    assert await hands.help(pair("CLOSED", waits="the register went back: it is at 12"))
    assert sites.coordinator.read_text() == "newest"


async def test_the_newest_copy_of_a_disk_is_put_back(hands: Acts, sites: RealSites, tmp_path: Path) -> None:
    newest = tmp_path / "newest"
    (newest / "data/wal").mkdir(parents=True)
    (newest / "data/wal/2").write_text("newest")
    sites.spoiled.newest["a", "disk"] = newest
    assert not await hands.help(pair("CLOSED", waits="the coordinator"))
    assert await hands.help(pair("CLOSED", waits="reported to the register that it had committed 120"))
    assert (sites.data_dir("a") / "wal/2").read_text() == "newest"
    assert not (sites.data_dir("a") / "wal/1").exists()


async def test_a_healthy_pair_is_left_alone(hands: Acts) -> None:
    assert not await hands.help(pair())
    assert not await hands.mend_unseen(pair())


def damage(sites: RealSites, part: str, name: str, *, is_cut: bool = False) -> Damage:
    path = sites.folder / name
    found = Damage("a", part, path, 4, b"\0", is_cut, sites.lives["a"].starts)
    path.write_bytes(bytes(4) if is_cut else bytes([0, 0, 0, 0, 1, 0]))
    sites.spoiled.damages.append(found)
    return found


async def test_damage_that_nobody_has_read_is_mended_at_a_standby(hands: Acts, sites: RealSites, operator: Operator) -> None:
    damage(sites, "wal", "a/data/wal/1")
    assert await hands.mend_unseen(pair())
    assert operator.typed == ["switchover --to b"]
    assert await hands.mend_unseen(pair("STANDBY", "ACTIVE"))
    assert not sites.data_dir("a").exists()
    assert not await hands.mend_unseen(pair("STANDBY", "ACTIVE"))
    assert sites.spoiled.unreported == []


async def test_a_start_on_a_turned_bit_of_the_wal_is_a_find(hands: Acts, sites: RealSites) -> None:
    damage(sites, "wal", "a/data/wal/1")
    sites.lives["a"].starts += 1
    assert not await hands.mend_unseen(pair())
    assert len(sites.spoiled.unreported) == 1


async def test_a_site_that_answers_has_read_its_wal_whatever_its_role(hands: Acts, sites: RealSites) -> None:
    damage(sites, "wal", "a/data/wal/1")
    hands.look(pair("CLOSED"))
    sites.lives["a"].starts += 1
    hands.look(pair(None))
    assert sites.spoiled.unreported == []
    hands.look(pair("CLOSED"))
    hands.look(pair("CLOSED"))
    assert len(sites.spoiled.unreported) == 1


async def test_a_start_mends_a_wal_that_was_cut(hands: Acts, sites: RealSites) -> None:
    damage(sites, "wal", "a/data/wal/1", is_cut=True)
    sites.lives["a"].starts += 1
    assert not await hands.mend_unseen(pair())
    assert sites.spoiled.unreported == []


async def test_a_damaged_remote_log_goes_with_one_restart_of_its_active(
    hands: Acts, sites: RealSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted: list[str] = []
    monkeypatch.setattr(sites, "start", restarted.append)
    there = damage(sites, "remote", "b/dfs/demo/0/1/1.1")
    assert await hands.mend_unseen(pair())
    assert await hands.mend_unseen(pair())
    assert restarted == ["a"]
    there.path.unlink()
    assert not await hands.mend_unseen(pair())
