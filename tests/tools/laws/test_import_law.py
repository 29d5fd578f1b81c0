"""The law bites: each breach, planted in a small copy of the house, fails the gate, and names the culprit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.laws.import_law import PACKAGES, PURE, pure_modules
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
        "storage/log/frame.py": f'"""Frames.\n\n{PURE}\n"""\nimport struct\n', "storage/log/wal.py": "import asyncio\n",
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
    command = [sys.executable, "-m", "tools.laws.import_law"]
    done = subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_lawful_house_passes(house: Path) -> None:
    code, said = gate(house)
    assert code == 0, said


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


def test_a_module_that_does_not_say_so_is_not_held_to_it(house: Path) -> None:
    write(house, "storage/log/frame.py", '"""Frames."""\nimport time\n')
    (house / "spark_jobs" / "read.py").write_text("")
    assert gate(house)[0] == 0


@pytest.mark.parametrize("words", ["Frames. Pure.", "Frames, pure: bytes.", "Pure: frames.", f"Frames. {PURE} Always."])
def test_one_that_calls_itself_pure_in_other_words_fails(house: Path, words: str) -> None:
    write(house, "switchover/roles/table.py", f'"""{words}"""\n')
    code, said = gate(house)
    assert code == 1, said
    assert "switchover.roles.table calls itself pure in other words" in said


def test_what_decides_says_that_it_is_pure() -> None:
    """The parts that docs/architecture.md calls pure: one that lost the line would be checked by nobody."""
    pure, _ = pure_modules(ROOT)
    assert {
        "storage.rows.codec", "storage.rows.keys", "storage.log.frame", "storage.log.chain", "storage.log.record",
        "gateway.epoch.commit_rule", "gateway.service.admission", "remote_log.fencing.read_lease", "twinlog.flow",
        "switchover.roles.table", "switchover.roles.boot", "switchover.register.transitions", "switchover.register.homes",
        "switchover.activation.continuation", "switchover.preflight.checks", "switchover.monitor.judgement",
    } <= set(pure)
