"""`twinlog trail` on the files of a site whose gateway is dead: what it shows, and what it proves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.files import write_files
from gateway.trail.chain import FOLDER, file_name
from gateway.trail.entry import Who
from gateway.trail.events import BEGUN, DROP, PEER_CHANGE, PEER_HEAD, STARTED
from storage.disk.os_files import OsFiles
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.trail.trail_rig import ANNA, SITE, opened

EVE = Who("eve\x1b[2J", "token", "10.0.0.9", "eve\u202e@host[bold]")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COLUMNS", raising=False)  # else lines are folded
    (tmp_path / "a" / "data").mkdir(parents=True)
    return write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]


@pytest.fixture
async def folder(config: Path) -> Path:
    """A trail of two lives; the first one ended in the middle of an act."""
    data = config.parent / "data"
    if not data.is_dir():
        data = config.parent / "a" / "data"
    files = OsFiles(data)
    async with opened(files) as trail:
        await trail.write(DROP, EVE, "begun", {"table": "t\r\x1b[31m"})
    async with opened(files) as trail:
        await trail.write(STARTED, SITE)
        options = {"accept_data_loss": 12, "reason": "\x1b]0;gone\x07"}
        begun = await trail.write(BEGUN, ANNA, "begun", {"kind": "failover", "to": "a", "options": options}, operation="o-1")
        await trail.write("operation.ended", ANNA, "done", {"kind": "failover", "to": "a"}, operation="o-1", of=begun)
    await files.close()
    return data / FOLDER


def spoil(folder: Path, change: Callable[[bytes], bytes], number: int = 2) -> None:
    path = folder / file_name(number)
    path.write_bytes(change(path.read_bytes()))


def asked(config: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
    result = invoke("trail", "--config", str(config), "--json", *more)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_entries_are_shown_and_the_chain_is_sound(config: Path, folder: Path) -> None:
    result = invoke("trail", "--config", str(config))
    assert result.exit_code == 0
    for text in (BEGUN, "failover to a", "accept_data_loss", "anna (token, 10.0.0.7)", "says anna@laptop", "sound: 6 lines"):
        assert text in result.output, text
    assert "unknown: number 2, table.drop, has no end" in result.output


def test_no_control_character_of_whoever_asked_reaches_the_terminal(config: Path, folder: Path) -> None:
    for more in ((), ("--json",), ("--verify",)):
        said = invoke("trail", "--config", str(config), *more).output
        assert not any(character in said for character in "\x1b\x07\u202e\r"), more
    assert "@host[bold]" in invoke("trail", "--config", str(config)).output


def test_a_line_that_was_changed_ends_with_1_and_is_named(config: Path, folder: Path) -> None:
    spoil(folder, lambda data: data.replace(b'"accept_data_loss":12', b'"accept_data_loss":10'))
    result = invoke("trail", "--config", str(config), "--verify")
    assert result.exit_code == 1
    assert f"{folder / file_name(2)}, line 3: number 5 does not continue number 4" in result.output
    code, lines = asked(config, "--verify")
    assert (code, lines[0]["sound"]) == (1, False)
    assert [(fault["file"], fault["line"]) for fault in lines[0]["faults"]] == [(file_name(2), 3)]
    assert invoke("trail", "--config", str(config)).exit_code == 1


def test_an_end_that_was_cut_is_found_by_the_log_and_by_the_other_site(config: Path, folder: Path, tmp_path: Path) -> None:
    _, lines = asked(config, "--verify")
    number, digest = lines[0]["head"]["number"], lines[0]["head"]["sha256"]
    log = tmp_path / "a.log"
    log.write_text(
        "no json\n" + json.dumps({"event": "trail", "site": "b", "number": 99, "sha256": "0" * 64}) + "\n"
        + json.dumps({"event": "trail", "site": "a", "number": number, "sha256": digest}) + "\n"
    )
    assert asked(config, "--verify", "--against", str(log))[0] == 0
    spoil(folder, lambda data: b"".join(data.splitlines(keepends=True)[:-1]))
    assert asked(config, "--verify")[0] == 0
    code, lines = asked(config, "--verify", "--against", str(log))
    assert (code, lines[0]["known_elsewhere"]) == (1, 1)
    assert "its end was cut" in lines[0]["faults"][0]["what"]


@pytest.mark.parametrize("event", [PEER_CHANGE, PEER_HEAD])
async def test_the_other_sites_trail_knows_lines_of_this_one(config: Path, folder: Path, tmp_path: Path, event: str) -> None:
    other = OsFiles(tmp_path / "other")
    (tmp_path / "other").mkdir()
    async with opened(other) as trail:
        await trail.write(event, Who("site a", "site"), what={"number": 4, "sha256": "0" * 64})
        await trail.write(event, Who("site c", "site"), what={"number": 4, "sha256": "1" * 64})
    await other.close()
    code, lines = asked(config, "--verify", "--against", str(tmp_path / "other" / FOLDER))
    assert (code, lines[0]["known_elsewhere"]) == (1, 1)
    assert "is another line than the one that was known elsewhere" in lines[0]["faults"][0]["what"]


def test_since_and_limit_choose_the_newest(config: Path, folder: Path) -> None:
    assert [line["number"] for line in asked(config, "--limit", "2")[1][:-1]] == [5, 6]
    assert len(asked(config, "--limit", "0")[1]) == 7
    assert len(asked(config, "--since", "1h")[1]) == 7
    assert len(asked(config, "--since", "2099-01-01T00:00Z")[1]) == 1
    assert invoke("trail", "--config", str(config), "--since", "yesterday").exit_code == 2


def test_archived_files_are_no_fault_where_somebody_says_so(config: Path, folder: Path) -> None:
    (folder / file_name(1)).unlink()
    assert asked(config, "--verify")[0] == 1
    assert asked(config, "--verify", "--begins-at", "3")[0] == 0


def test_a_site_without_a_trail_says_so(config: Path) -> None:
    result = invoke("trail", "--config", str(config))
    assert result.exit_code == 1
    assert "trail" in result.output


def test_a_chain_is_not_proven_over_http(config: Path) -> None:
    assert invoke("trail", "--config", str(config), "--site", "a", "--verify").exit_code == 2
