"""A RocksDB engine in a test, and its death: what a killed process leaves is a copy of its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings


def crash_image(folder: Path, copy: Path) -> None:
    """`folder` as a crash would leave it. Tried again when RocksDB's background work changed files meanwhile."""
    while True:
        before = _files(folder)
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(folder, copy)
        except (FileNotFoundError, shutil.Error):
            continue
        if _files(folder) == before:
            return


def _files(folder: Path) -> dict[str, int]:
    """Returns the sizes of all files but the info log, which grows at any time."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.name != "LOG":
            try:
                sizes[str(path)] = path.stat().st_size
            except FileNotFoundError:
                sizes[str(path)] = -1
    return sizes


class RocksRig:
    """Each crash goes on in a copy of the folder, because a RocksDB that is closed in this process writes what it has."""

    def __init__(self, folder: Path, settings: RocksSettings, engine: RocksEngine) -> None:
        self.engine = engine
        self._root, self._settings = folder, settings
        self._life = 0

    @classmethod
    async def make(cls, folder: Path, settings: RocksSettings) -> RocksRig:
        return cls(folder, settings, await RocksEngine.open(folder / "0", settings))

    async def crash(self) -> None:
        crash_image(self._root / str(self._life), self._root / str(self._life + 1))
        await self.engine.close()
        shutil.rmtree(self._root / str(self._life))
        self._life += 1
        self.engine = await RocksEngine.open(self._root / str(self._life), self._settings)

    def break_down(self) -> None:
        """RocksDB finds its folder gone: the next file that it wants to make fails."""
        folder = self._root / str(self._life)
        folder.rename(folder.with_name("away"))

    def repair(self) -> None:
        folder = self._root / str(self._life)
        shutil.rmtree(folder, ignore_errors=True)  # attempts to open it left an empty one
        folder.with_name("away").rename(folder)

    async def restart(self) -> None:
        await self.engine.close()
        self.engine = await RocksEngine.open(self._root / str(self._life), self._settings)
