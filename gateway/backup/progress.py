"""Shows how far a long command on a backup is: the port, and the words for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from storage.backup.manifest import BackupFile
from twinlog.cli.status import figure, size


class BackupProgress(Protocol):
    def say(self, line: str) -> None: ...

    def begin(self, line: str) -> None:
        """Another thing is begun: the bar is its own from now on."""

    def reached(self, done: int, total: int | None, shown: str) -> None:
        """`done` of `total`, in any unit; None: nobody knows, and no share is shown. `shown`: as people read it."""


class FilesRead:
    """Counts the bytes of `files` as they are read."""

    def __init__(self, progress: BackupProgress, files: Iterable[BackupFile]) -> None:
        self._progress, self._done_bytes = progress, 0
        self._total_bytes = sum(file.length_bytes for file in files)

    def add(self, file: BackupFile) -> None:
        self._done_bytes += file.length_bytes
        shown = f"{size(self._done_bytes)} of {size(self._total_bytes)}"
        self._progress.reached(self._done_bytes, self._total_bytes, shown)


def amount(done_bytes: int, rows: int | None = None, rows_about: int | None = None) -> str:
    """`rows_about`: how many there are, as estimated."""
    if rows is None:
        return size(done_bytes)
    about = "" if rows_about is None or rows_about <= rows else f"of about {rows_about:,} "
    return f"{rows:,} {about}rows, {size(done_bytes)}" if about else f"{figure(rows, 'rows')}, {size(done_bytes)}"
