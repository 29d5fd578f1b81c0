"""The lot of an engine that keeps its rows in a folder: its process is killed, its machine, its disk is full, new or older.

What always holds: a crash leaves what the engine itself had brought to its files; no object of it survives, and the next one
opens a copy of the folder by the product's own code. Every folder is below the one that the run was given.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

from chaos.simulate.engines.worker import SimWorker
from chaos.simulate.twins.engine import SimSnapshot
from storage.engine import EngineState

CALL_S = (0.00005, 0.001)  # at least, and so much more at most
LONG_CALL_S = 0.02
LONG = 0.2  # of the calls


class InFolder:
    """The base of an engine of the product: its class is made with a folder, and opens it at once. `slow`, `slow_reads`: as the
    twin has them; calls of workers take their time anyway. A refusal of its database is not played here."""

    has_refusal_ahead = False
    applied: EngineState
    durable_seq: int
    failure: str | None

    def __init__(self, home: Path, random: Random) -> None:
        self._home, self._folder, self._random = home, home / "000", random
        self._broken: str | None = None
        self._made = 0  # folders, since the first
        self.slow = 1.0
        self.slow_reads = 0.0
        home.mkdir()
        self._folder.mkdir()
        self._begin()

    def _begin(self) -> None:
        """Opens what is in the folder, as a new process does."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """Nothing of the folder is open any more. What this still writes into it, nobody reads."""
        raise NotImplementedError

    def _after_power_loss(self, folder: Path) -> None:
        """Takes from the copy `folder` what was not durable: as it happens, all or nothing of it."""

    def _worker(self, name: str) -> SimWorker:
        return SimWorker(name, self._seconds)

    def _seconds(self) -> float:
        chance = self._random
        least, more = CALL_S
        return (least + (LONG_CALL_S if chance.random() < LONG else more) * chance.random()) * self.slow

    @property
    def durable_epoch(self) -> int:
        """Returns the epoch of the frame that ends at `durable_seq`."""
        state, durable = self.applied, self.durable_seq
        if durable == state.seq:
            return state.epoch
        return max((entry.epoch for entry in state.epochs if entry.first_seq <= durable), default=0)

    def open_snapshots(self) -> list[SimSnapshot]:
        """None: the twin's are counted."""
        return []

    def refuse_next_change(self) -> None: ...

    def break_down(self, why: str) -> None:
        self._broken = why

    def repair(self) -> None:
        self._broken = None

    # ---- lives
    def killed(self, *, machine: bool) -> None:
        """Its process is gone, or the machine under it."""
        left = self._new_path()
        copy_folder(self._folder, left)
        if machine:
            self._after_power_loss(left)
        self._replace(left)

    def wipe(self) -> None:
        """A new disk."""
        new = self._new_path()
        new.mkdir()
        self._replace(new)

    def copied(self) -> Path:
        """Returns a copy of its folder, as a snapshot of its disk is; for `put_back`."""
        copy = self._new_path()
        copy_folder(self._folder, copy)
        return copy

    def put_back(self, copied: Any) -> None:
        """A copy takes the place of what is here. No process runs."""
        self._replace(copied)

    def _replace(self, folder: Path) -> None:
        self._let_go()
        gone, self._folder = self._folder, folder
        self._begin()
        remove(gone)

    def _new_path(self) -> Path:
        """Never one of before: what a killed process had open of RocksDB keeps the lock of its path."""
        self._made += 1
        return self._home / f"{self._made:03}"

    def end(self) -> None:
        """The run is over."""
        self._let_go()


def remove(folder: Path) -> None:
    """RocksDB may be removing files of it, too."""
    shutil.rmtree(folder, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> None:
    """A copy of one moment. RocksDB merges files by itself: then it is made again."""
    while True:
        before = _files(source)
        try:
            shutil.copytree(source, target)
        except (shutil.Error, OSError):
            if _files(source) == before:
                raise
        else:
            if _files(source) == before:
                return
        remove(target)


def _files(folder: Path) -> list[tuple[str, int]]:
    found = []
    for path in folder.rglob("*"):
        try:
            found.append((str(path), path.stat().st_size))
        except FileNotFoundError:
            found.append((str(path), -1))
    return sorted(found)
