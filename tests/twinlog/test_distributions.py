"""Both wheels hold what they must, and the one for apps works alone.

`installed` is a fresh environment without an installer: the wheel's files and a link to every distribution that it needs, and
nothing else on Python's path.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tools.test_dependencies import canonical
from tests.twinlog.conftest import Built
from tools.address_check import complaints
from tools.laws.import_law import PACKAGES
from tools.sources import ROOT, repository_files
from twinlog.cli.main import all_verbs
from twinlog.cli.verbs import VERBS

PACKAGES_MAX = 17  # twinlog itself is one of them
ELSEWHERE = re.compile(r"extra|win32|Windows")  # in a marker: of an extra, or of another system
ROOMS = set(PACKAGES) - {"twinlog"}
INSTALLED = {canonical(one.name) for one in importlib.metadata.distributions()}
VERSION = tomllib.loads((ROOT / "twinlog" / "pyproject.toml").read_text())["project"]["version"]
IMPORT_ALL = (
    "import importlib, pkgutil, twinlog\n"
    "from twinlog import AsyncClient, Client, errors\n"
    "for module in pkgutil.walk_packages(twinlog.__path__, 'twinlog.'):\n"
    "    module.name.endswith('__main__') or importlib.import_module(module.name)\n"
)


def names_of(wheel: Path) -> set[str]:
    return {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}


def read(wheel: Path, name: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (path,) = [path for path in archive.namelist() if path.endswith(f".dist-info/{name}")]
    return archive.read(path).decode()


def needed(names: set[str]) -> set[str]:
    """The distributions `names`, and all that they need on Linux: those that are not here are for other machines."""
    found: set[str] = set()
    while left := names - found:
        name = left.pop()
        found.add(name)
        required = [one for one in importlib.metadata.requires(name) or () if not ELSEWHERE.search(one.partition(";")[2])]
        names = names | ({canonical(one) for one in required} & INSTALLED)
    return found


@pytest.fixture
def app_wheel(built: Built) -> Path:
    return built.app


@pytest.fixture
def server_wheel(built: Built) -> Path:
    return built.server


@pytest.fixture
def installed(app_wheel: Path, tmp_path: Path) -> Path:
    """The folder to put on Python's path."""
    site = tmp_path / "site"
    zipfile.ZipFile(app_wheel).extractall(site)
    for name in needed({canonical(line) for line in requirements(app_wheel)}):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return site


def requirements(wheel: Path) -> list[str]:
    return re.findall(r"^Requires-Dist: ([^;\n]+)$", read(wheel, "METADATA"), re.MULTILINE)


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with `site` and its own library alone."""
    environ = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"], "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-S", *arguments], cwd=site.parent, env=environ, capture_output=True, text=True, check=False
    )


def verbs_of(site: Path) -> set[str]:
    shown = run(site, "-m", "twinlog", "--help")
    assert shown.returncode == 0, shown.stderr
    return set(re.findall(r"^│ ([a-z][a-z-]+) ", shown.stdout, re.MULTILINE))


def files_of(*tops: str) -> set[str]:
    return {str(path) for path in repository_files(ROOT) if path.parts[0] in tops}


def inside(wheel: Path, *tops: str) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.split("/")[0] in tops}


def test_the_wheel_of_apps_holds_one_name_and_its_types(app_wheel: Path) -> None:
    assert names_of(app_wheel) == {"twinlog", f"twinlog-{VERSION}.dist-info", f"twinlog-{VERSION}.data"}
    project = {"twinlog/pyproject.toml", "twinlog/README.md", "twinlog/LICENSE"}
    assert inside(app_wheel, "twinlog") == files_of("twinlog") - project
    assert "twinlog/py.typed" in inside(app_wheel, "twinlog")
    assert {canonical(line) for line in requirements(app_wheel)} == {"httpx", "msgspec", "rich", "sniffio", "typer"}
    assert len(needed({canonical(line) for line in requirements(app_wheel)})) + 1 <= PACKAGES_MAX


def test_the_wheel_of_the_server_needs_that_of_apps_and_has_every_file_of_its_rooms(server_wheel: Path) -> None:
    """Also what is no Python: the scenarios, and the sources that gcc and Go compile."""
    assert names_of(server_wheel) == {*ROOMS, f"twinlog_server-{VERSION}.dist-info", f"twinlog_server-{VERSION}.data"}
    assert f"twinlog=={VERSION}" in requirements(server_wheel)
    assert inside(server_wheel, *ROOMS) == files_of(*ROOMS)


def test_the_server_has_the_extras_that_the_page_lists(server_wheel: Path) -> None:
    """pip only warns of an extra that is not there, and leaves out what it should bring."""
    provided = set(re.findall(r"^Provides-Extra: (\S+)$", read(server_wheel, "METADATA"), re.MULTILINE))
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("| extra of")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == provided - {"dev"}
    assert provided >= {"hdfs", "spark", "chaos", "ui"}


def test_every_verb_has_its_manual_page_in_the_wheel_that_has_the_verb(built: Built) -> None:
    for wheel, verbs in ((built.app, ["", *VERBS]), (built.server, all_verbs().keys() - VERBS.keys())):
        found = {name.rpartition("/")[2] for name in zipfile.ZipFile(wheel).namelist() if "/share/man/man1/" in name}
        assert found == {f"twinlog-{verb}.1" if verb else "twinlog.1" for verb in verbs}


def test_the_licence_comes_along(built: Built) -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for wheel in (built.app, built.server):
        assert read(wheel, "licenses/LICENSE") == text
        assert "License-Expression: Apache-2.0" in read(wheel, "METADATA")


def texts_of(path: Path) -> dict[str, str]:
    """Every file of a wheel or a source archive."""
    if path.suffix == ".whl":
        archive = zipfile.ZipFile(path)
        return {name: archive.read(name).decode() for name in archive.namelist()}
    with tarfile.open(path) as opened:
        members = [member for member in opened.getmembers() if member.isfile()]
        return {member.name: opened.extractfile(member).read().decode() for member in members}  # type: ignore[union-attr]


def test_nothing_names_a_machine_or_a_registry_or_is_of_the_checkout_alone(built: Built) -> None:
    machine = (str(ROOT), tempfile.gettempdir() + "/")
    for path in built:
        texts = texts_of(path)
        assert len(texts) > 40
        assert [line for name, text in texts.items() for line in complaints(name, text, machine)] == []
        assert [name for name in texts if {"tests", "tools", "bench", "docs"} & {*Path(name).parts[:2]}] == []


@pytest.mark.long
def test_two_builds_are_equal_byte_for_byte(built: Built, tmp_path: Path) -> None:
    """The second one by another process, with another umask, in another folder and time zone."""
    build = "import os, sys, tools.packaging.wheels as w; os.umask(0o077); w.build_all(w.Path(sys.argv[1]), w.commit_time_s())"
    environ = {**os.environ, "TZ": "Asia/Tokyo", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    command = [sys.executable, "-c", build, str(tmp_path / "again")]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in built:
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_commands_of_the_server_join_that_of_apps(server_wheel: Path, installed: Path) -> None:
    assert read(server_wheel, "entry_points.txt") == '[twinlog.verbs]\nserver = gateway.cli.verbs:VERBS\n'
    zipfile.ZipFile(server_wheel).extractall(installed)
    assert verbs_of(installed) == all_verbs().keys()
    usage = run(installed, "-m", "twinlog", "failover", "--help")
    assert "Take over from a site that is lost" in usage.stdout, usage.stderr


def test_apps_import_it_without_the_server(installed: Path) -> None:
    done = run(installed, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    done = run(installed, "-c", "import gateway")
    assert "No module named 'gateway'" in done.stderr, "the environment of the test holds the server"


def test_errors_alone_do_not_import_the_client(installed: Path) -> None:
    done = run(installed, "-c", "import sys, twinlog.errors; print(sorted({'httpx', 'msgspec', 'typer'} & sys.modules.keys()))")
    assert done.stdout == "[]\n", done.stderr


def test_the_command_without_the_server(installed: Path) -> None:
    assert verbs_of(installed) == VERBS.keys()
    refused = run(installed, "-m", "twinlog", "serve", "--config", "site.toml")
    assert refused.returncode == 2
    assert "`twinlog serve` is no command of the client" in refused.stderr
    assert "the distribution twinlog-server" in " ".join(refused.stderr.split())
    assert run(installed, "-m", "twinlog", "version").stdout == f"twinlog {VERSION}\n"
