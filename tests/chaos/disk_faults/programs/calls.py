"""Makes the calls that it is asked for, each on a thread of its own, and says what came of it.

A line in, `NAME PATH`; a line out, `NAME PATH` and `ok` or the error's name, in the order in which the calls end. `hold PATH`
opens a file for the calls that need a descriptor.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Mapping

held: dict[str, int] = {}


def hold(path: str) -> None:
    held[path] = os.open(path, os.O_RDWR)


def _shut(descriptor: int) -> None:
    os.close(descriptor)


def _append(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _in_folder(path: str, call: Callable[[str, int], object]) -> None:
    """`call` with the name alone, and the descriptor of its folder."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        call(os.path.basename(path), folder)
    finally:
        os.close(folder)


CALLS: Mapping[str, Callable[[str], object]] = {
    "hold": hold,
    "release": lambda path: os.close(held.pop(path)),
    "write": lambda path: os.write(held[path], b"0123456789"),
    "writev": lambda path: os.writev(held[path], [b"01234", b"56789"]),
    "pwrite": lambda path: os.pwrite(held[path], b"0123456789", 0),
    "pwritev2": lambda path: os.pwritev(held[path], [b"0123456789"], 0),
    "append": lambda path: _append(path, b"0123456789"),
    "write-at-end": lambda path: os.lseek(held[path], 0, os.SEEK_END) and os.write(held[path], b"0123456789"),
    "pwritev2-grows": lambda path: os.pwritev(held[path], [b"0123456789"], 995),
    "pwritev2-syncs": lambda path: os.pwritev(held[path], [b"0123456789"], 0, os.RWF_DSYNC),
    "ftruncate": lambda path: os.ftruncate(held[path], 10),
    "fallocate": lambda path: os.posix_fallocate(held[path], 0, 2000),
    "fsync": lambda path: os.fsync(held[path]),
    "fdatasync": lambda path: os.fdatasync(held[path]),
    "read": lambda path: os.read(held[path], 10),
    "pread": lambda path: os.pread(held[path], 10, 0),
    "open": lambda path: _shut(os.open(path, os.O_RDONLY)),
    "open-to-write": lambda path: _shut(os.open(path, os.O_WRONLY)),
    "create": lambda path: _shut(os.open(path + "-new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "create-at": lambda path: _in_folder(
        path, lambda name, folder: _shut(os.open(name + "-new-at", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=folder)),
    ),
    "empty": lambda path: _shut(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "rename": lambda path: os.rename(path, path + "-moved"),
    "replace": lambda path: os.replace(path + "-beside", path),
    "link": lambda path: os.link(path, path + "-linked"),
    "unlink": lambda path: os.unlink(path),
    "unlink-at": lambda path: _in_folder(path, lambda name, folder: os.unlink(name, dir_fd=folder)),
    "mkdir": lambda path: os.mkdir(path + "-folder"),
    "rmdir": lambda path: os.rmdir(path + "-empty"),
    "stat": lambda path: os.stat(path),
    "lstat": lambda path: os.lstat(path),
    "listdir": lambda path: os.listdir(os.path.dirname(path)),
    "statvfs": lambda path: os.statvfs(path),
    "is-full": lambda path: os.fsync(-1) if os.statvfs(path).f_bavail else None,
}


def make(name: str, path: str) -> None:
    try:
        CALLS[name](path)
        said = "ok"
    except OSError as error:
        said = errno.errorcode[error.errno or 0]
    os.write(1, f"{name} {path} {said}\n".encode())


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=make, args=line.split()).start()
