"""Crash states of real files need strace."""

from __future__ import annotations

import os
import shutil

import pytest

from chaos.crash_states.recording import missing


@pytest.fixture(scope="session")
def records_calls() -> None:
    """This machine can record system calls; else the test is skipped. In CI it fails without strace, which .ci/run installs; a
    sandbox that forbids tracing is nothing that a checkout could change."""
    reason = missing()
    if reason is not None:
        if os.environ.get("CI") and shutil.which("strace") is None:
            pytest.fail(reason)
        pytest.skip(reason)
