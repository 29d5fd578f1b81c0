"""docs/upgrade.md is true: its own commands upgrade a pair of an earlier release under load, and back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from gateway.demo.files import write_files
from tests.needs import need_commit
from tests.twinlog.conftest import Built
from tools.sources import ROOT

LAST_RELEASE = "139dadc0"  # there is no release yet: the last commit whose sites said no versions
PAGE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- upgrade: (?P<where>[a-z ]+) -->\n```sh\n(?P<code>.*?)\n```$", re.DOTALL | re.MULTILINE)
UV = (sys.executable, "-m", "uv")
STEP_S, GONE_S = 120.0, 60.0  # generous: a busy machine is no fault of the page
OTHER = {"a": "b", "b": "a"}


def wheels_of(commit: str, folder: Path) -> list[Path]:
    """The wheels of an earlier commit, as its own `make wheels` builds them."""
    clone, out = folder / "clone", folder / "old"
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "checkout", "--quiet", commit], check=True)
    subprocess.run(
        [sys.executable, "-m", "tools.packaging.wheels", "--out", str(out)], cwd=clone, check=True,
        env={**os.environ, "PYTHONPATH": str(clone)},
    )
    shutil.rmtree(clone)
    return sorted(out.glob("*.whl"))


class Machines:
    """Both sites below `folder`, each with an environment of its own, and the operator's machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, (first, second) = folder, free_ports(2)
        self.configs = write_files(folder, {"a": first, "b": second}, engine="rocksdb")
        self.urls = {"a": f"http://127.0.0.1:{first}", "b": f"http://127.0.0.1:{second}"}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        command = folder / "bin" / "twinlog"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m twinlog "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        for site in self.configs:
            subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, str(folder / site / "env")], check=True)
            (packages,) = (folder / site / "env" / "lib").glob("python*/site-packages")
            here = [path for path in sys.path if path.endswith("site-packages")]
            (packages / "pinned.pth").write_text("\n".join(here) + "\n", encoding="utf-8")  # what `make setup` has installed

    def step(self, where: str, code: str) -> None:
        """Runs a block of the page. `systemctl` and `pip` are the test's; each other line is the operator's shell's."""
        for line in code.splitlines():
            words = line.split()
            if words[0] == "systemctl":
                {"stop": self.stop, "start": self.start}[words[1]](words[2].removeprefix("twinlog@"))
            elif words[0] == "/opt/twinlog/bin/pip":
                self.install(where[-1], *sorted(self.folder.glob(words[-1])))
            else:
                environ = {
                    "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
                    "TWINLOG_CONFIG": str(self.folder / "operator.toml"),
                }
                done = subprocess.run(
                    ["bash", "-c", line], cwd=self.folder, env=environ, capture_output=True, text=True, check=False,
                    timeout=STEP_S,
                )
                assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"

    def install(self, site: str, *wheels: Path) -> None:
        """One version of two commits: --reinstall. The pinned dependencies are there."""
        assert len(wheels) == 2
        python = str(self.folder / site / "env" / "bin" / "python")
        command = [*UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall", "--python", python]
        subprocess.run([*command, *map(str, wheels)], check=True)

    def start(self, site: str) -> None:
        command = [str(self.folder / site / "env" / "bin" / "twinlog"), "serve", "--config", str(self.configs[site])]
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with (self.folder / f"{site}.log").open("ab") as log:
            self.running[site] = start_child(command, log, folder=self.folder, environ=environ)

    def stop(self, site: str) -> None:
        process = self.running.pop(site)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE_S) == 0

    def cluster(self, site: str) -> dict[str, object]:
        try:
            return dict(httpx.get(f"{self.urls[site]}/v1/cluster", timeout=5).json())
        except httpx.HTTPError:
            return {}

    def until_whole(self) -> None:
        """Site a is active, and b in sync."""
        until_s = time.monotonic() + STEP_S
        while (self.cluster("a").get("role"), self.cluster("b").get("role")) != ("ACTIVE", "STANDBY"):
            assert time.monotonic() < until_s, self.log()
            time.sleep(0.1)
        self.step("pair", "until twinlog validate --for switchover --to b; do sleep 0.2; done")

    def log(self) -> str:
        return "".join((self.folder / f"{site}.log").read_text(errors="replace")[-3000:] for site in "ab")

    @contextmanager
    def load(self) -> Iterator[Path]:
        """Clients that write and read meanwhile; what they saw is judged at the end, and the rows of both sites are read."""
        report, said = self.folder / "report", self.folder / "load.log"
        command = [
            sys.executable, "-m", "chaos", "attach", "--config", str(self.folder / "operator.toml"), "--workload", "registers",
            "--minutes", "10", "--rate", "25", "--clients", "4", "--yes", "--out", str(report),
        ]
        with said.open("wb") as log:
            process = start_child(command, log, folder=ROOT, environ={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            until_s = time.monotonic() + STEP_S
            while "the tables are there" not in said.read_text():
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < until_s, said.read_text()
                time.sleep(0.1)
            yield said
            process.send_signal(signal.SIGINT)  # the traffic ends, the run comes to its end in order
            code = process.wait(STEP_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        text = said.read_text()
        assert code == 3, text  # ended early, and nothing else
        assert re.findall(r"not finished: (.*)", text) == ["it was ended before its time"], text
        assert "BROKEN" not in text
        assert "the rows of both sites are read" in text

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def test_every_block_of_the_page_is_run() -> None:
    blocks = BLOCK.findall(PAGE)
    assert [where for where, _ in blocks] == ["at b", "pair", "pair", "at a", "pair", "pair", "back at b"]
    assert PAGE.count("```sh\n") == len(blocks)


@pytest.mark.pair
@pytest.mark.long
def test_the_page_upgrades_a_pair_under_load_and_back(built: Built, machines: Machines, tmp_path: Path) -> None:
    need_commit(LAST_RELEASE)
    old, new = wheels_of(LAST_RELEASE, tmp_path), tmp_path / "new"
    new.mkdir()
    for wheel in (built.app, built.server):
        shutil.copy(wheel, new)
    for site in "ab":
        machines.install(site, *old)
        machines.start(site)
    machines.until_whole()
    assert not any("formats" in machines.cluster(site) for site in "ab"), "the old wheels run"
    steps = BLOCK.findall(PAGE)
    (standby, wait, *rest), back = steps[:-1], steps[-1]
    with machines.load():
        for block in (standby, wait, back, wait, standby, wait, *rest):
            machines.step(*block)
    documents = {site: machines.cluster(site) for site in "ab"}
    assert {site: document["role"] for site, document in documents.items()} == {"a": "ACTIVE", "b": "STANDBY"}
    assert all("formats" in document for document in documents.values())
