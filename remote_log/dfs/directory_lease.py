"""Leases for files of a plain directory: who may write is decided by marks beside the file. Blocking calls only.

For the file `name` there may be, hidden from listings:

    .name.recovering        lease recovery has begun: its writer must not acknowledge anything any more
    .name.closed            a hard link to THE content of the closed file; made exclusively, never replaced
    .tmp.<token>.name       on its way to become one of the above, or `name` itself

What always holds:
- a writer syncs first and looks for the marks second, a recovery makes its mark first and copies second: an append
  that was acknowledged is in every copy.
- of all recoveries and the writer's own close exactly one makes `.name.closed`; all others adopt that content, so it
  never changes, whoever was paused for how long at whatever step; there is no lock that a paused process could hold.
- the file is closed when `name` and `.name.closed` are the same inode. The old writer's descriptor then leads to an
  inode that no name leads to (or it closed the file itself, and writes no more).
Source: docs/decisions/2026-11-21-directory-dfs-leases.md.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from twinlog.errors import LeaseLost

_TEMP = ".tmp."
_TOKEN_BYTES = 8
_COPY_BYTES = 1 << 20


def recovering_mark(path: Path) -> Path:
    return path.with_name(f".{path.name}.recovering")


def closed_mark(path: Path) -> Path:
    return path.with_name(f".{path.name}.closed")


def temp_name(path: Path) -> Path:
    return path.with_name(f"{_TEMP}{secrets.token_hex(_TOKEN_BYTES)}.{path.name}")


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """A positioned write that continues after a short one."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def publish(path: Path, content: bytes) -> None:
    """A whole file at `path`, durable, exclusive, closed from the start, never visible without its content.

    Raises FileExistsError, once the name that is there is durable: the call that made it may have failed at its sync.
    """
    temp = temp_name(path)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            write_all(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.link(temp, path)
        with suppress(FileExistsError):
            os.link(temp, closed_mark(path))
    except FileExistsError:
        sync_folder(path.parent)
        raise
    finally:
        temp.unlink(missing_ok=True)
    sync_folder(path.parent)


def check_lease(path: Path, own: os.stat_result) -> None:
    """Checks the lease for the writer with an open descriptor of inode `own`, after each sync. Raises LeaseLost.

    The mark is looked for before the name: a deletion takes the name away before the mark, so a writer that slept
    through recovery AND deletion finds no mark, but then it finds no name either.
    """
    if os.path.lexists(recovering_mark(path)):
        raise LeaseLost(f"{path} is being closed, or was closed, by lease recovery", file=str(path))
    try:
        now = os.stat(path)
    except FileNotFoundError:
        raise LeaseLost(f"{path} was deleted under its writer", file=str(path)) from None
    if not os.path.samestat(now, own):
        raise LeaseLost(f"{path} was closed and replaced by lease recovery", file=str(path))


def close_own(path: Path, own: os.stat_result) -> None:
    """The writer's own close, after it has truncated and synced. Raises LeaseLost when a recovery was faster."""
    mark = closed_mark(path)
    with suppress(FileExistsError):
        os.link(path, mark)
    if not os.path.samestat(os.stat(mark), own):
        raise LeaseLost(f"{path} was closed by lease recovery before its writer did", file=str(path))
    sync_folder(path.parent)


def recover(path: Path) -> None:
    """Close the file under its writer. May be called again after a crash at any step, and by several at once.

    Raises FileNotFoundError.
    """
    os.stat(path)
    mark = closed_mark(path)
    if not mark.exists():
        os.close(os.open(recovering_mark(path), os.O_WRONLY | os.O_CREAT, 0o644))
        sync_folder(path.parent)
        copy = _copy(path)
        try:
            with suppress(FileExistsError):
                os.link(copy, mark)
        finally:
            copy.unlink(missing_ok=True)
    sync_folder(path.parent)
    _adopt(path, mark)


def is_closed(path: Path) -> bool:
    """True when nothing can change the file any more, not even a power cut. Raises FileNotFoundError."""
    now = os.stat(path)
    try:
        decided = os.stat(closed_mark(path))
    except FileNotFoundError:
        return False
    if not os.path.samestat(now, decided):
        return False
    sync_folder(path.parent)
    return True


def remove(path: Path) -> None:
    """Delete the file, then everything that belongs to it. Absent is fine."""
    path.unlink(missing_ok=True)
    if not path.parent.is_dir():
        return
    for entry in os.listdir(path.parent):
        if entry.startswith(_TEMP) and entry.removeprefix(_TEMP).partition(".")[2] == path.name:
            path.with_name(entry).unlink(missing_ok=True)
    closed_mark(path).unlink(missing_ok=True)
    recovering_mark(path).unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Files before their marks, for the reason that `check_lease` gives. Raises OSError when someone adds files."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name.startswith("."))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_folder(Path(entry.path))
        else:
            Path(entry.path).unlink(missing_ok=True)
    os.rmdir(folder)


def _copy(path: Path) -> Path:
    """A synced copy of what the file holds now. Everything acknowledged is within the size seen here."""
    temp = temp_name(path)
    source = os.open(path, os.O_RDONLY)
    try:
        target = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            offset, end = 0, os.fstat(source).st_size
            while chunk := os.pread(source, min(_COPY_BYTES, end - offset), offset):
                write_all(target, chunk, offset)
                offset += len(chunk)
            os.fsync(target)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)
    return temp


def _adopt(path: Path, mark: Path) -> None:
    """Let the name lead to the decided content; without effect when it does already."""
    link = temp_name(path)
    os.link(mark, link)
    try:
        os.stat(path)  # deleted in the meantime: do not bring it back
        os.replace(link, path)  # keeps `link` when both are the same inode
    finally:
        link.unlink(missing_ok=True)
    sync_folder(path.parent)
