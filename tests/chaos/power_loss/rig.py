"""A child that does steps below a folder that can lose power."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.crash_states.trees import read_tree
from chaos.power_loss.losing import Choice, PowerLoss, all_lost


class Rig:
    def __init__(self, root: Path, power: PowerLoss, process: subprocess.Popen[str]) -> None:
        self.root, self.power, self._process, self.pid = root, power, process, process.pid
        self.cut_ns = 0

    def said(self, name: str, *arguments: str | int) -> str:
        """Does a step (programs/steps.py); a text with a `/` in front is a path below the root."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        whole = [f"{self.root}{each}" if isinstance(each, str) and each.startswith("/") else each for each in arguments]
        self._process.stdin.write(json.dumps([name, *whole]) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def cut(self) -> None:
        self.cut_ns = self.power.processes.cut(self.pid)

    def do(self, *steps: tuple[str | int, ...]) -> None:
        for name, *arguments in steps:
            assert self.said(str(name), *arguments) == "ok", (name, arguments)

    def lost(self, choice: Choice = all_lost) -> dict[str, bytes | None]:
        """Loses the power; what is left."""
        self.power.lose([self.root], choice, self.cut_ns or time.monotonic_ns())
        return self.left()

    def left(self) -> dict[str, bytes | None]:
        return {path: None if node is None else node[1] for path, node in read_tree(self.root).items()}

    def kill(self) -> str:
        """Returns what it had said that nobody has read."""
        self._process.kill()
        return self._process.communicate(timeout=60)[0]


@contextmanager
def rig_at(folder: Path, *, in_order: str | None = None, environ: Mapping[str, str] | None = None) -> Iterator[Rig]:
    root, record = folder / "root", folder / "power"
    power = PowerLoss(record, {root: in_order})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.power_loss.programs.steps"], text=True, cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, **(environ or power.processes.environ())}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        try:
            yield Rig(root, power, process)
        finally:
            process.kill()
            power.close()
