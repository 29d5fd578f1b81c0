"""A site that is started otherwise: each wrong file differs where it should, and the right one comes back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults import changed
from chaos.harness.faults.changed import BEFORE, CONFIG, WRONG, begin_with, exported
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import BY_NAME, effect_of
from chaos.harness.pair.sites import RealSites
from gateway.config.loading import load_site_config
from twinlog.errors import InvalidInput, Unavailable


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealSites:
    sites = RealSites(tmp_path)
    sites.configure()
    started: list[tuple[Path | None, Path | None]] = []
    monkeypatch.setattr(
        sites, "start_and_hear", lambda site: (started.append((sites.lives[site].config, sites.lives[site].tree)), "refused")[1]
    )
    monkeypatch.setattr(sites, "started", started, raising=False)
    return sites


def leaves(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= leaves(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize(("how", "keys"), [
    ("peer-is-itself", {"peer.url"}), ("pair", {"pair"}), ("site", {"site", "peer.site"}),
    ("site-anew", {"site", "peer.site", "data_dir"}), ("dfs-swapped", {"dfs.own.path", "dfs.peer.path"}),
    ("dfs-own-twice", {"dfs.peer.path"}), ("engine", {"engine.kind"}), ("data-dir", {"data_dir"}), ("port", {"http.port"}),
    ("coordinator", {"coordinator.url"}), ("policy", {"policy"}),
])
def test_a_wrong_file_differs_in_what_its_name_says(sites: RealSites, site: str, how: str, keys: set[str]) -> None:
    right = (sites.folder / site / "site.toml").read_text()
    before, after = leaves(tomllib.loads(right)), leaves(tomllib.loads(WRONG[how](right, site, sites)))
    assert before.keys() == after.keys()
    assert {key for key in before if before[key] != after[key]} == keys


def test_each_wrong_value_is_tested() -> None:
    marks = [mark for mark in test_a_wrong_file_differs_in_what_its_name_says.pytestmark if "how" in str(mark.args[0])]  # type: ignore[attr-defined]
    assert {how for how, _ in marks[0].args[1]} == set(WRONG)


async def test_the_wrong_file_lies_beside_the_right_one_and_goes_with_the_fault(sites: RealSites) -> None:
    right = (sites.folder / "b/site.toml").read_text()
    stage = Stage(sites, None, None, lambda: "a")  # type: ignore[arg-type]
    effect = effect_of(Fault(1, CONFIG, "standby", 2, "port"), stage)
    assert await effect.why_not() == ""
    assert await effect.inject() == "site b refused: refused"
    assert await effect.heal() != ""
    sites.lives["b"].config = sites.folder / "b/other.toml"
    assert await effect.why_not() == "site b is started otherwise already"
    wrong = sites.folder / "b/wrong.toml"
    assert sites.started == [(wrong, None), (None, None)]  # type: ignore[attr-defined]
    assert (sites.folder / "b/site.toml").read_text() == right
    assert load_site_config(wrong).http.port == sites.ports["a"]
    assert sites.lives["b"].may_refuse


def test_a_release_at_second_0_is_that_of_the_first_start(sites: RealSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed, "exported", lambda commit, folder: folder / commit)
    begin_with([Fault(0, "release", "b", 5, BEFORE), Fault(3, "release", "a", 5, BEFORE), Fault(0, "crash", "a")], sites)
    assert (sites.lives["a"].tree, sites.lives["b"].tree) == (None, sites.folder / BEFORE)


def test_the_gateway_of_a_commit_is_a_tree_of_its_own(tmp_path: Path) -> None:
    assert (exported("HEAD", tmp_path) / "gateway/app.py").exists()
    with pytest.raises(Unavailable, match="unshallow"):
        exported("0123456", tmp_path)


@pytest.mark.parametrize("how", ["", "HEAD", "-x", "main"])
def test_a_release_is_a_commit(how: str) -> None:
    with pytest.raises(InvalidInput):
        BY_NAME["release"].checked(Fault(1, "release", "a", 2, how))
