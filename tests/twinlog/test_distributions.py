"""Both wheels hold what they must, and the one for apps works alone.

`installed` is a fresh environment without an installer: the wheel's files and a link to every distribution that it needs, and
nothing else on Python's path.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tools.test_dependencies import canonical
from tools.laws.import_law import PACKAGES
from tools.sources import ROOT, repository_files
from twinlog.cli.main import all_verbs
from twinlog.cli.verbs import VERBS

PACKAGES_MAX = 17  # twinlog itself is one of them
ROOMS = set(PACKAGES) - {"twinlog"}
INSTALLED = {canonical(one.name) for one in importlib.metadata.distributions()}
VERSION = tomllib.loads((ROOT / "twinlog" / "pyproject.toml").read_text())["project"]["version"]
IMPORT_ALL = (
    "import importlib, pkgutil, twinlog\n"
    "from twinlog import AsyncClient, Client, errors\n"
    "for module in pkgutil.walk_packages(twinlog.__path__, 'twinlog.'):\n"
    "    module.name.endswith('__main__') or importlib.import_module(module.name)\n"
)


def build(source: Path, out: Path) -> Path:
    """The wheel of the project in `source`, built offline with this environment's setuptools."""
    command = [sys.executable, "-m", "uv", "build", "--wheel", "--offline", "--no-build-isolation", "--quiet", "-o", str(out)]
    done = subprocess.run([*command, "--python", sys.executable, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def copied(folder: Path, *below: str) -> Path:
    """The files of the checkout that git knows below these names, and no leftovers of other builds."""
    for path in repository_files(ROOT):
        if path.parts[0] in below:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)
    return folder


def names_of(wheel: Path) -> set[str]:
    return {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}


def read(wheel: Path, name: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (path,) = [path for path in archive.namelist() if path.endswith(f".dist-info/{name}")]
    return archive.read(path).decode()


def needed(names: set[str]) -> set[str]:
    """The distributions `names`, and all that they need on this machine: those that are not here are for others."""
    found: set[str] = set()
    while left := names - found:
        name = left.pop()
        found.add(name)
        required = [one for one in importlib.metadata.requires(name) or () if "extra" not in one.partition(";")[2]]
        names = names | ({canonical(one) for one in required} & INSTALLED)
    return found


@pytest.fixture(scope="module")
def app_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    return build(copied(folder, "twinlog") / "twinlog", folder / "out")


@pytest.fixture(scope="module")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    return build(copied(folder / "source", "pyproject.toml", "README.md", *PACKAGES), folder / "out")


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


def test_the_wheel_of_apps_holds_one_name_and_its_types(app_wheel: Path) -> None:
    assert names_of(app_wheel) == {"twinlog", f"twinlog-{VERSION}.dist-info"}
    inside = {name for name in zipfile.ZipFile(app_wheel).namelist() if name.startswith("twinlog/")}
    modules = {str(path) for path in repository_files(ROOT, ".py") if path.parts[0] == "twinlog"}
    assert inside == {*modules, "twinlog/py.typed"}
    assert {canonical(line) for line in requirements(app_wheel)} == {"httpx", "msgspec", "rich", "sniffio", "typer"}
    assert len(needed({canonical(line) for line in requirements(app_wheel)})) + 1 <= PACKAGES_MAX


def test_the_wheel_of_the_server_needs_that_of_apps(server_wheel: Path) -> None:
    assert names_of(server_wheel) == {*ROOMS, f"twinlog_server-{VERSION}.dist-info"}
    assert f"twinlog=={VERSION}" in requirements(server_wheel)


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
