"""The README is true: its tour, and before it the examples of pages in docs/, run against a real pair; what it names exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.needs import need_spark
from tools.sources import ROOT
from tools.tour import Block, TourError, blocks, go, script, stopped

README = (ROOT / "README.md").read_text(encoding="utf-8")
BEFORE_IT = ("api.md", "quick-start.md", "tutorial-apps.md", "tutorial-data.md")  # they leave site a the active


@pytest.mark.pair
@pytest.mark.long
def test_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair for all pages."""
    need_spark()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Java compiles less of its short jobs
    said = go("".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in BEFORE_IT) + README, tmp_path)
    before, after = said.split("$ twinlog failover --to b")
    assert re.findall(r"urn:twinlog:problem:([a-z-]+)", said) == ["precondition-failed"], "a seat is sold once"
    assert '"mode":"sync"' in before
    assert '"outcome":"survived"' in before
    apps, data = before.split("$ twinlog audit run compare")
    assert "12A is sold\n" in apps
    assert apps.count("outcome unknown; run this again") == apps.count("\nacknowledged: sync") == 1
    sold, held = re.findall(r"(\d+) seats were sold, and (\d+) are there", apps)[0]
    assert sold == held
    assert "Both sites are equal" in data
    assert "The logs are sound" in data
    assert "No row is left to repair" in data
    assert re.search(r"upsert\s*\|", data), "the log as a DataFrame"
    assert "here to stay" in after, "the row that was acknowledged before the loss is read after it"
    assert "written at b" in after.split("$ twinlog switchover --to a")[1], "what b took is at a after the way back"


@pytest.mark.pair
@pytest.mark.long
def test_the_tour_with_tls(tmp_path: Path) -> None:
    said = go(README, tmp_path, tls=True)
    assert '"mode":"sync"' in said
    assert "over TLS" in said.split("$ curl")[-1], "the row is read under the new certificate"
    assert "this port speaks TLS" in said


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)|^make ([a-z]+)$", README, re.MULTILINE))
    assert {one or other for one, other in named} <= targets


def test_every_file_that_is_linked_or_tabled_exists() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    rows = re.findall(r"^\| (`[^|]*/`[^|]*) \|", README, re.MULTILINE)
    folders = [name for row in rows for name in re.findall(r"`(.*?)`", row)]
    assert len(linked) > 5
    assert len(folders) > 5
    assert [name for name in [*linked, *folders] if not (ROOT / name).exists()] == []


def test_blocks_are_found_with_their_notes_and_lines() -> None:
    text = "a\n<!-- tour: exits 3 -->\n```sh\none\ntwo\n```\nb\n```json\nno\n```\n```sh\nthree\n```\n"
    text += "<!-- tour: tls exits 1 -->\n```sh\nfour\n```\n"
    found = [Block(4, "exits 3", "one\ntwo"), Block(12, "", "three"), Block(16, "exits 1", "four", tls=True)]
    assert blocks(text) == found
    assert ("four" in script(found, (1, 2)), "four" in script(found, (1, 2), tls=True)) == (False, True)
    assert "three" not in script(found, (1, 2), tls=True)


def test_a_file_that_the_reader_saves_is_written_as_it_stands(tmp_path: Path) -> None:
    text = "<!-- tour: file a.py -->\n```python\nprint('8401', \"$HOME\")\n```\n```python\nno\n```\n```sh\npython3 a.py\n```\n"
    found = blocks(text)
    assert found == [Block(3, "file a.py", "print('8401', \"$HOME\")"), Block(9, "", "python3 a.py")]
    done = subprocess.run(["bash", "-c", script(found, (9001, 9002))], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "\n9001 $HOME\n" in done.stdout


def test_an_unknown_note_is_refused() -> None:
    with pytest.raises(TourError, match="sometimes"):
        blocks("<!-- tour: sometimes -->\n```sh\nx\n```\n")


@pytest.mark.parametrize(("code", "why"), [(None, "did not end within 9 s"), (7, "ended with exit code 7")])
def test_the_first_line_says_why_and_where_the_tour_ended(code: int | None, why: str) -> None:
    """The output begins with an empty line: an error that began with it looked like one without words."""
    text = stopped("\n\n$ one\nsaid\n\n$ two\n", code, 9)
    assert text.splitlines()[0] == f"the tour {why}, in the block that ends with `two`:"
    assert stopped("", code, 9).splitlines()[0] == f"the tour {why}, before its first block:"


@pytest.mark.parametrize(("found", "code"), [
    ([Block(1, "", "export A=8401"), Block(2, "", 'test "$A" = 9001')], 0),
    ([Block(1, "shown", "exit 9"), Block(2, "pair", "exit 9")], 0),
    ([Block(1, "exits 4", "(exit 4)")], 0),
    ([Block(1, "exits 4", "true")], 1),
    ([Block(1, "exits 4", "(exit 3)\n(exit 4)")], 1),
    ([Block(7, "", "false\ntrue"), Block(8, "", "echo not reached")], 1),
    ([Block(7, "", "true\nfalse"), Block(8, "", "echo not reached")], 1),
    ([Block(7, "", "false | true"), Block(8, "", "echo not reached")], 1),
])
def test_the_script_stops_where_a_block_fails(found: list[Block], code: int) -> None:
    done = subprocess.run(["bash", "-c", script(found, (9001, 9002))], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert "\nnot reached" not in done.stdout
    assert ("expected" in done.stdout) == (code != 0)
