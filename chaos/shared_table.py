"""A table in memory that processes share: made as a file, and mapped by whoever knows its path.

What always holds: a new one is all zeros; what a process that was killed had written to it is there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import TypeVar

_Table = TypeVar("_Table", bound=ctypes.Structure)


def mapped(path: Path, table: type[_Table], *, new: bool = True) -> _Table:
    """Returns the table at `path`, which is made, or emptied, when it is `new`. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if new else 0), 0o600)
    try:
        if new:
            os.ftruncate(descriptor, ctypes.sizeof(table))
        return table.from_buffer(mmap.mmap(descriptor, ctypes.sizeof(table)))
    finally:
        os.close(descriptor)


def is_mapped_by(pid: int, path: Path) -> bool:
    """Returns whether the process looks at this table."""
    try:
        return str(path) in Path(f"/proc/{pid}/maps").read_text()
    except FileNotFoundError:
        return False
