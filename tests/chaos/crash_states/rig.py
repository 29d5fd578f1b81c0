"""Records a program, and has its recovery open every state that a power loss may have left."""

from __future__ import annotations

import asyncio
import copy
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from chaos.crash_states.calls import Call
from chaos.crash_states.disk import Disk
from chaos.crash_states.model import Tree, equal_trees
from chaos.crash_states.recording import record
from chaos.crash_states.states import CrashState, crash_states, digest
from chaos.crash_states.trees import read_tree, write_tree
from chaos.servers.janitor import own_prefix

Found = TypeVar("Found")
Plant = tuple[str, str, str]  # module, right, wrong
_MEMORY = Path("/dev/shm")  # a sync there takes no time
_TIMEOUT_S = 600.0
_FAULTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Recording:
    """The calls of a program on the disk `before`, and the folder `root` as it left it."""

    root: Path
    before: Disk
    calls: list[Call]

    def states(self, most: int, seed: int = 1) -> Iterator[CrashState]:
        return crash_states(copy.deepcopy(self.before), self.calls, most, seed)

    def died_after(self, calls: int) -> Disk:
        """The disk when the program died behind so many calls."""
        disk = copy.deepcopy(self.before)
        for call in self.calls[:calls]:
            disk.begin(call)
            disk.end(call)
        return disk


@dataclass(slots=True)
class Judged:
    states: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.states} states, {len(self.faults)} faults", *self.faults])


def without(module: str, before: str, sync: str, behind: str = "") -> Plant:
    """The mistake that `sync` is missing between two texts."""
    return module, before + sync + behind, before + behind


def recorded(
    program: str, folder: Path, plants: Sequence[Plant] = (), *, before: Disk | None = None, except_for: Iterable[str] = (),
) -> Recording:
    """Runs tests/chaos/crash_states/programs/`program`, which finds what `before` has cached, and nothing without it.
    `except_for`: ends of the names of files that a program changes through mapped memory, and that hold nothing of worth."""
    folder.mkdir(exist_ok=True)
    root, marks_path = folder.resolve() / "root", folder.resolve() / "marks"
    root.mkdir()
    disk = Disk(str(root), str(marks_path)) if before is None else before.after_death(str(root), str(marks_path))
    write_tree(disk.cached(), root)
    planted = [part for plant in plants for part in plant]
    module = f"tests.chaos.crash_states.programs.{program}"
    calls = record([sys.executable, "-m", module, str(root), str(marks_path), *planted], timeout_s=_TIMEOUT_S)
    recording = Recording(root, disk, calls)
    after = recording.died_after(len(calls))
    different = equal_trees(after.cached(), read_tree(root), except_for=except_for)
    assert not different, f"the recording does not show all that was done to {different}"
    assert len(after.marks) > len(disk.marks), "the program said nothing"
    return recording


def judge(
    states: Iterable[CrashState], recover: Callable[[Path], Coroutine[None, None, Found]],
    check: Callable[[Found, tuple[str, ...]], str | None],
) -> Judged:
    """Opens every state with `recover`, which may change its folder, and asks `check` for what is wrong with what it found. An
    error of `recover` is a fault. A few faults are enough."""
    judged = Judged()
    known: dict[bytes, Found | _Broken] = {}
    with asyncio.Runner() as runner, _in_memory() as scratch:
        for state in itertools.takewhile(lambda _: len(judged.faults) < _FAULTS_MAX, states):
            judged.states += 1
            key = digest(state.tree)
            if key not in known:
                known[key] = _recovered(runner, state.tree, Path(scratch) / "root", recover)
            found = known[key]
            wrong = found if isinstance(found, _Broken) else check(found, state.marks)
            if wrong is not None:
                judged.faults.append(f"after call {state.at}, having said {state.marks[-3:]}: {wrong}\n  {sorted(state.tree)}")
    return judged


def _in_memory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=own_prefix("crash-states"), dir=_MEMORY if _MEMORY.is_dir() else None)


class _Broken(str):
    """The error with which a state did not open."""


def _recovered(
    runner: asyncio.Runner, tree: Tree, root: Path, recover: Callable[[Path], Coroutine[None, None, Found]]
) -> Found | _Broken:
    root.mkdir()
    try:
        write_tree(tree, root)
        return runner.run(recover(root))
    except Exception as error:
        return _Broken(f"it does not open: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(root)
