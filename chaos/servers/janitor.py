"""A process that clears away what the process that employs it leaves behind when it ends, however it ends.

What always holds: it ends only processes that inherited the mark of its employer, and removes only folders that carry that mark
in their name; while the employer lives it does nothing. It needs Linux (`pidfd_open`, /proc); elsewhere nobody is employed.
Servers that are tied to their parent (gateway/demo/child.py) end by themselves: they get the time to do so.
Source: the employers are the processes of the tests (tests/conftest.py), where an xdist worker that is killed runs no clean-up,
and the simulator's command, whose runs on real engines have folders in memory.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

MARK = "TWINLOG_LEFT_BY"  # in the environment of every process that the employer starts
MEMORY = Path("/dev/shm")
_END_S = 120.0
_POLL_S = 0.1


def employ() -> None:
    """Starts the janitor of this process, which is the employer from now on; once."""
    if not hasattr(os, "pidfd_open") or os.environ.get(MARK, "").startswith(f"{os.getpid()}."):
        return
    without = {name: value for name, value in os.environ.items() if name != MARK}
    os.environ[MARK] = f"{os.getpid()}.{secrets.token_hex(4)}"
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), os.environ[MARK]]
    os.posix_spawn(sys.executable, command, without, file_actions=nowhere, setsid=True)  # and never waited for: it outlives us


def own_prefix(what: str) -> str:
    """Returns the prefix of a temporary folder that the janitor of this process removes, when nobody else did. It lies where
    temporary files do, or in MEMORY."""
    return f"twinlog-{what}-{os.environ.get(MARK, '')}-"


def folders_left(mark: str) -> list[Path]:
    return [folder for parent in (Path(tempfile.gettempdir()), MEMORY) for folder in parent.glob(f"twinlog-*-{mark}-*")]


def processes_left(mark: str) -> list[int]:
    """Those that live: one that has ended and was not waited for has no environment any more."""
    told, found = f"{MARK}={mark}\0".encode(), []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if told in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


def main(employer: int, mark: str) -> None:
    with suppress(ProcessLookupError):
        end = os.pidfd_open(employer)
        if os.getppid() == employer:
            select.select([end], [], [])
    until_s = time.monotonic() + _END_S
    while (processes_left(mark) or folders_left(mark)) and time.monotonic() < until_s:
        time.sleep(_POLL_S)  # what is tied to its parent ends, and then writes no more into a folder
        for pid in processes_left(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in folders_left(mark):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
