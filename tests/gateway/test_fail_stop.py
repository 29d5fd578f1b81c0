"""A gateway that cannot continue ends with its exit code and says why; one that was stopped and woken lives."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gateway.app
from gateway.cli.main import app
from gateway.config.model import SiteConfig
from gateway.demo.files import write_files
from gateway.fail_stop import DIED, LOST, STANDS, UNBORN, last_words
from tests.needs import need_root
from tests.processes import state, wait_for
from tools.sources import ROOT
from twinlog.terminal import EXIT_CODES, Exit

HUNG_S = 60.0  # by then a process has hung that should have ended
TURNS = "it_turns_until_its_input_ends"
ENDS = {  # case -> why it ends, and what its last words have besides
    "the_loop_stands": (STANDS, "in the_loop_stands"),
    "a_worker_cannot_say_what_came_of_it": (DIED, "MemoryError"),
    "a_group_worker_cannot_say_what_came_of_it": (DIED, "MemoryError"),
    "a_thread_fails_at_its_birth": (UNBORN, "MemoryError"),
    "an_executor_cannot_say_what_came_of_it": (DIED, "MemoryError"),
    "an_executor_cannot_wake_the_loop": (DIED, "MemoryError"),
    "a_callback_gets_no_memory": (LOST, "MemoryError"),
}


@contextmanager
def started(case: str, *within: str) -> Iterator[subprocess.Popen[str]]:
    """`within`: the command that runs the process."""
    with subprocess.Popen(
        [*within, sys.executable, "-m", "tests.gateway.ending", case], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("case", ENDS)
def test_it_ends_and_says_why_and_where_each_thread_was(case: str) -> None:
    reason, told = ENDS[case]
    with started(case) as process:
        said, errors = process.communicate(timeout=HUNG_S)
    assert (process.returncode, said) == (Exit.FAIL_STOP, "")
    assert last_words("site test")[reason].decode() in errors
    assert "most recent call first" in errors
    assert told in errors


def test_it_ends_by_its_alarm_where_nobody_reads_what_it_says() -> None:
    with started("standard_error_is_full") as process:
        assert process.wait(HUNG_S) == signal.SIGALRM


def test_so_it_does_as_process_1_of_a_container() -> None:
    """The kernel keeps signals without a handler from process 1."""
    need_root("a process namespace")
    with started("standard_error_is_full", "unshare", "--pid", "--fork", "--kill-child") as process:
        assert process.wait(HUNG_S) == signal.SIGALRM


@pytest.mark.parametrize("case", [TURNS, "a_task_gets_no_memory"])
def test_it_ends_in_order_where_everybody_is_told(case: str) -> None:
    with started(case) as process:
        said, errors = process.communicate("\n", timeout=HUNG_S)
    assert (process.returncode, said) == (0, "done\n"), errors


def test_a_process_that_was_stopped_for_longer_than_the_bound_lives() -> None:
    with started(TURNS) as process:
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            assert wait_for(lambda: state(process.pid) in ("T", "Z"), HUNG_S)
            assert state(process.pid) == "T", "it has ended"
            with started("the_loop_stands") as other:
                assert other.wait(HUNG_S) == Exit.FAIL_STOP, "the bound, and more, has passed"
            process.send_signal(signal.SIGCONT)
        said, errors = process.communicate("\n", timeout=HUNG_S)
    assert (process.returncode, said) == (0, "done\n"), errors


def test_the_code_is_its_own_and_is_told() -> None:
    assert [code.name for code in Exit if code == Exit.FAIL_STOP] == ["FAIL_STOP"]
    assert f"{Exit.FAIL_STOP:d} a gateway ended itself" in EXIT_CODES


def test_serve_runs_its_site_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = threading.excepthook, list[bool]()

    async def serve(config: SiteConfig, *, file: Path) -> None:
        seen.append(threading.excepthook is not before)
        seen.append("watchdog" in {thread.name for thread in threading.enumerate()})

    monkeypatch.setattr(gateway.app, "serve", serve)
    config = write_files(tmp_path, {"a": 1, "b": 2}, engine="rocksdb")["a"]
    assert CliRunner().invoke(app, ["serve", "--config", str(config)]).exit_code == 0
    assert seen == [True, True]
    assert threading.excepthook is before
