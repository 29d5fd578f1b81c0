"""The files that this process has open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """Returns the paths of the files below `folder` that this process has open, also of those that are deleted."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, and what another thread has closed since
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(f"{folder}/"))
