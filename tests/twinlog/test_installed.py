"""The wheels work where there is no checkout: in a fresh environment, with the pinned dependencies from the registry."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.servers.ports import free_ports
from tests.tools.test_dependencies import canonical
from tests.twinlog.conftest import Built
from tools.sources import ROOT
from tools.tour import STARTED, blocks
from twinlog.cli.verbs import VERBS

DEADLINE_S = 300.0  # a busy machine is no fault of the wheels
UV = (sys.executable, "-m", "uv")
OF_THE_SERVER = {
    "uvicorn", "fastapi", "rocksdict", "pyarrow", "sqlalchemy", "pyspark", "jpype1", "matplotlib", "twinlog-server",
}


class Environment:
    """A virtual environment below `folder`, whose programs run in `folder` and see nothing of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "env" / "bin"
        if not self.bin.exists():
            subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, str(folder / "env")], check=True)

    def install(self, *what: str) -> None:
        pinned = ROOT / "requirements" / "main.txt"
        command = [*UV, "pip", "install", "--quiet", "--python", str(self.bin / "python"), "-c", str(pinned), *what]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stderr

    def installed(self) -> set[str]:
        command = [*UV, "pip", "list", "--quiet", "--format", "json", "--python", str(self.bin / "python")]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=self.folder).stdout
        return {canonical(one["name"]) for one in json.loads(shown)}

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "COLUMNS": "100"}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]], cwd=self.folder, env=self.environ, capture_output=True, text=True,
            check=False, timeout=DEADLINE_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def demo(self) -> Iterator[None]:
        """Runs while a pair does, and stops it by Ctrl-C."""
        first, second = free_ports(2)
        command = [str(self.bin / "twinlog"), "demo", "--no-load", "--port-a", str(first), "--port-b", str(second)]
        with subprocess.Popen(
            command, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            said: list[str] = []
            try:
                for line in process.stdout or ():  # until it runs, or has ended
                    said.append(line)
                    if STARTED in line:
                        break
                assert STARTED in said[-1], said
                yield
            finally:
                process.send_signal(signal.SIGINT)
        assert process.returncode == 0, said


@pytest.mark.long
def test_the_wheel_of_apps_alone_brings_no_server(built: Built, tmp_path: Path) -> None:
    fresh = Environment(tmp_path)
    fresh.install(str(built.app))
    assert not fresh.installed() & OF_THE_SERVER
    assert fresh.run("twinlog", "version") == f"twinlog {built.app.name.split('-')[1]}\n"
    assert set(re.findall(r"^│ ([a-z][a-z-]+) ", fresh.run("twinlog", "--help"), re.MULTILINE)) == VERBS.keys()
    assert (tmp_path / "env" / "share" / "man" / "man1" / "twinlog-get.1").is_file()
    assert "_twinlog_completion" in (tmp_path / "env/share/bash-completion/completions/twinlog").read_text()


def install_by_the_page(built: Built, folder: Path) -> None:
    """Runs every block of docs/install.md that is not only shown, with `uv` in place of venv and pip, which load all anew."""
    to = folder / "env"
    (folder / "requirements").symlink_to(ROOT / "requirements")
    code = [block.code for block in blocks((ROOT / "docs" / "install.md").read_text(encoding="utf-8")) if block.note != "shown"]
    assert len(code) == 3
    script = "\n".join(["set -euo pipefail", *code, "complete -p twinlog", 'ls "${MANPATH%:}/man1/twinlog-failover.1"'])
    for written, done in (
        ("python3 -m venv", f"{' '.join(UV)} venv --quiet"), ("build/wheels", str(built.app.parent)),
        ("/opt/twinlog/bin/pip install", f"{' '.join(UV)} pip install --quiet --python /opt/twinlog/bin/python"),
        ("/opt/twinlog", str(to)),
    ):
        assert written in script
        script = script.replace(written, done)
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ran = subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"twinlog \S+   twinlog-server \S+\ncomplete .*twinlog\n\S+/twinlog-failover.1\n", ran.stdout), ran.stdout


@pytest.mark.long
@pytest.mark.pair
def test_the_wheel_of_the_server_runs_a_pair_without_the_checkout(built: Built, tmp_path: Path) -> None:
    install_by_the_page(built, tmp_path)
    fresh = Environment(tmp_path)
    fresh.install(str(built.app), f"twinlog-server[chaos] @ {built.server.as_uri()}")
    scenarios = {path.stem for path in (ROOT / "chaos" / "scenarios").glob("*.txt")}
    listed = fresh.run("python", "-m", "chaos", "list")
    assert scenarios - set(re.findall(r"^([a-z-]+) ", listed, re.MULTILINE)) == set()
    with fresh.demo():
        at = ("--config", "demo/demo.json")
        fresh.run("twinlog", "create-table", "notes", "id:int64", "text:string", "--key", "id", *at)
        assert json.loads(fresh.run("twinlog", "put", "notes", "1", "text=kept", "--json", *at))["mode"] == "sync"
        assert "kept" in fresh.run("twinlog", "get", "notes", "1", *at)
        assert "sound site's configuration" in fresh.run("twinlog", "config", "check", "--config", "demo/a/site.toml")
        sources = fresh.run("python", "-c", "import gateway, twinlog; print(gateway.__file__, twinlog.__file__)").split()
        assert all(source.startswith(str(tmp_path / "env")) for source in sources)
