"""The law bites: each breach, planted in a small copy of the house, fails the gate, and names the culprit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.import_law import PACKAGES, PURE, configuration
from tools.sources import ROOT


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Empty packages and the gate itself, as a git checkout."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for name, content in {
        "storage/log/frame.py": "import struct\n", "storage/log/wal.py": "import asyncio\n",
        "remote_log/fencing/read_lease.py": "",
        "gateway/app.py": "import switchover\nimport storage.log.wal\n", "spark_jobs/read.py": "import storage.log.frame\n",
    }.items():
        write(tmp_path, name, content)
    return tmp_path


def write(house: Path, name: str, content: str) -> None:
    """The module `name`, with an `__init__.py` in every folder above it."""
    path = house / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in path.parents:
        if folder == house:
            break
        (folder / "__init__.py").touch()
    path.write_text(content)


def gate(house: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "tools.import_law"], cwd=house, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_lawful_house_passes_and_absent_pure_modules_are_named(house: Path) -> None:
    code, said = gate(house)
    assert code == 0, said
    assert "not written yet" in said
    assert "storage.log.chain" in said
    assert "storage.log.frame" not in said


def test_spark_jobs_see_the_rooms_that_read_rows(house: Path) -> None:
    for name in ("view", "engine"):
        write(house, f"storage/engines/rocks/{name}.py", "")
    (house / "spark_jobs" / "read.py").write_text("import storage.engines.rocks.view\n")
    assert gate(house)[0] == 0
    (house / "spark_jobs" / "read.py").write_text("import storage.engines.rocks.engine\n")
    code, said = gate(house)
    assert code == 1, said
    assert "storage.engines.rocks.engine " in said


@pytest.mark.parametrize(("file", "line", "named"), [
    ("storage/log/wal.py", "import remote_log.fencing.read_lease", "storage.log.wal"),
    ("remote_log/fencing/read_lease.py", "import gateway.app", "remote_log.fencing.read_lease"),
    ("switchover/operations/plan.py", "import chaos", "switchover.operations.plan"),
    ("gateway/app.py", "import tests", "gateway.app"),
    ("twinlog/errors.py", "import storage", "twinlog.errors"),
    ("twinlog/errors.py", "import spark_jobs", "twinlog.errors"),
    ("spark_jobs/read.py", "import storage.log.wal", "spark_jobs.read"),
    ("spark_jobs/read.py", "import switchover", "spark_jobs.read"),
    ("storage/log/frame.py", "import time", "storage.log.frame"),
    ("storage/log/frame.py", "import storage.log.wal", "storage.log.frame"),
])
def test_a_breach_fails(house: Path, file: str, line: str, named: str) -> None:
    path = house / file
    write(house, file, (path.read_text() if path.exists() else "") + line + "\n")
    code, said = gate(house)
    assert code == 1, said
    assert named in said


def test_the_list_of_pure_modules_leads_somewhere() -> None:
    """No name on the list is a slip: most exist, and each is in a package of the house."""
    _, absent = configuration(ROOT)
    assert {name.split(".")[0] for name in PURE} <= set(PACKAGES)
    assert len(absent) < len(PURE) / 2
