"""The state of other processes, as the system has it, and a patient look at what one of them is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def state(pid: int) -> str:
    """Returns one letter, of /proc: T is stopped, R or S runs; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def has_ended(pid: int) -> bool:
    return state(pid) in ("", "Z")


def wait_for(holds: Callable[[], object], deadline_s: float = 120.0) -> bool:
    """Returns whether it held by the deadline."""
    due_s = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > due_s:
            return False
        time.sleep(0.02)
    return True
