"""Recordings of system calls need strace."""

from __future__ import annotations

import pytest

from chaos.crash_states.recording import missing
from tests.needs import need_program


@pytest.fixture(scope="session")
def records_calls() -> None:
    """This machine can record system calls. Neither the checkout nor a package could change a sandbox that forbids tracing:
    there alone the tests are skipped."""
    need_program("strace", "strace")
    if (reason := missing()) is not None:
        pytest.skip(reason)
