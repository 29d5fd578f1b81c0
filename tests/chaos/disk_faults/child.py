"""A program of tests/chaos/disk_faults/programs as a child, with the library in it: lines in, lines out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Child:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.send(line)
        return self.hear()

    def end(self) -> str:
        """Returns what it said on standard error."""
        return self._process.communicate(timeout=120)[1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def child(program: str, environ: Mapping[str, str], *arguments: str, folder: Path | None = None) -> Iterator[Child]:
    module = f"tests.chaos.disk_faults.programs.{program}"
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env={**os.environ, "PYTHONPATH": root, **environ}, text=True, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()
