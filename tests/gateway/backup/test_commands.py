"""`twinlog backup prune` and `release` as an operator meets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.backup.rig import target_at
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.two_sites import TwoSites
from tests.storage.backup.test_pruning import a_place


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Four bases, without the files that they name."""
    async def make() -> None:
        async with target_at(tmp_path / "shop") as target:
            for one in a_place([3, 4, 5, 8]):
                await target.publish(one)

    asyncio.run(make())
    return str(tmp_path / "shop")


@pytest.fixture
def sites() -> Iterator[TwoSites]:
    with TwoSites() as pair:
        yield pair


def bases(place: str) -> list[dict[str, Any]]:
    return list(json.loads(invoke("backup", "ls", place, "--json").output)["bases"])


def test_a_prune_shows_first_and_removes_when_it_is_told(place: str) -> None:
    before = bases(place)
    shown = invoke("backup", "prune", place, "--keep", "1", "--dry-run")
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:5]] == ["goes", "goes", "goes", "stays"]
    assert "3 bases would go, each with its log" in shown.output
    asked = invoke("backup", "prune", place, "--keep", "1")  # nobody answers
    assert asked.exit_code == 1
    assert bases(place) == before
    done = json.loads(invoke("backup", "prune", place, "--keep", "1", "--yes", "--json").output)
    assert (done["is_done"], done["go"], done["stay"]) == (True, before[:3], before[3:])
    assert bases(place) == before[3:]
    assert "0 bases would go" in invoke("backup", "prune", place, "--keep", "1").output


@pytest.mark.parametrize(("options", "said"), [
    ([], "either --keep N, or --older-than 30d"), (["--keep", "1", "--older-than", "1d"], "either --keep N"),
    (["--older-than", "3w"], "days or hours, such as 30d or 12h"), (["--keep", "-1"], "at least 1"),
])
def test_what_is_to_go_is_said_exactly(place: str, options: list[str], said: str) -> None:
    refused = invoke("backup", "prune", place, *options)
    assert refused.exit_code in (1, 2)
    assert said in refused.output


def test_a_backup_is_released_at_both_sites(place: str, sites: TwoSites) -> None:
    address = ",".join(sites.urls.values()) if isinstance(sites.urls, dict) else str(sites.urls)
    done = invoke("backup", "release", place, "--config", address)
    assert done.exit_code == 0, done.output
    assert [f"Site {site} keeps no log for" in done.output for site in "ab"] == [True, True]
    assert len(bases(place)) == 4
