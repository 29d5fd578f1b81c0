"""The origin of a report: its time, the commit, the machine.

What always holds: what cannot be found out is `unknown`.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[3]
GIT_S = 10.0


class Origin(msgspec.Struct, frozen=True):
    """`commit` ends with `+` when files differ from it. `load`: the load average of the last minute, when the run ended."""

    made: str
    commit: str
    machine: str
    load: float


def origin() -> Origin:
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return Origin(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", _commit(), machine, round(os.getloadavg()[0], 1))


def _commit() -> str:
    number = _git("rev-parse", "--short=10", "HEAD")
    return f"{number}{'+' if _git('status', '--porcelain', '--untracked-files=no') else ''}" if number else "unknown"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False, timeout=GIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
