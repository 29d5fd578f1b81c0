"""The Dfs port on HDFS: Hadoop's own client, in a Java machine inside this process.

What always holds: the promises of dfs.py, by HDFS's own leases. Nothing is made, listed or read when the root is missing or is
another folder than at first: an HDFS that was set up anew must not look like an empty one, for "no claims" would mean "not
fenced"; who accepts another one, and when, is as in directory.py. A whole small file is written under a hidden name,
synced, closed, and renamed to a name that must not exist. An append is acknowledged after `hsync` (by setting `hflush`) of
everything that was queued with it. A file on which HDFS could not sync is never written. Every Java call is made on a thread
of its own crew and given up at the deadline; then it is unknown whether it happened, and a writer has failed for good.
A writer is asked before it is cut off: lease recovery begins with a hidden mark beside the file, a writer that lives sees it
and closes the file itself. For a DataNode that is interrupted in the middle of a sync leaves a replica that no recovery can
close any more. That fencing holds rests on HDFS's lease alone, not on the mark.
Source: protocol.md section 5, reference hdfs-clients.md, docs/decisions/2026-11-21-hdfs-leases.md.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

from remote_log.dfs.hdfs.client import HdfsSettings, connect
from remote_log.dfs.hdfs.errors import mapped
from remote_log.dfs.hdfs.jvm import Java
from remote_log.dfs.hdfs.login import KeytabLogin
from remote_log.dfs.hdfs.writer import HdfsDfsWriter, HdfsFile, close_quietly, mark_of
from remote_log.dfs.owner import MARK, Owner
from remote_log.dfs.port import DfsEntry, path_parts, replaced
from remote_log.dfs.queued_writer import writer_thread_for
from storage.disk.workers import HangTolerantPool, Worker
from twinlog.errors import DfsError, DfsNotFound, reason

T = TypeVar("T")
CALLS_MAX = 32  # at once; one that hangs counts until Java gives it up
READ_BYTES = 1 << 20
COLD_DEADLINE_S = 20.0  # at least, until Java has loaded Hadoop's classes: 1 s of CPU, and many where others want it too
YIELD_S = 0.5  # how long a writer has to close its file itself
YIELD_POLL_S = 0.05
GIVE_BACK_AGAIN_S = 1.0  # what a call made that nobody waits for any more, where no thread could be started for it


class HdfsDfs:
    """`settings` say where the root is, which must exist. It connects with the first call, and again after a failed one.
    `owner`: the site whose own DFS it should be. `marks`: the caller is its gateway."""

    def __init__(self, settings: HdfsSettings, java: Java, *, owner: Owner | None = None, marks: bool = False) -> None:
        self._settings, self._java = settings, java
        self._owner, self._marks = owner, marks
        self._is_judged = False  # whose the folder is
        self._crew = HangTolerantPool(f"hdfs {settings.section}", CALLS_MAX, java.leave)
        self._looker = Worker(f"hdfs {settings.section} marks", java.leave)
        self._login = KeytabLogin(java, settings) if settings.kerberos_keytab is not None else None
        self._connecting = threading.Lock()
        self._connected: Any = None
        self._root_id: int | None = None
        self._recovering: dict[str, float] = {}  # path -> when HDFS was last asked to recover its lease, monotonic

    async def create_file(self, path: str, content: bytes) -> None:
        abandoned = threading.Event()

        def work(fs: Any) -> None:
            target = self._at(path)
            self._check_root(fs)
            fs.mkdirs(target.getParent())
            hidden = self._hidden(target)
            try:
                out = self._create(fs, hidden)
                try:
                    out.write(content)
                    out.hsync()
                finally:
                    out.close()
                if not abandoned.is_set():
                    fs.rename(hidden, target, self._java.Rename.NONE)
            except BaseException:
                with suppress(self._java.Throwable):
                    fs.delete(hidden, False)
                raise

        try:
            await self._call("create", path, work)
        except BaseException:
            abandoned.set()
            raise

    async def create(self, path: str) -> HdfsDfsWriter:
        def work(fs: Any) -> Any:
            target = self._at(path)
            self._check_root(fs)
            out = self._create(fs, target)
            if not out.hasCapability("hsync"):
                with suppress(self._java.Throwable):
                    out.close()
                    fs.delete(target, False)
                raise DfsError(
                    f"{path} below {self._settings.where} lies in a folder with erasure coding, where nothing can be synced:"
                    " set the policy of replication on it (`hdfs ec -setPolicy -replicate`)", path=path,
                )
            return out

        with writer_thread_for(path, self._java.leave) as thread:
            out = await self._call("create", path, work, late=close_quietly)
        file = HdfsFile(self._connected, f"{self._settings.root}{path}", out)
        writer = HdfsDfsWriter(path, file, self._settings, self._java, self._looker, thread)
        writer.look_later()
        return writer

    async def list(self, folder: str) -> list[DfsEntry]:
        def work(fs: Any) -> list[DfsEntry]:
            entries = []
            for status in fs.listStatus(self._at(folder)):
                name = str(status.getPath().getName())
                if not name.startswith("."):
                    is_folder = bool(status.isDirectory())
                    entries.append(DfsEntry(name, 0 if is_folder else int(status.getLen()), is_folder))
            return sorted(entries, key=lambda entry: entry.name)

        try:
            return await self._call("list", folder, work)
        except DfsNotFound:
            return []

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def work(fs: Any) -> bytes:
            source = fs.open(self._at(path))
            try:
                visible = int(source.getVisibleLength())
                end = visible if length is None else min(visible, offset + length)
                pieces, position = [], offset
                piece = self._java.bytes(max(0, min(READ_BYTES, end - offset)))
                while position < end:
                    count = min(len(piece), end - position)
                    source.readFully(position, piece, 0, count)
                    pieces.append(bytes(memoryview(piece)[:count]))
                    position += count
                return b"".join(pieces)
            finally:
                source.close()

        return await self._call("read", path, work)

    async def delete(self, path: str) -> None:
        await self._call("delete", path, lambda fs: fs.delete(self._at(path), True))
        self._recovering.pop(path, None)

    async def recover_lease(self, path: str) -> None:
        """Ask the writer to close; then take its lease. What was begun before continues, as `is_closed` has it."""
        if path not in self._recovering:
            if await self._call("recover the lease of", path, lambda fs: self._mark(fs, path)):
                return
            until = time.monotonic() + YIELD_S
            self._recovering[path] = until - self._settings.recover_again_s
            while time.monotonic() < until:
                await asyncio.sleep(YIELD_POLL_S)
                if await self.is_closed(path):
                    return
        await self.is_closed(path)

    async def is_closed(self, path: str) -> bool:
        """A recovery that was begun is asked for again after its time, for its DataNode may have died with it; and after a
        call that failed, for a NameNode that was away has forgotten it."""
        asked = self._recovering.get(path)
        due = asked is not None and time.monotonic() >= asked + self._settings.recover_again_s
        if due:
            self._recovering[path] = time.monotonic()

        def work(fs: Any) -> bool:
            closed = bool(fs.isFileClosed(self._at(path)))
            if due and not closed:
                if self._has_replica(fs, path):
                    closed = bool(fs.recoverLease(self._at(path)))
                else:
                    self._recovering[path] = -inf
            if closed and asked is not None:
                fs.delete(self._mark_of(path, self._file_id(fs, path)), True)
            return closed

        try:
            closed = await self._call("ask whether the lease is recovered of", path, work)
        except DfsError as error:
            if isinstance(error, DfsNotFound):
                self._recovering.pop(path, None)
            elif asked is not None:
                self._recovering[path] = -inf
            raise
        if closed:
            self._recovering.pop(path, None)
        return closed

    async def probe(self) -> None:
        """Write, sync and delete a byte: the DataNodes too must take part. The first one in a process also does whatever the
        other calls do, so that none of them waits for Java to load classes."""
        def work(fs: Any) -> None:
            self._check_root(fs)
            trial = self._hidden(self._java.Path(f"{self._settings.root}/probe"))
            out = self._create(fs, trial)
            try:
                out.write(b"\0")
                out.hsync()
                if not self._java.is_warm:
                    out.close()
                    self._use(fs, trial)
            finally:
                close_quietly(out)
                fs.delete(trial, False)
            self._java.is_warm = True

        await self._call("write to", "/", work)

    def _use(self, fs: Any, path: Any) -> None:
        """Each other call of the port once, on a closed file of one byte."""
        moved = self._java.Path(path.getParent(), f"{path.getName()}.moved")
        source = fs.open(path)
        try:
            source.readFully(int(source.getVisibleLength()) - 1, self._java.bytes(1), 0, 1)
        finally:
            source.close()
        fs.listStatus(path.getParent())
        fs.isFileClosed(path)
        fs.recoverLease(path)
        fs.exists(moved)
        with suppress(self._java.Throwable):
            fs.open(moved)
        fs.rename(path, moved, self._java.Rename.NONE)
        fs.rename(moved, path, self._java.Rename.NONE)

    async def close(self) -> None:
        """End the connection. Writers are to be closed before."""
        if self._connected is not None:
            with suppress(DfsError):
                await self._call("close", "/", lambda fs: fs.close())
        if self._login is not None:
            await self._login.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.deadline_s):
                await asyncio.gather(self._looker.close(), self._crew.close())  # one that hangs keeps no other one

    # ---- on a thread of the crew
    def _fs(self) -> Any:
        with self._connecting:
            if self._connected is None:
                self._connected = self._login.connect() if self._login else connect(self._java, self._settings)
            return self._connected

    def _at(self, path: str) -> Any:
        return self._java.Path("/".join([self._settings.root, *path_parts(path)]))

    def _hidden(self, target: Any) -> Any:
        return self._java.Path(target.getParent(), f".tmp.{secrets.token_hex(8)}.{target.getName()}")

    def _create(self, fs: Any, target: Any) -> Any:
        """Exclusively. Blocks that are full are synced too when they are left behind: `hsync` is of the current one only."""
        flags = self._java.EnumSet.of(self._java.CreateFlag.CREATE, self._java.CreateFlag.SYNC_BLOCK)
        permission = self._java.FsPermission.getFileDefault().applyUMask(self._java.FsPermission.getUMask(fs.getConf()))
        return fs.create(
            target, permission, flags, 4096, fs.getDefaultReplication(target), fs.getDefaultBlockSize(target), None
        )

    def _mark(self, fs: Any, path: str) -> bool:
        """True: closed already. Else its writer is asked to close it."""
        if fs.isFileClosed(self._at(path)):
            return True
        self._check_root(fs)
        fs.mkdirs(self._mark_of(path, self._file_id(fs, path)))  # a folder: one call, whoever else makes it too
        return False

    def _has_replica(self, fs: Any, path: str) -> bool:
        """True once a DataNode has reported the last block to the NameNode. Recovery before that does nothing, and counts."""
        last = fs.getClient().getLocatedBlocks(f"{self._settings.root}{path}", 0).getLastLocatedBlock()
        return last is None or len(last.getLocations()) > 0

    def _file_id(self, fs: Any, path: str) -> int:
        return int(fs.getFileStatus(self._at(path)).getFileId())

    def _mark_of(self, path: str, file_id: int) -> Any:
        return mark_of(self._java, f"{self._settings.root}{path}", file_id)

    def _check_root(self, fs: Any) -> None:
        settings = self._settings
        seen = fs.getClient().getFileInfo(settings.root or "/")
        if seen is None or not seen.isDirectory():
            raise DfsError(
                f"the DFS folder {settings.where} is not there: create it with `hdfs dfs -mkdir -p`, owned by this process's"
                f" user, or correct {settings.url_name}", url=settings.url, setting=settings.section,
            )
        identity = int(seen.getFileId())
        mark = self._java.Path(f"{settings.root}/{MARK}")
        if self._root_id is None or (identity != self._root_id and not self._marks and bool(fs.exists(mark))):
            self._root_id, self._is_judged = identity, False
        if identity != self._root_id:
            raise DfsError(
                f"the DFS folder {settings.where} is not the one that was there before: bring the right"
                f" one back, or, if it was replaced on purpose, {replaced(marks=self._marks)}",
                url=settings.url, setting=settings.section,
            )
        if not self._is_judged:
            self._check_owner(fs, mark)
            self._is_judged = not self._marks or self._mark_root(fs, mark)

    def _check_owner(self, fs: Any, mark: Any) -> None:
        if self._owner is not None:
            marks = [str(status.getPath().getName()) for status in fs.listStatus(mark)] if fs.exists(mark) else []
            self._owner.check(marks, self._settings.where, self._settings.url_name)

    def _mark_root(self, fs: Any, mark: Any) -> bool:
        """False in safe mode, or above a quota: whoever needs to write there says so, and the next call tries again."""
        try:
            fs.mkdirs(mark if self._owner is None else self._java.Path(mark, self._owner.mark))
        except self._java.Throwable:
            return False
        self._check_owner(fs, mark)  # both gateways may have begun at once
        return True

    # ---- deadlines
    async def _call(self, doing: str, path: str, work: Callable[[Any], T], late: Callable[[T], None] | None = None) -> T:
        """`late` takes back what `work` made when nobody waits for it any more."""
        deadline_s = self._settings.deadline_s if self._java.is_warm else max(COLD_DEADLINE_S, self._settings.deadline_s)

        def guarded() -> T:
            try:
                fs = self._fs()
                try:
                    return work(fs)
                except self._java.Throwable as error:
                    found = mapped(error, doing, path, self._settings)
                    if isinstance(found, DfsNotFound):
                        self._check_root(fs)
                    raise found from error
            except self._java.Throwable as error:
                raise mapped(error, doing, path, self._settings) from error

        if self._login is not None:
            self._login.keep()
        running: asyncio.Future[T] | None = None
        try:
            async with asyncio.timeout(deadline_s):
                running = await self._begun(guarded, doing, path)
                return await asyncio.shield(running)
        except TimeoutError as error:
            raise DfsError(
                f"cannot {doing} {path} below {self._settings.where}: no answer within {deadline_s} s, so it is"
                f" unknown whether it happened; check that HDFS, the network, or {self._settings.url_name}",
                path=path, setting=self._settings.section,
            ) from error
        finally:
            if running is not None and late is not None and not running.done():
                running.add_done_callback(lambda done: self._take_back(done, late))

    async def _begun(self, work: Callable[[], T], doing: str, path: str) -> asyncio.Future[T]:
        try:
            return await self._crew.start(work)
        except OSError as error:  # no thread can be started now
            raise DfsError(f"cannot {doing} {path} below {self._settings.where}: {reason(error)}", path=path) from error

    def _take_back(self, done: asyncio.Future[T], late: Callable[[T], None]) -> None:
        def given_back() -> None:
            try:
                late(done.result())
            finally:
                self._java.leave()

        if done.exception() is None:
            try:
                threading.Thread(target=given_back, name="hdfs late", daemon=True).start()
            except RuntimeError:  # no thread can be started now
                asyncio.get_running_loop().call_later(GIVE_BACK_AGAIN_S, self._take_back, done, late)
