"""A disk that fails to sync one folder, once."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class FailingFolders:
    """Stands in the place of `os.fsync`, and fails once for the folder `failing`. `synced`: what was synced since then."""

    def __init__(self, failing: Path) -> None:
        self._failing, self._real = failing, os.fsync
        self.has_failed = False
        self.synced: list[Path] = []

    def __call__(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path == self._failing and not self.has_failed:
            self.has_failed = True
            self.synced.clear()
            raise OSError(errno.EIO, "injected")
        self._real(descriptor)
        self.synced.append(path)
