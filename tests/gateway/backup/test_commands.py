"""`twinlog backup prune` and `release` as an operator meets them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from gateway.backup.commands import parse_moment
from gateway.backup.progress import amount
from gateway.backup.restoring import Restorer
from gateway.backup.taking import BackupTaker
from gateway.backup.terminal_progress import TerminalProgress
from storage.backup.manifest import WantedMoment
from storage.log.encryption import Keyring, LogKey
from tests.gateway.backup.rig import new_site, target_at
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.two_sites import TwoSites
from tests.storage.backup.test_pruning import a_place


def made_place(folder: Path, identity: str) -> str:
    """Four bases of that pair, without the files that they name."""
    async def make() -> None:
        async with target_at(folder / "shop") as target:
            for one in a_place([3, 4, 5, 8]):
                await target.publish(replace(one, identity=identity))

    asyncio.run(make())
    return str(folder / "shop")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return made_place(tmp_path, "1" * 16)


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
    assert [line.split()[0] for line in shown.output.splitlines()[2:10:2]] == ["goes", "goes", "goes", "stays"]
    assert "3 bases would go, each with its log" in shown.output
    asked = invoke("backup", "prune", place, "--keep", "1")  # nobody answers
    assert asked.exit_code == 1
    assert bases(place) == before
    done = json.loads(invoke("backup", "prune", place, "--keep", "1", "--yes", "--json").output)
    assert (done["is_done"], done["go"], done["stay"]) == (True, before[:3], before[3:])
    assert bases(place) == before[3:]
    assert "0 bases would go" in invoke("backup", "prune", place, "--keep", "1").output


@pytest.mark.parametrize("command", [["ls"], ["prune", "--keep", "1", "--dry-run"]])
def test_a_moment_is_whole_on_a_narrow_terminal(place: str, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`restore --at` takes what is shown, the sequence too."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("backup", command[0], place, *command[1:]).output
    for base in bases(place):
        assert (base["begin"]["at"] in shown, base["end"]["at"] in shown) == (True, True)
    assert parse_moment("50,130") == WantedMoment(seq=50130)


def test_the_key_of_each_base_is_listed(place: str) -> None:
    async def make() -> None:
        ring = Keyring("--key", (LogKey("2026-11", b"k" * 32),), lambda count: b"n" * count)
        async with target_at(Path(place), ring) as target:
            newest = (await target.held())[-1]
            later = replace(newest.base, id="later", point=newest.end)
            await target.publish(replace(newest, number=newest.number + 1, base=later, log=[], key_id="2026-11"))

    assert "key" not in invoke("backup", "ls", place).output
    asyncio.run(make())
    lines = invoke("backup", "ls", place).output.splitlines()
    assert lines[1].split()[-1] == "key"
    assert lines[-2].split()[-1] == "2026-11"


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A place in which a first base was killed."""
    async def make() -> None:
        async with target_at(tmp_path / "my shop") as target:
            await target.mark("1-50-ab", 1)
            await target.dfs.create_file("/base-1-50-ab/rows-000001", b"7" * 2048)

    asyncio.run(make())
    return str(tmp_path / "my shop")


@pytest.mark.parametrize("command", [["ls"], ["verify"], ["prune", "--keep", "1"], ["release", "--config", "http://a,http://b"]])
def test_a_place_without_a_manifest_says_what_is_there(broken: str, command: list[str]) -> None:
    said = invoke("backup", command[0], broken, *command[1:])
    assert said.exit_code == 1
    assert (
        f"{broken} holds no backup that is whole: no manifest is there; 2.0 KiB there belong to a backup that runs now or did"
        f" not end: where none runs, `twinlog backup prune '{broken}' --unfinished` removes them"
    ) in " ".join(said.output.split())


def test_what_did_not_end_is_listed_and_removed_by_command(place: str, broken: str) -> None:
    (Path(broken) / "manifests").symlink_to(Path(place) / "manifests")  # and the same with a manifest
    for is_whole in (True, False):
        if not is_whole:
            (Path(broken) / "manifests").unlink()
            (Path(broken) / "base-1-50-ab").mkdir()
            (Path(broken) / "base-1-50-ab/rows-000001").touch()
        else:
            newest = json.loads(invoke("backup", "ls", broken, "--json").output)
            assert [one["base_id"] for one in newest["unfinished"]] == ["1-50-ab"]
            assert "2.0 KiB there belong to a backup that runs now or did not end" in invoke("backup", "ls", broken).output
        assert "1 unfinished base:" in invoke("backup", "prune", broken, "--unfinished", "--dry-run").output
        assert invoke("backup", "prune", broken, "--unfinished").exit_code == 1  # nobody answers
        assert len(list(Path(broken).glob("base-*/rows-*"))) == 1
        done = invoke("backup", "prune", broken, "--unfinished", "--yes")
        assert (done.exit_code, "Removed: 1 unfinished base." in done.output) == (0, True)
        assert list(Path(broken).glob("base-*")) == []
    assert "0 unfinished bases" in invoke("backup", "prune", broken, "--unfinished").output


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_restore_that_is_stopped_says_what_it_leaves(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    async def restore(self: Restorer, moment: WantedMoment) -> None:
        self.is_whole = is_whole
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(Restorer, "restore", restore)
    new_site(tmp_path / "new")
    ended = invoke("restore", "--from", place, "--config", str(tmp_path / "new/site.toml"))
    assert ended.exit_code == 130
    said = "all is restored already; start both sites" if is_whole else "run the restore again, and it begins anew"
    assert f"{said}." in " ".join(ended.output.split())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "twinlog.terminal.notes", lambda: Console(file=screen, force_terminal=is_terminal, width=80, color_system=None)
    )
    for rows in (50, 130):  # the total is an estimate
        with TerminalProgress(lines=True) as progress:
            progress.begin("reading all rows from site a")
            progress.reached(rows, 100, amount(2048, rows, 100))
    shown = screen.getvalue()
    assert shown.count("reading all rows from site a\n") == 2
    for text in (" 50% 50 of about 100 rows, 2.0 KiB 0:00:0", " 99% 130 rows, 2.0 KiB 0:00:0"):
        assert (text in shown) is is_terminal
    assert is_terminal or shown.count("\n") == 2


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_backup_that_is_stopped_says_what_it_leaves(
    tmp_path: Path, sites: TwoSites, monkeypatch: pytest.MonkeyPatch, signal_number: int
) -> None:
    async def take(self: BackupTaker, *, new_base: bool) -> None:
        os.kill(os.getpid(), signal_number)
        await asyncio.Event().wait()

    monkeypatch.setattr(BackupTaker, "take", take)
    ended = invoke("backup", "--to", str(tmp_path / "there"), "--config", ",".join(sites.urls.values()))
    assert ended.exit_code == 130
    assert "Stopped: what the place held before is whole; run the backup again." in ended.output


def test_a_file_is_no_place(tmp_path: Path, sites: TwoSites) -> None:
    (tmp_path / "file").touch()
    refused = invoke("backup", "--to", str(tmp_path / "file"), "--config", ",".join(sites.urls.values()))
    assert refused.exit_code == 1
    assert "is no directory: name one, or a name that is free" in " ".join(refused.output.split())


@pytest.mark.parametrize(("options", "said"), [
    ([], "either --keep N, or --older-than 30d, or --unfinished"), (["--keep", "1", "--older-than", "1d"], "either --keep N"),
    (["--older-than", "3w"], "days or hours, such as 30d or 12h"), (["--keep", "-1"], "at least 1"),
])
def test_what_is_to_go_is_said_exactly(place: str, options: list[str], said: str) -> None:
    refused = invoke("backup", "prune", place, *options)
    assert refused.exit_code in (1, 2)
    assert said in " ".join(refused.output.split())


def test_a_backup_is_released_at_both_sites(place: str, sites: TwoSites) -> None:
    done = invoke("backup", "release", place, "--config", ",".join(sites.urls.values()))
    assert done.exit_code == 0, done.output
    assert [f"Site {site} keeps no log for" in done.output for site in "ab"] == [True, True]
    assert len(bases(place)) == 4


def test_another_pair_than_that_of_the_backup_releases_nothing(tmp_path: Path, sites: TwoSites) -> None:
    place = made_place(tmp_path, "2" * 16)
    refused = invoke("backup", "release", place, "--config", ",".join(sites.urls.values()))
    assert (refused.exit_code, "the backup of another pair" in refused.output) == (1, True), refused.output
