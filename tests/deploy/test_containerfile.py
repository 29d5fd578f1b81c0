"""The Containerfile passes hadolint without an exception, and its own commands do what it says. No builder is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gateway.cli.verbs import VERBS
from tests.tools.test_dependencies import PINNED
from tools.sources import ROOT

FILE = ROOT / "docs" / "deploy" / "Containerfile"
TEXT = FILE.read_text(encoding="utf-8")


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    hadolint = Path(sys.executable).with_name("hadolint")
    return subprocess.run(
        [str(hadolint), "--no-color", "--failure-threshold", "style", str(path)], capture_output=True, text=True, check=False
    )


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    done = lint(FILE)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    worse = tmp_path / "Containerfile"
    worse.write_text(TEXT.replace("USER 10001:10001\n", "USER root\n"))
    assert lint(worse).returncode == 1
    assert "hadolint ignore" not in TEXT


def test_the_pins_of_the_image_are_those_of_the_lock_without_hashes(tmp_path: Path) -> None:
    """By the very `sed` of the Containerfile."""
    (command,) = re.findall(r"sed -E '[^']*'", TEXT)
    (tmp_path / "main.txt").write_text((ROOT / "requirements" / "main.txt").read_text())
    made = subprocess.run(["sh", "-c", f"{command} main.txt"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^([a-z0-9.-]+)==\S+( ;.*)?$", made, re.MULTILINE)) >= {(name, "") for name in ("httpx", "msgspec")}
    assert {line.partition("==")[0] for line in made.splitlines()} == PINNED
    assert not re.search(r"--hash|\\", made)


def test_its_base_needs_no_python_but_that_of_debian() -> None:
    """Debian has `python3`, and no `python`."""
    called = [line for line in TEXT.splitlines() if re.search(r"(RUN|&&) python\b", line)]
    assert called == []


def test_each_builder_is_asked_for_the_format_that_has_a_health_check() -> None:
    """The default of podman and buildah leaves HEALTHCHECK out, with a warning."""
    pages = [FILE, *(ROOT / "docs").glob("*.md")]
    builds = [build for page in pages for build in re.findall(r"(?:podman|buildah) (?:build|bud) [^`\n]*", page.read_text())]
    assert len(builds) == 2
    assert "HEALTHCHECK" in TEXT
    assert [build for build in builds if "--format docker" not in build] == []


def test_it_runs_the_verb_that_serves_as_no_user_of_the_system() -> None:
    assert re.search(r'^CMD \["serve", "--config", "/etc/twinlog/site.toml"\]$', TEXT, re.MULTILINE)
    assert "serve" in VERBS
    assert TEXT.index("USER 10001:10001") > TEXT.index("useradd --uid 10001")
    (check,) = re.findall(r"CMD \[\"python\", \"-c\", \"(.*)\"\]", TEXT)
    compile(check, "HEALTHCHECK", "exec")
