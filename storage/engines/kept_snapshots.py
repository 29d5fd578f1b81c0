"""Kept snapshots as files: a folder for each below one folder, beside the database. Blocking.

    <folder>/<name>/about            msgpack of `_About`
    <folder>/<name>/<content>        the snapshot itself, a folder or a file

What always holds: under its own name a snapshot is whole and durable; it is made, and taken apart, under a name that begins
with a dot, and what was left there is removed when the folder is opened. Source: storage/engine.py (`keep_snapshot`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from storage.disk.os_files import make_folders, sync_folder, write_whole
from storage.engine import KeptSnapshot
from storage.engines.meaning import by_age
from twinlog.decoding import or_none
from twinlog.errors import EngineFailed, reason

_ABOUT = "about"


class _About(msgspec.Struct, array_like=True, frozen=True):
    seq: int
    epoch: int
    taken_ms: int


_decode_about = msgspec.msgpack.Decoder(_About).decode


class SnapshotFolder:
    """`engine` begins every place, `content` is the name of what each folder holds."""

    def __init__(self, folder: Path, engine: str, content: str) -> None:
        self._folder, self._engine, self._content = folder.absolute(), engine, content
        self._held: dict[str, KeptSnapshot] = {}
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            kept = None if path.name.startswith(".") else self._found(path)
            if kept is None:
                shutil.rmtree(path, ignore_errors=True)
            else:
                self._held[path.name] = kept

    def _found(self, path: Path) -> KeptSnapshot | None:
        try:
            about = or_none(_decode_about, (path / _ABOUT).read_bytes())
        except OSError:
            return None
        return None if about is None else self._kept(path.name, about)

    def _kept(self, name: str, about: _About) -> KeptSnapshot:
        place = f"{self._engine}:{self._folder / name / self._content}"
        return KeptSnapshot(name, about.seq, about.epoch, about.taken_ms, place)

    def held(self) -> list[KeptSnapshot]:
        """From any thread."""
        return sorted(self._held.copy().values(), key=by_age)

    def keep(self, name: str, seq: int, epoch: int, taken_ms: int, make: Callable[[Path], None]) -> None:
        """`make` makes the content durably, at the path that it is given, of all that is applied. Raises EngineFailed."""
        held = self._held.get(name)
        if held is not None and (held.seq, held.epoch) == (seq, epoch):
            return
        self.release(name)
        part, about = self._folder / f".{name}.part", _About(seq, epoch, taken_ms)
        try:
            shutil.rmtree(part, ignore_errors=True)
            make_folders(part)
            make(part / self._content)
            write_whole(part / _ABOUT, msgspec.msgpack.encode(about))
            part.rename(self._folder / name)
            sync_folder(self._folder)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise EngineFailed(f"no snapshot could be kept in {self._folder}: {reason(error)}") from error
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        self._held[name] = self._kept(name, about)

    def release(self, name: str) -> None:
        """Raises EngineFailed."""
        if name not in self._held:
            return
        gone = self._folder / f".{name}.gone"
        try:
            shutil.rmtree(gone, ignore_errors=True)
            (self._folder / name).rename(gone)
            del self._held[name]
            sync_folder(self._folder)
        except OSError as error:
            raise EngineFailed(f"{self._folder / name} could not be removed: {reason(error)}") from error
        shutil.rmtree(gone, ignore_errors=True)

    def pinned_bytes(self) -> int:
        """Returns the bytes that releasing all of them would free: those of files that nothing else holds any more."""
        own: dict[int, tuple[int, int]] = {}  # inode: size, links that are not here
        for folder, _, names in os.walk(self._folder):
            for name in names:
                try:
                    status = os.stat(os.path.join(folder, name))
                except OSError:
                    continue  # released meanwhile
                size, links = own.get(status.st_ino, (status.st_size, status.st_nlink))
                own[status.st_ino] = size, links - 1
        return sum(size for size, links in own.values() if links <= 0)
