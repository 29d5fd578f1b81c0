"""One server as a child of this process: started, stopped, killed, paused and woken by its process id.

What always holds: a daemon never outlives this process where the system can see to that, and never shares a
process id file with a second one; what it printed stands in its log, and the end of that log in the error when it dies.
Every wait has a deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gateway.demo.child import start_child
from twinlog.errors import DfsError

STOP_DEADLINE_S = 60.0
LOG_TAIL_LINES = 8


class Daemon:
    """`name` is what it is called in messages and file names, `command` the whole command line; its state is in `folder`.
    `environ`: of the process; None: ours."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.folder = folder
        self._command, self._environ = command, environ
        self._log = folder / f"{name}.log"
        self._note = folder / f"{name}.pid"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        """True also while it is paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; it is not ready then. Raises DfsError when it runs already, here or elsewhere."""
        if self.is_running:
            raise DfsError(f"{self.name} runs already (pid {self.pid})")
        if elsewhere := self._running_elsewhere():
            raise DfsError(f"{self.name} in {self.folder} runs already (pid {elsewhere}): stop that process first")
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as log:
            self._process = start_child(self._command, log, folder=self.folder, environ=self._environ)
        self._note.write_text(str(self._process.pid))

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that is not heeded by the deadline. Nothing to do when it does not run."""
        if not self.is_running or self._process is None:
            return
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._note.unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            self._note.unlink(missing_ok=True)

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it answers nobody any more when this returns. Raises DfsError."""
        self._signal(signal.SIGSTOP)
        if not wait_stopped(self.pid or 0):
            raise DfsError(f"{self.name} did not stop within {STOP_DEADLINE_S} s of SIGSTOP")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Raises DfsError with the end of its log when it does not run."""
        if not self.is_running:
            code = "never started" if self._process is None else f"ended with code {self._process.returncode}"
            raise DfsError(f"{self.name} {code}; the end of {self._log}:\n{self.log_tail()}", log=str(self._log))

    def log_tail(self) -> str:
        with suppress(OSError):
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        return ""

    def _signal(self, number: signal.Signals) -> None:
        self.check()
        assert self._process is not None
        self._process.send_signal(number)

    def _running_elsewhere(self) -> int | None:
        """The process id that an earlier owner of the folder left behind, if it is that daemon still."""
        with suppress(OSError, ValueError):
            pid = int(self._note.read_text())
            told = Path(f"/proc/{pid}/cmdline").read_bytes()
            if all(os.fsencode(part) in told for part in (self._command[-1], str(self.folder))):
                return pid
        return None


def wait_stopped(pid: int) -> bool:
    """Until no thread of our own child `pid`, which got SIGSTOP, runs any more. False: not in time."""
    stopped = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    until_s = time.monotonic() + STOP_DEADLINE_S
    while os.waitid(os.P_PID, pid, stopped) is None:  # they stop one after the other
        if time.monotonic() > until_s:
            return False
        time.sleep(0.005)
    return True
