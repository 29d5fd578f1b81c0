"""A gateway that cannot continue ends with its exit code and says why; one that was stopped and woken lives."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.fail_stop import DIED, LOST, STANDS, UNBORN, last_words
from tests.processes import state, wait_for
from tools.sources import ROOT
from twinlog.terminal import EXIT_CODES, Exit

TURNS = "it_turns_until_its_input_ends"


@contextmanager
def started(case: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.ending", case], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("case", "reason", "told"), [
    ("the_loop_stands", STANDS, "in the_loop_stands"),
    ("a_worker_cannot_say_what_came_of_it", DIED, "MemoryError"),
    ("a_group_worker_cannot_say_what_came_of_it", DIED, "MemoryError"),
    ("a_thread_fails_at_its_birth", UNBORN, "MemoryError"),
    ("an_executor_cannot_say_what_came_of_it", DIED, "MemoryError"),
    ("an_executor_cannot_wake_the_loop", DIED, "MemoryError"),
    ("a_callback_gets_no_memory", LOST, "MemoryError"),
])
def test_it_ends_and_says_why_and_where_each_thread_was(case: str, reason: str, told: str) -> None:
    with started(case) as process:
        said, errors = process.communicate()
    assert (process.returncode, said) == (Exit.FAIL_STOP, "")
    assert last_words("site test")[reason].decode() in errors
    assert "most recent call first" in errors
    assert told in errors


def test_it_ends_by_the_kernel_where_nobody_reads_what_it_says() -> None:
    with started("standard_error_is_full") as process:
        assert process.wait() == -signal.SIGALRM


@pytest.mark.parametrize("case", [TURNS, "a_task_gets_no_memory"])
def test_it_ends_in_order_where_everybody_is_told(case: str) -> None:
    with started(case) as process:
        said, errors = process.communicate("\n")
    assert (process.returncode, said) == (0, "done\n"), errors


def test_a_process_that_was_stopped_for_longer_than_the_bound_lives() -> None:
    with started(TURNS) as process:
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            assert wait_for(lambda: state(process.pid) == "T")
            with started("the_loop_stands") as other:
                assert other.wait() == Exit.FAIL_STOP, "the bound, and more, has passed"
            process.send_signal(signal.SIGCONT)
        said, errors = process.communicate("\n")
    assert (process.returncode, said) == (0, "done\n"), errors


def test_the_code_is_its_own_and_is_told() -> None:
    assert [code.name for code in Exit if code == Exit.FAIL_STOP] == ["FAIL_STOP"]
    assert f"{Exit.FAIL_STOP:d} a gateway ended itself" in EXIT_CODES
