"""The commands of the operator's pages, and the Python of the API's, are run as they stand, one by one, on a real pair.

Their paths, such as /etc/twinlog, lie below a folder of the test. What a page shows as an answer is not compared: its figures
are those of one day.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from tests.tools.docs_site.test_examples import blocks
from tools.sources import ROOT
from tools.tour import running_pair, shell_folder
from twinlog import Client

pytestmark = [pytest.mark.pair, pytest.mark.long]
PAGES = ("encryption-at-rest.md", "backup.md", "security.md", "operations.md")
TABLE = {
    "name": "planes", "primary_key": ["tail"],
    "columns": [{"name": "tail", "type": "string"}, {"name": "seats", "type": "int32"}],
}
DEADLINE_S = 300.0


def commands(page: str) -> list[str]:
    """The lines of the shell, without the answers that some blocks show."""
    found = []
    for block in blocks(Path("docs", page), "", "sh"):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
        found += [line for line in typed if re.match(r"(?:twinlog|umask|export|chmod|curl|kill|until) ", line)]
    return found


def placed(line: str, machine: Path, ports: tuple[int, int]) -> str:
    """Returns the line with the paths, ports and process of this pair."""
    line = re.sub(r"(?<= |=|:)/(?=etc/|mnt/|var/)", f"{machine}/", line)
    line = line.replace(":8401/", f":{ports[0]}/").replace(":8402/", f":{ports[1]}/")
    site = json.loads((machine / "demo" / "demo.json").read_text())["sites"]["a"]
    return line.replace(" PID ", f" {site['pid']} ").replace("curl ", "curl --silent --show-error --fail ")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The paths of the pages: those of a pair in demo/, and of one in new/ that a restore may fill."""
    demo, etc = tmp_path / "demo", tmp_path / "etc" / "twinlog"
    new = write_files(tmp_path / "new", dict(zip("ab", free_ports(2), strict=True)), engine="rocksdb")
    for folder in (etc / "keys", tmp_path / "mnt" / "backup", tmp_path / "mnt" / "b", tmp_path / "var" / "log" / "twinlog"):
        folder.mkdir(parents=True)
    for place, what in {
        etc / "operator.toml": demo / "operator.toml", tmp_path / "operator.toml": demo / "operator.toml",
        etc / "a.toml": demo / "a" / "site.toml", tmp_path / "a.toml": demo / "a" / "site.toml",
        etc / "site-a.toml": new["a"], tmp_path / "mnt" / "b" / "data": demo / "b" / "data",
        tmp_path / "var" / "log" / "twinlog" / "a.log": demo / "a" / "site.log",
    }.items():
        place.symlink_to(what)
    shell_folder(tmp_path)
    return tmp_path


def test_the_commands_of_the_handbook_end_well(machine: Path) -> None:
    first, second = free_ports(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLOG_")}
    environment["PATH"] = f"{machine / '.venv' / 'bin'}:{environment['PATH']}"
    (python,) = blocks(Path("docs", "api.md"), "python")
    with running_pair(machine, (first, second)):
        with Client(str(machine / "demo" / "operator.toml")) as pair:
            pair.create_table(TABLE)
        lines = [placed(line, machine, (first, second)) for page in PAGES for line in commands(page)]
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -euxo pipefail", *lines])], cwd=machine, env=environment, capture_output=True,
            text=True, check=False, timeout=DEADLINE_S,
        )
        code = python.replace("8401", str(first)).replace("8402", str(second))
        asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verbs = ("backup", "restore", "certs", "token", "trail", "config", "log-level")
    assert [verb for verb in verbs if f"+ twinlog {verb}" not in done.stderr] == []
    assert (machine / "new" / "a" / "data").is_dir(), "the restored pair"
    assert asked.stdout == "{'tail': 'N14228', 'seats': 149}\n", asked.stderr
