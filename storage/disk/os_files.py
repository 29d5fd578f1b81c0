"""The Files port on a real disk.

What always holds: zeros are really written (a range that is only allocated would change metadata with its first write);
one thread per open log file takes all queued appends and writes and syncs them in one system call, and it is there before the
file is made, so that no append fails for want of it; after one failure that descriptor is never written or synced again; a name
that is new or gone is durable (its folder is synced) before the call returns, also where a call before it, whose sync failed,
has done the rest; no blocking call runs on the event loop.
Source: storage/disk/port.py, protocol.md sections 3 and 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from storage.disk.workers import GroupWorker, Worker, take_back
from twinlog.errors import LogError, SyncFailed, reason

T = TypeVar("T")
_ZEROS = bytes(1 << 20)  # zeroed in pieces, each synced: a big flush at once would hold up the log's own syncs
_BUFFERS_MAX = 1024  # the kernel's limit for one pwritev
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OsLogFile:
    """An open, preallocated file for append (LogFile)."""

    def __init__(self, path: str, descriptor: int, offset: int, thread: GroupWorker[bytes]) -> None:
        """`thread` runs already, and is this file's."""
        self.path = path
        self._descriptor = descriptor
        self._offset = offset
        self._failure: str | None = None
        self._sync = thread
        thread.handle = self._write_and_sync

    def append(self, data: bytes) -> Awaitable[None]:
        return self._sync.put(data)

    async def close(self) -> None:
        """After everything queued has ended. Closing twice is fine."""
        await self._sync.close()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # what was synced is safe, and what was not was reported
                os.close(descriptor)

    def _write_and_sync(self, group: list[bytes]) -> None:
        """On the file's thread: all of `group` at the end of what is there, durably."""
        if self._failure is not None:
            raise SyncFailed(f"{self.path} is sealed since an earlier failure: {self._failure}")
        try:
            for first in range(0, len(group), _BUFFERS_MAX):
                self._offset += write_synced(self._descriptor, group[first : first + _BUFFERS_MAX], self._offset)
        except OSError as error:
            failure = _sync_failed("append to", self.path, error)
            self._failure = failure.message
            raise failure from error


class OsFiles:
    """Files below `root`, which exists (Files)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()  # folders whose names this process has synced
        self._reads = Worker("files read")
        self._writes = Worker("files write")  # apart: nobody who reads waits for the zeroing of the next segment

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> OsLogFile:
        thread: GroupWorker[bytes] = GroupWorker(f"sync {path}")
        with contextlib.ExitStack() as undo:
            undo.callback(thread.end)  # of a file that cannot be made
            try:
                thread.start()
            except OSError as error:
                raise _sync_failed("create", path, error) from error
            descriptor = await self._change("create", path, partial(self._create_log, path, header, size_bytes), late=os.close)
            undo.pop_all()
        return OsLogFile(path, descriptor, len(header), thread)

    async def free_bytes(self) -> int:
        """Returns the bytes that the file system would give this process; a quota is not seen."""
        return await self._look(".", lambda: shutil.disk_usage(self._root).free)

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return await self._look(path, lambda: _read(self._root / path, offset, length))

    async def list(self, folder: str) -> list[str]:
        def names() -> list[str]:
            try:
                return sorted(os.listdir(self._root / folder))
            except FileNotFoundError:
                return []

        return await self._look(folder, names)

    async def size(self, path: str) -> int:
        return await self._look(path, lambda: (self._root / path).stat().st_size)

    async def write_new(self, path: str, data: bytes) -> None:
        def write() -> None:
            self._make_folders((self._root / path).parent)
            write_whole(self._root / path, data)

        await self._change("write", path, write)

    async def write_parts(self, path: str, parts: AsyncIterable[bytes]) -> None:
        def begin() -> _WholeFile:
            self._make_folders((self._root / path).parent)
            return _WholeFile(self._root / path)

        file = await self._change("write", path, begin)
        try:
            async for part in parts:
                await self._change("write", path, partial(file.write, part))
            await self._change("write", path, file.finish)
        except BaseException:
            await self._change("write", path, file.give_up)
            raise

    async def truncate_tail(self, path: str, offset: int) -> None:
        await self._change("cut", path, lambda: _zero_from(self._root / path, offset))

    async def make_durable(self, path: str) -> None:
        def sync() -> None:
            _sync_file(self._root / path)
            sync_folder((self._root / path).parent)

        await self._change("sync", path, sync)

    async def delete(self, path: str) -> None:
        def remove() -> None:
            target = self._root / path
            target.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a folder that was never made holds nothing
                sync_folder(target.parent)

        await self._change("delete", path, remove)

    async def rename(self, old: str, new: str) -> None:
        def move() -> None:
            source, target = self._root / old, self._root / new
            self._make_folders(target.parent)
            os.replace(source, target)
            sync_folder(target.parent)
            sync_folder(source.parent)

        await self._change("rename", old, move)

    async def close(self) -> None:
        """End the threads; open log files are closed by whoever holds them."""
        await self._reads.close()
        await self._writes.close()

    def _create_log(self, path: str, header: bytes, size_bytes: int) -> int:
        target = self._root / path
        self._make_folders(target.parent)
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            _write_at(descriptor, [header], 0)
            for at in range(len(header), size_bytes, len(_ZEROS)):
                _write_at(descriptor, [_ZEROS[: size_bytes - at]], at)
                os.fdatasync(descriptor)
            os.fsync(descriptor)
            sync_folder(target.parent)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                target.unlink()  # give the space back: the disk may be full because of this very file
            raise
        return descriptor

    def _make_folders(self, folder: Path) -> None:
        """Each of them is synced once: one that is there may have been made by a process that died, or failed, before that."""
        made = self._root
        for name in folder.relative_to(self._root).parts:
            made /= name
            if made in self._durable and made.is_dir():
                continue
            made.mkdir(exist_ok=True)
            sync_folder(made.parent)
            self._durable.add(made)

    async def _look(self, path: str, call: Callable[[], T]) -> T:
        try:
            return await self._reads.submit(call)
        except OSError as error:
            raise LogError(f"cannot read {path}: {reason(error)}", file=path) from error

    async def _change(self, what: str, path: str, call: Callable[[], T], late: Callable[[T], None] | None = None) -> T:
        """`late` takes back what `call` made when nobody waits for it any more."""
        running: asyncio.Future[T] | None = None
        try:
            running = self._writes.submit(call)
            return await (running if late is None else asyncio.shield(running))
        except FileExistsError as error:
            raise LogError(f"cannot {what} {path}: it exists already", file=path) from error
        except OSError as error:
            raise _sync_failed(what, path, error) from error
        except asyncio.CancelledError:
            if late is not None and running is not None:
                running.add_done_callback(partial(take_back, late))
            raise


def write_whole(target: Path, data: bytes) -> None:
    """Blocking: a whole file, atomically and durably, in place of one that exists."""
    make_folders(target.parent)
    file = _WholeFile(target)
    try:
        file.write(data)
        file.finish()
    except OSError:
        file.give_up()
        raise


class _WholeFile:
    """Blocking: a file that is written beside `target`, and takes its place once it is whole and durable."""

    def __init__(self, target: Path) -> None:
        self._target, self._beside = target, target.with_name(target.name + ".new")
        self._descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._end = 0

    def write(self, data: bytes) -> None:
        self._end += _write_at(self._descriptor, [data], self._end)

    def finish(self) -> None:
        os.fsync(self._descriptor)
        self._close()
        os.replace(self._beside, self._target)
        sync_folder(self._target.parent)

    def give_up(self) -> None:
        """Gives the space back: the disk may be full because of this very file."""
        self._close()
        self._beside.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Blocking: make the names in `folder` durable."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def make_folders(folder: Path) -> None:
    """Blocking: `folder` and what is missing above it, durably."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        try:
            sync_folder(folder.parent)
        except OSError:
            with contextlib.suppress(OSError):  # else the next call would find it, and take its name for durable
                folder.rmdir()
            raise


def write_synced(descriptor: int, buffers: list[bytes], offset: int) -> int:
    """Blocking: writes `buffers` (at most 1,024) at `offset`, durable when it returns. Returns the bytes. Raises OSError.

    One system call writes and syncs: after each call a thread waits for the interpreter, and that takes longer than the disk
    (docs/performance.md).
    """
    return _write_at(descriptor, buffers, offset, os.RWF_DSYNC)


def _write_at(descriptor: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
    """All of `buffers` (at most _BUFFERS_MAX) at `offset`; bytes written."""
    total = sum(map(len, buffers))
    written = os.pwritev(descriptor, buffers, offset, flags)
    while written < total:  # a short write: what is left, as one piece
        written += os.pwritev(descriptor, [b"".join(buffers)[written:]], offset + written, flags)
    return total


def _read(target: Path, offset: int, length: int | None) -> bytes:
    with target.open("rb") as file:
        file.seek(offset)
        return file.read() if length is None else file.read(length)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _zero_from(target: Path, offset: int) -> None:
    with _opened(target, os.O_RDWR) as descriptor:
        for at in range(offset, os.fstat(descriptor).st_size, len(_ZEROS)):
            _write_at(descriptor, [_ZEROS[: os.fstat(descriptor).st_size - at]], at)
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_failed(what: str, path: str, error: OSError) -> SyncFailed:
    number = error.errno or 0
    if number in _FULL:
        return SyncFailed(
            f"disk full: cannot {what} {path} ({reason(error)}); make room, or lift the quota or file size limit",
            file=path, errno=number,
        )
    return SyncFailed(f"cannot {what} {path}: {reason(error)}", file=path, errno=number)
