"""A server as a child of this process that does not outlive it.

What always holds: where the system has `setpriv`, the child gets a signal when this process ends, however it ends; elsewhere it
is left behind by a SIGKILL. The child is in a session of its own, so that a Ctrl-C at the terminal reaches this process alone.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

# The system signals a child when the thread that started it ends: so one thread that lives as long as this process.
_STARTER = ThreadPoolExecutor(1, "starter-of-children")


def start_child(
    command: Sequence[str], log: BinaryIO, *, folder: Path | str, left: signal.Signals = signal.SIGKILL,
    environ: Mapping[str, str] | None = None, owner: Mapping[str, Any] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `command` in `folder`; both its outputs go to `log`. `left`: the signal that it gets when this process has ended.
    `owner`: the members user, group and extra_groups of subprocess.Popen. Raises OSError."""
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            _tied(command, left), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
            env=environ, **(owner or {}),
        )

    return _STARTER.submit(start).result()


def _tied(command: Sequence[str], left: signal.Signals) -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", left.name.removeprefix("SIG"), *command] if setpriv else list(command)
