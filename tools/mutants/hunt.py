"""Hunts one mutant at a time in a copy of the project: by the tests that stand for its room, and by the simulator.

What always holds: the copy is made from what git tracks and is put back after each mutant; every hunt has a deadline, and
a hunt that runs into it counts as found, since the clean project ends in a fraction of it.
"""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

import msgspec

from tools.mutants.mutant import Mutant, mutated
from tools.sources import repository_files

TESTS_DEADLINE_S = 600.0
FIRST_SEEDS, FIRST_DEADLINE_S = 40, 150.0  # a mutant that never ends a run mostly does so in the first ones
SEED_DEADLINE_S = 0.6  # of each later one on average


@dataclass(frozen=True, slots=True)
class Found:
    """`seed`: how many seeds the simulator needed; None: it did not find it (or was not asked). `test`: the first that failed,
    "" where none did."""

    name: str
    seed: int | None
    violation: str
    test: str
    took_s: float


class Tree:
    """A copy of the project below `folder`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        for path in repository_files(root):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, folder / path)

    def compile(self) -> None:
        """Compiles the copy once, so that a hunt compiles its mutant alone. Python compares the hash of each source, so that
        a mutant which is planted within the same second as another is read all the same."""
        compileall.compile_dir(self.folder, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    def plant(self, mutant: Mutant) -> None:
        source = (self._root / mutant.file).read_text(encoding="utf-8")
        (self.folder / mutant.file).write_text(mutated(mutant, source), encoding="utf-8")

    def clear(self, mutant: Mutant) -> None:
        shutil.copyfile(self._root / mutant.file, self.folder / mutant.file)

    def run(self, arguments: list[str], deadline_s: float) -> tuple[int | None, str]:
        """Returns the exit code (None: not done by the deadline) and what was printed; nothing that it started is left."""
        environment = {
            **os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=deadline_s)
            return process.returncode, printed
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0] or ""


def hunt(tree: Tree, mutant: Mutant, *, tests: tuple[str, ...], seeds: int, seed: int = 0) -> Found:
    """Returns what found `mutant`: the simulator in `seeds` seeds from `seed` on, and the tests below `tests`."""
    began_s = time.monotonic()
    tree.plant(mutant)
    try:
        needed, violation = _simulated(tree, seed, seeds) if seeds else (None, "")
        test = _tested(tree, tests) if tests else ""
    finally:
        tree.clear(mutant)
    return Found(mutant.name, needed, violation, test, time.monotonic() - began_s)


def _simulated(tree: Tree, first: int, seeds: int) -> tuple[int | None, str]:
    few = min(seeds, FIRST_SEEDS)
    needed, violation = _looked_for(tree, first, few, FIRST_DEADLINE_S)
    if needed is None and seeds > few:
        needed, violation = _looked_for(tree, first + few, seeds - few, FIRST_DEADLINE_S + SEED_DEADLINE_S * (seeds - few))
        needed = None if needed is None else needed + few
    return needed, violation


def _looked_for(tree: Tree, first: int, seeds: int, deadline_s: float) -> tuple[int | None, str]:
    arguments = ["chaos", "simulate", "--seeds", str(seeds), "--seed", str(first), "--jobs", "1", "--until-found", "--json"]
    code, printed = tree.run(arguments, deadline_s)
    if code is None:
        return seeds, "a run did not end"
    try:
        document = msgspec.json.decode(printed[printed.index("{"):])
    except (ValueError, msgspec.DecodeError):
        return 1, f"no run began: {printed.strip().splitlines()[-1][:120] if printed.strip() else code}"
    if not document["failed"]:
        return None, ""
    failed = document["failed"][0]
    return failed - first + 1, document["violations"][str(failed)][0]


def _tested(tree: Tree, tests: tuple[str, ...]) -> str:
    arguments = ["pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rfE", *tests]
    code, printed = tree.run(arguments, TESTS_DEADLINE_S)
    if code == 0:
        return ""
    if code is None:
        return "the tests did not end"
    failed = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else f"exit code {code}"
