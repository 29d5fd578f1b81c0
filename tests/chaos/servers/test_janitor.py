"""A worker of the tests that is killed leaves nothing: no process that it started, and no folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.servers import janitor
from tests.processes import has_ended, state, wait_for
from tools.sources import ROOT

KILLED = """
import os, signal, subprocess, sys
from pathlib import Path

from tests.crash.processes import Processes
from tests.processes import wait_for
from tests.storage.engines.sql.rig import postgres


def test_that_kills_its_worker(tmp_path):
    server, pair = postgres(), Processes(tmp_path)
    pair.start("a")
    server.create_database("kept")
    connection = server.connect("kept")
    stopped = subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
    note = Path({note!r})
    note.write_text(f"{{server.pid}} {{pair.running['a'].pid}} {{stopped.pid}} {{server.folder.parent}}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """A PostgreSQL with a client, a site that a fork server made, and a process that has stopped: tied to the worker or not."""
    test, note = tmp_path / "test_killed.py", tmp_path / "note"
    test.write_text(KILLED.format(note=str(note)))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "--max-worker-restart", "0", "-p", "tests.conftest", str(test)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )
    assert "crashed while running" in run.stdout, run.stdout + run.stderr
    *pids, folder = note.read_text().split()
    assert wait_for(lambda: all(has_ended(int(pid)) for pid in pids)), [(pid, state(int(pid))) for pid in pids]
    assert wait_for(lambda: not Path(folder).exists())


@contextmanager
def killed_at_the_end(code: str) -> Iterator[list[str]]:
    """Runs `code`, which waits for its input, and yields the words of the line that it prints."""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        yield one.stdout.readline().split()
        one.kill()


def test_only_what_carries_the_mark_is_cleared_away(tmp_path: Path) -> None:
    """And not before the employer has ended."""
    code = (
        "import os, subprocess, sys, tempfile; from chaos.servers import janitor; janitor.employ()\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "ours = subprocess.Popen(sleep, start_new_session=True)\n"
        "free = {name: value for name, value in os.environ.items() if name != janitor.MARK}\n"
        "other = subprocess.Popen(sleep, start_new_session=True, env=free)\n"
        "folder = tempfile.mkdtemp(prefix=janitor.own_prefix('test'))\n"
        "print(ours.pid, other.pid, folder, os.environ[janitor.MARK], flush=True); sys.stdin.read()"
    )
    with killed_at_the_end(code) as (ours, other, folder, mark):
        assert wait_for(lambda: janitor.processes_left(mark) == [int(ours)])
        assert janitor.folders_left(mark) == [Path(folder)]
        assert Path(folder).is_dir()
    assert wait_for(lambda: has_ended(int(ours)) and not Path(folder).exists())
    assert not has_ended(int(other))
    os.kill(int(other), signal.SIGKILL)


def test_a_simulator_that_is_killed_leaves_no_folder() -> None:
    """Its run is on a real engine, whose folder is in memory where the machine has that."""
    code = (
        "import sys; from unittest.mock import patch; from chaos.simulate import cli; from chaos.simulate.draw import draw\n"
        "def waits(self):\n"
        "    print(self._made.name, flush=True); sys.stdin.read()\n"
        "seed = next(seed for seed in range(1000) if draw(seed).knobs.engine != 'simulated')\n"
        "with patch.object(cli.Run, 'execute', waits):\n"
        "    cli.main(['simulate', '--seeds', '1', '--seed', str(seed), '--jobs', '1'])"
    )
    with killed_at_the_end(code) as (folder,):
        assert Path(folder).is_dir()
    assert wait_for(lambda: not Path(folder).exists())
