"""Crash states of real files need strace."""

from __future__ import annotations

import os

import pytest

from chaos.crash_states.recording import missing


@pytest.fixture(scope="session")
def records_calls() -> None:
    """This machine can record system calls; else the test is skipped, or fails in CI."""
    reason = missing()
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
