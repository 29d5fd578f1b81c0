"""Takes from the files of dead processes what a power loss would take.

What always holds: nothing is taken that a sync had covered; what the model of the disk says that programs see is what stands in
the folder, or nothing is done and the error names the files: a call that the library does not see cannot go unnoticed. Behind a
loss, what stands in the folder is durable, as after a start of a machine.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from chaos.crash_states.model import Model, Place, equal_trees
from chaos.crash_states.states import LOST, drawn_choice
from chaos.crash_states.trees import read_tree, write_tree
from chaos.power_loss.playing import Played
from chaos.power_loss.record import parse
from chaos.power_loss.table import RecordedProcesses
from twinlog.errors import Unavailable

UNSEEN = ("-shm",)  # SQLite maps these files and writes to them in memory; whoever opens one first begins it anew
SHOWN = 4

Choice = Callable[[Model], tuple[str, dict[Place, int]]]  # what it is called, and how many changes of each place are kept


def all_lost(model: Model) -> tuple[str, dict[Place, int]]:
    return LOST, {}


def by_chance(drawn: Random) -> Choice:
    return lambda model: drawn_choice(model, drawn)


class PowerLoss:
    """`watched`: the folders that can lose power, which are made here, and of each the part whose names change in the order of
    the calls (Model.in_order). `folder`, a new one, is for the record, on a disk with room."""

    def __init__(self, folder: Path, watched: Mapping[Path, str | None]) -> None:
        for each in (folder, *watched):
            each.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.processes = RecordedProcesses(folder, watched)
        self._played = Played({os.path.realpath(path): in_order for path, in_order in watched.items()})
        self._position = 0
        self._lock = threading.Lock()
        for path in watched:
            self.renewed(path)

    def renewed(self, folder: Path) -> None:
        """Takes the content of the folder as it is now, made by somebody who is not recorded, for durable."""
        with self._lock:
            self._play()
            root = Path(os.path.realpath(folder))
            root.mkdir(exist_ok=True)
            self._load(root)

    def _load(self, root: Path) -> None:
        tree = read_tree(root)
        inodes = {path: (root / path).stat().st_ino for path, node in tree.items() if node is None}
        self._played.load(str(root), tree, {"": root.stat().st_ino, **inodes})

    def lose(self, folders: Sequence[Path], choice: Choice, cut_ns: int) -> str:
        """Nobody uses the folders: who did was cut at `cut_ns`, and is dead. Returns what was lost, for people. Raises
        Unavailable."""
        with self._lock:
            return self._lose([Path(os.path.realpath(folder)) for folder in folders], choice, cut_ns)

    def _lose(self, roots: Sequence[Path], choice: Choice, cut_ns: int) -> str:
        self._play([str(root) for root in roots], cut_ns)
        shown = []
        for root in roots:
            model = self._played.models[str(root)]
            cached = model.cached()
            if different := equal_trees(cached, read_tree(root), except_for=UNSEEN):
                raise Unavailable(
                    f"the record does not show all that was done to {', '.join(different[:SHOWN])} in {root}: what is durable"
                    " there is not known"
                )
            way, taken = choice(model)
            left = model.tree(taken)
            changed = equal_trees(cached, left, except_for=UNSEEN)
            for entry in root.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            write_tree(left, root)
            self._load(root)
            shown.append(f"{root.parent.name}/{root.name}: of what was not synced, {way}" + _listed(changed))
        return "; ".join(shown)

    def close(self) -> None:
        """All recorded processes have ended: the record goes."""
        shutil.rmtree(self._folder)

    def _play(self, cut: Sequence[str] = (), cut_ns: int = 0) -> None:
        with self.processes.record.open("rb") as file:
            file.seek(self._position)
            record = file.read()
        try:
            entries, read_bytes = parse(record)
            self._played.play(entries, cut, cut_ns)
        except ValueError as error:
            raise Unavailable(f"the record of what processes wrote cannot be followed: {error}") from error
        self._position += read_bytes


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - SHOWN
    return f" ({', '.join(paths[:SHOWN])}{f' and {more} more' if more > 0 else ''})" if paths else ""
