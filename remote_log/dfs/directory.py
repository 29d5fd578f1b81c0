"""The Dfs port on a plain directory that processes of one machine share: the embedded default, and what tests run on.

What always holds: the promises of dfs.py, with directory_lease.py in the place of leases. Nothing is made, listed or
read when the root itself is missing or is another directory than at first (an unmounted disk must not look like an
empty DFS, for "no claims" would mean "not fenced"). The gateway whose own DFS it is marks the directory that it finds when
it starts; the other site accepts another directory that has this mark, and with no other one; owner.py says whose it is.
An open file is zeroed up to 64 KiB ahead of its data, so that most syncs change no metadata (measured: the zeros cost
least when they go out with the append that needs them; larger steps only lengthen the tail). So the length of an open
file, and of one that was closed by recovery, may include as many zeros behind the data, which readers of segments cut
like any torn tail; a file closed by its writer has its exact length. The directory must be on a file system whose processes all
see one state at once: a local one, or a cluster file system; not NFS, whose clients may remember that a mark is absent.
Threads live here and in storage/disk/workers.py only. Source: protocol.md section 5,
docs/decisions/2026-11-21-directory-dfs-leases.md.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from remote_log.dfs import directory_lease as lease
from remote_log.dfs.owner import MARK, Owner
from remote_log.dfs.port import DfsEntry, path_parts, replaced
from remote_log.dfs.queued_writer import QueuedWriter, WriterThread, writer_thread_for
from storage.disk.os_files import write_synced
from storage.disk.workers import NO_THREAD, take_back
from twinlog.errors import DfsError, DfsExists, DfsNotFound, reason

T = TypeVar("T")
AHEAD_BYTES = 64 << 10
_ZEROS = bytes(AHEAD_BYTES)
_REMOVE_ATTEMPTS = 5
_THREADS = 4
_NOT_OURS = "; let the user of this process read and write there"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space there"), errno.EROFS: "; mount it for writing",
    errno.EACCES: _NOT_OURS, errno.EPERM: _NOT_OURS,
}


class DirectoryDfs:
    """`root` is this DFS's directory, which must exist; `setting` names it in messages; every call ends by `deadline_s`.
    `owner`: the site whose own DFS it should be. `marks`: the caller is its gateway. `apart_from`: a DFS that must lie in
    another directory; it may hang, so nobody looks at it here, and what it has seen of itself counts."""

    def __init__(
        self, root: Path, setting: str, deadline_s: float = 5.0, *, owner: Owner | None = None, marks: bool = False,
        apart_from: DirectoryDfs | None = None,
    ) -> None:
        self._root, self._apart_from = root, apart_from
        self._setting = setting
        self._deadline_s = deadline_s
        self._owner, self._marks = owner, marks
        self._is_judged = False  # whose the directory is
        self._identity: tuple[int, int] | None = None
        self._durable: set[tuple[int, int]] = set()  # folders whose names this process has synced: device and inode
        self._threads = ThreadPoolExecutor(_THREADS, "dfs")  # own ones: a disk that hangs must hold up nobody else

    async def create_file(self, path: str, content: bytes) -> None:
        def work() -> None:
            target = self._make_parents(path)
            lease.publish(target, content)

        await self._call("create", path, work)

    async def create(self, path: str) -> DirectoryDfsWriter:
        def work() -> tuple[Path, int, os.stat_result]:
            target = self._make_parents(path)
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                lease.write_all(fd, _ZEROS, 0)
                os.fsync(fd)
                lease.sync_folder(target.parent)
                return target, fd, os.fstat(fd)
            except BaseException:
                os.close(fd)
                raise

        with writer_thread_for(path) as thread:
            made = await self._call("create", path, work, late=lambda made: os.close(made[1]))
        return DirectoryDfsWriter(path, *made, self._deadline_s, thread)

    async def list(self, folder: str) -> list[DfsEntry]:
        def work() -> list[DfsEntry]:
            entries = []
            try:
                with os.scandir(self._at(folder)) as scan:
                    for entry in scan:
                        if entry.name.startswith("."):
                            continue
                        is_folder = entry.is_dir()
                        with suppress(FileNotFoundError):  # deleted since the scan
                            entries.append(DfsEntry(entry.name, 0 if is_folder else entry.stat().st_size, is_folder))
            except FileNotFoundError:
                return []
            return sorted(entries, key=lambda entry: entry.name)

        return await self._call("list", folder, work)

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def work() -> bytes:
            with open(self._at(path), "rb") as file:
                file.seek(offset)
                return file.read(-1 if length is None else length)

        return await self._call("read", path, work)

    async def delete(self, path: str) -> None:
        def work() -> None:
            target = self._at(path)
            if not target.is_dir():
                lease.remove(target)
                return
            for attempt in range(_REMOVE_ATTEMPTS):
                try:
                    lease.remove_folder(target)
                    break
                except FileNotFoundError:
                    if not target.exists():  # someone else deletes it too
                        break
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or attempt == _REMOVE_ATTEMPTS - 1:
                        raise
            lease.sync_folder(target.parent)

        await self._call("delete", path, work)

    async def recover_lease(self, path: str) -> None:
        await self._call("recover the lease of", path, lambda: lease.recover(self._at(path)))

    async def is_closed(self, path: str) -> bool:
        return await self._call("ask whether the lease is recovered of", path, lambda: lease.is_closed(self._at(path)))

    async def probe(self) -> None:
        def work() -> None:
            trial = lease.temp_name(self._root / "probe")
            try:
                os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            finally:
                trial.unlink(missing_ok=True)

        await self._call("write to", "/", work)

    def _at(self, path: str) -> Path:
        return self._root.joinpath(*path_parts(path))

    def _make_parents(self, path: str) -> Path:
        """Make each missing folder between the root, which is never made, and `path`, and sync each one once: one that is there
        may have been made by a call that failed, or has not ended."""
        target = self._at(path)
        folders = target.relative_to(self._root).parents
        for folder in [self._root / each for each in folders][-2::-1]:
            with suppress(FileExistsError):
                os.mkdir(folder)
            seen = os.stat(folder)
            if (seen.st_dev, seen.st_ino) not in self._durable:
                lease.sync_folder(folder.parent)
                self._durable.add((seen.st_dev, seen.st_ino))
        return target

    async def _call(self, doing: str, path: str, work: Callable[[], T], late: Callable[[T], None] | None = None) -> T:
        """`late` takes back what `work` made when nobody waits for it any more."""
        refused = False

        def guarded() -> T:
            if refused:
                raise DfsError(f"cannot {doing} {path}: it was given up before it began", path=path)
            self._check_root()
            return work()

        try:
            running = self._threads.submit(guarded)
        except RuntimeError as error:  # the interpreter starts no thread, and has queued the call all the same
            refused = True
            raise DfsError(f"cannot {doing} {path} below {self._root}: {NO_THREAD}", path=path) from error
        is_taken = False
        try:
            async with asyncio.timeout(self._deadline_s):
                made = await asyncio.wrap_future(running)
                is_taken = True
                return made
        except TimeoutError as error:
            raise DfsError(
                f"cannot {doing} {path} below {self._root}: no answer within {self._deadline_s} s; check that disk", path=path
            ) from error
        except OSError as error:
            raise _mapped(error, doing, f"{path} below {self._root}") from error
        finally:
            if late is not None and not is_taken:
                running.add_done_callback(partial(take_back, late))

    def _check_root(self) -> None:
        try:
            seen = os.stat(self._root)
        except OSError as error:
            raise DfsError(
                f"the DFS directory {self._root} ({self._setting}) cannot be reached: {reason(error)}; create or mount it,"
                f" or correct {self._setting}", root=str(self._root), setting=self._setting,
            ) from error
        identity = (seen.st_dev, seen.st_ino)
        if self._identity is None or (identity != self._identity and not self._marks and (self._root / MARK).is_dir()):
            self._identity, self._is_judged = identity, False
        if identity != self._identity:
            raise DfsError(
                f"the DFS directory {self._root} ({self._setting}) is not the one that was there before: mount the right"
                f" one, or, if it was replaced on purpose, {replaced(marks=self._marks)}",
                root=str(self._root), setting=self._setting,
            )
        if self._apart_from is not None and self._apart_from._identity == identity:
            raise DfsError(
                f"the DFS directory {self._root} ({self._setting}) is that of {self._apart_from._setting}, by a link or a"
                f" mount: the remote log would not outlive the site; correct {self._setting}",
                root=str(self._root), setting=self._setting,
            )
        if not self._is_judged:
            self._check_owner()
            self._is_judged = not self._marks or self._mark()

    def _check_owner(self) -> None:
        if self._owner is not None:
            try:
                marks = os.listdir(self._root / MARK)
            except (FileNotFoundError, NotADirectoryError):
                marks = []
            self._owner.check(marks, str(self._root), self._setting)

    def _mark(self) -> bool:
        """False where the directory takes no folder: whoever needs to write there says so, and the next call tries again."""
        names = [MARK] if self._owner is None else [MARK, f"{MARK}/{self._owner.mark}"]
        try:
            for name in names:
                with suppress(FileExistsError):
                    os.mkdir(self._root / name)
                    lease.sync_folder((self._root / name).parent)
        except OSError:
            return False
        self._check_owner()  # both gateways may have begun at once
        return True


class DirectoryDfsWriter(QueuedWriter):
    """One open file: for all that is queued one write that syncs, and one look at the lease marks."""

    def __init__(
        self, path: str, target: Path, fd: int, own: os.stat_result, deadline_s: float, thread: WriterThread
    ) -> None:
        """`own`: of the open file."""
        super().__init__(path, f"the disk of {path}", deadline_s, thread)
        self._target, self._fd, self._own = target, fd, own
        self._written = 0
        self._allocated = AHEAD_BYTES

    def _append(self, group: bytes) -> None:
        """At the end of the zeros, with new ones behind it."""
        end = self._written + len(group)
        if end > self._allocated:
            self._allocated = end + AHEAD_BYTES
            group += _ZEROS
        write_synced(self._fd, [group], self._written)
        lease.check_lease(self._target, self._own)
        self._written = end

    def _finish(self) -> None:
        """Cut the zeros, sync, close for good."""
        os.ftruncate(self._fd, self._written)
        os.fsync(self._fd)
        lease.close_own(self._target, self._own)

    def _release(self) -> None:
        os.close(self._fd)

    def _mapped(self, error: OSError) -> DfsError:
        return _mapped(error, "append to", str(self._target))


def _mapped(error: OSError, doing: str, what: str) -> DfsError:
    kind = {errno.EEXIST: DfsExists, errno.ENOENT: DfsNotFound}.get(error.errno or 0, DfsError)
    remedy = _REMEDIES.get(error.errno or 0, "")
    return kind(f"cannot {doing} {what}: {reason(error)}{remedy}", path=what, errno=error.errno)
