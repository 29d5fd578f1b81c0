"""Records by strace what a program does to its files: one that it runs, or one that runs already.

strace sees what reaches the kernel, whoever calls: Python, SQLite, RocksDB, or a library that a later release writes with. What
it would not see (io_uring, memory that is mapped and written) is found out: at the end the files of the model must be those on
the disk (disk.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from chaos.crash_states.calls import TRACED, Call, parse_calls

_TEXT_MAX = 16 << 20  # bytes of one write that are recorded; a longer one is an error of the reader
_SHOWN = ("-f", "-xx", "-s", str(_TEXT_MAX), "-e", "signal=none", "-e", f"trace={TRACED}")


def missing() -> str | None:
    """Says why nothing can be recorded on this machine; None: it can."""
    if shutil.which("strace") is None:
        return "strace is not there: apt-get install strace"
    trial = subprocess.run(
        ["strace", "-qq", "-e", "trace=close", "-o", os.devnull, "true"], capture_output=True, check=False, text=True,
    )
    return None if trial.returncode == 0 else f"strace may not trace here: {trial.stderr.strip()[-200:]}"


def record(command: Sequence[str], *, timeout_s: float, environment: dict[str, str] | None = None) -> list[Call]:
    """Runs `command` to its end. Raises RuntimeError with its output when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "calls"
        tracing = ("strace", "-qq", "--seccomp-bpf", *_SHOWN, "-o", str(out), "--")
        ended = subprocess.run(
            [*tracing, *command], capture_output=True, timeout=timeout_s, check=False, text=True, env=environment,
        )
        if ended.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}")
        with out.open(encoding="ascii") as lines:
            return parse_calls(lines)


@contextmanager
def recorded_until_death(pid: int, *, timeout_s: float) -> Iterator[list[Call]]:
    """Records what the process `pid` does from now on. It must have ended when the context is left: the list is filled then."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "calls"
        tracer = subprocess.Popen(["strace", *_SHOWN, "-o", str(out), "-p", str(pid)], stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        calls: list[Call] = []
        try:
            said = tracer.stderr.readline()
            if "attached" not in said:
                raise RuntimeError(f"strace does not record process {pid}: {said.strip()}")
            yield calls
            tracer.wait(timeout_s)
        finally:
            tracer.terminate()
            tracer.communicate(timeout=timeout_s)
        with out.open(encoding="ascii") as lines:
            calls += parse_calls(lines)
