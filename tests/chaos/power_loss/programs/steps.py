"""Does to files what it is asked for, step by step: a line in, a JSON list; a line out, `ok` or the error's name.

Files are known by the number in which they were made, also when their names are gone; `threads` writes until the end.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

made: list[int] = []


def make(path: str) -> None:
    made.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))


def make_or_find(path: str) -> None:
    made.append(os.open(path, os.O_RDWR | os.O_CREAT))


def on_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_in_many_parts(number: int, count: int) -> None:
    os.pwritev(made[number], [b"%04d" % part for part in range(count)], 0)


def write_where_it_stands(number: int, text: str, path: str, flag: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | getattr(os, flag))
    try:
        os.write(descriptor, text.encode())
        os.writev(descriptor, [text.encode(), b"!"])
    finally:
        os.close(descriptor)


def threads(folder: str, count: int) -> None:
    """Each of them writes a number to its file, syncs it, says so, and goes on with the next one."""
    def work(name: str) -> None:
        descriptor = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT)
        on_folder(folder)
        for number in itertools.count(1):
            os.pwrite(descriptor, b"%08d" % number, 8 * (number - 1))
            os.fdatasync(descriptor)
            os.write(1, b"%s %d\n" % (name.encode(), number))

    for name in range(count):
        threading.Thread(target=work, args=(str(name),), daemon=True).start()


def writers(folder: str, count: int) -> None:
    """Each of them writes to its file as fast as it can."""
    def work(name: str) -> None:
        descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
        for number in itertools.count():
            os.pwrite(descriptor, b"%08d" % number, 8 * (number % 1000))

    for name in range(count):
        threading.Thread(target=work, args=(str(name),), daemon=True).start()


def mapped(path: str) -> None:
    import mmap

    with open(path, "rb+") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] = ord("S")


STEPS: Mapping[str, Callable[..., object]] = {
    "make": make, "make-or-find": make_or_find,
    "write": lambda number, offset, text: os.pwrite(made[number], text.encode(), offset),
    "write-synced": lambda number, offset, text: os.pwritev(made[number], [text.encode()], offset, os.RWF_DSYNC),
    "write-parts": write_in_many_parts, "write-there": write_where_it_stands,
    "cut": lambda number, length: os.ftruncate(made[number], length),
    "allocate": lambda number, length: os.posix_fallocate(made[number], 0, length),
    "empty": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "sync": lambda number: os.fsync(made[number]), "datasync": lambda number: os.fdatasync(made[number]),
    "sync-folder": on_folder, "rename": os.replace, "link": os.link, "unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir,
    "map": mapped, "threads": threads, "writers": writers,
    "kill-itself": lambda: os.kill(os.getpid(), signal.SIGKILL), "exit-itself": lambda: os._exit(3),
    "end": lambda: [os.close(made.pop()) for _ in range(len(made))],
}

if __name__ == "__main__":
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            STEPS[name](*arguments)
            said = "ok"
        except OSError as error:
            said = errno.errorcode[error.errno or 0]
        os.write(1, f"{said}\n".encode())
