"""The simulated disk of one machine: it outlives processes, and tears, loses, fails, hangs and fills up on request.

What always holds: what was reported to a process as durable survives everything but a flipped bit; a process that dies leaves
what the operating system had, which is written back some time later; a machine that dies leaves, of each write that was
not synced, nothing, all of it, or its first bytes, whatever became of the others. A log file's appends land in order and
queued ones share a sync, as in storage/disk/os_files.py; a change of names that was under way has happened, or not, or half.
Source: storage/disk/port.py, protocol.md 3 and 4.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import end
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.stored import Stored, cut_short, flipped, share_of
from twinlog.errors import LogError, SyncFailed

Landed = Literal["nothing", "part", "all", "cached"]
SYNC_S = (0.0001, 0.0004)  # at least, and so much more at most
CHANGE_S = (0.0002, 0.002)
READ_S = (0.00005, 0.0002)
WRITE_BACK_S = 30.0  # at most, until the system writes by itself what nobody syncs any more
HAPPENED, HALF = 0.4, 0.7  # of a change that was under way at a crash: below it has happened, below it has in part
CUT_SHORT = 0.2  # of the writes that were under way at a SIGKILL


class SimDisk:
    """Knobs: `slow` (a factor), `full`, `write_back_s`; and the methods."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.stored: dict[str, Stored] = {}
        self.slow = 1.0
        self.full = False
        self.write_back_s = WRITE_BACK_S
        self.appends: Callable[[Process, str], None] = lambda process, path: None  # told of each append as it is asked for
        self.logged: Callable[[Process, str, bytes], None] = lambda process, path, data: None  # and of its bytes
        self._hung = False
        self._failing_syncs: deque[Landed] = deque()
        self._failing_changes = 0
        self._waiting: list[Callable[[], None]] = []
        self._lives: list[SimFiles] = []

    def files(self, process: Process) -> SimFiles:
        """The port for one life of a process. The life before it, if there was one, has ended."""
        self._end_lives()
        files = SimFiles(self, process)
        self._lives.append(files)
        return files

    def open_logs(self) -> list[SimLogFile]:
        """Returns the log files that the living process has open."""
        return [log for life in self._lives for log in life.logs if log.is_open]

    # ---- faults
    def fail_syncs(self, count: int, landed: Landed) -> None:
        """The next syncs of log files fail, with nothing, a part or all of their bytes on the disk; "cached": none is on the
        disk, but whoever reads sees them as long as the machine runs."""
        self._failing_syncs.extend([landed] * count)

    def fail_changes(self, count: int) -> None:
        """The next creations, whole writes, cuts, deletions and renames fail, and have not happened."""
        self._failing_changes += count

    def hang(self) -> None:
        """Nothing that is asked from now on ends before `heal`."""
        self._hung = True

    def heal(self) -> None:
        """No fault is left, and what hung continues."""
        self._hung, self.full, self.slow = False, False, 1.0
        self._failing_syncs.clear()
        self._failing_changes = 0
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def power_loss(self, *, flips: bool = False) -> None:
        """The machine died; kill its processes first. `flips`: what was not synced may have wrong bits, too."""
        self._end_lives()
        random = self.random
        for stored in self.stored.values():
            if stored.unsynced:
                stored.keep(lambda data: flipped(random, share_of(random, data)) if flips else share_of(random, data))

    def wipe(self) -> None:
        """A new disk for a machine that does not run."""
        self._end_lives()
        self.stored.clear()

    def flip_bit(self, *, closed: bool) -> tuple[str, int] | None:
        """Turn a synced bit of a log file that nobody, or somebody, has open; (path, offset), or None without such a file."""
        paths = [path for path, stored in sorted(self.stored.items()) if stored.is_log and stored.is_open != closed]
        if not paths:
            return None
        path = paths[self.random.randrange(len(paths))]
        stored = self.stored[path]
        upto = min((offset for offset, _ in stored.unsynced), default=len(stored.data))
        if upto == 0:
            return None
        offset = self.random.randrange(upto)
        stored.data[offset] ^= 1 << self.random.randrange(8)
        return path, offset

    # ---- for SimFiles and SimLogFile
    def take_time(self, range_s: tuple[float, float], then: Callable[[], None]) -> None:
        if self._hung:
            self._waiting.append(lambda: self.take_time(range_s, then))
            return
        self.loop.outside((range_s[0] + range_s[1] * self.random.random()) * self.slow, then)

    def failure_of_sync(self) -> Landed | None:
        return self._failing_syncs.popleft() if self._failing_syncs else None

    def refuse_change(self, what: str, path: str, *, needs_room: bool) -> None:
        if self._failing_changes:
            self._failing_changes -= 1
            raise SyncFailed(f"cannot {what} {path}: Input/output error", file=path)
        if needs_room and self.full:
            raise SyncFailed(f"disk full: cannot {what} {path} (No space left on device); make room", file=path)

    def _end_lives(self) -> None:
        lives, self._lives = self._lives, []
        for life in lives:
            life.end()


class SimLogFile:
    """LogFile."""

    def __init__(self, disk: SimDisk, process: Process, path: str, stored: Stored) -> None:
        self.path = path
        self._disk, self._process, self._stored = disk, process, stored
        self._end = len(stored.data)
        self._queue: list[tuple[bytes, asyncio.Future[None]]] = []  # in the process: lost with it
        self._group: list[tuple[bytes, asyncio.Future[None]]] = []  # written, and being synced
        self._failure: SyncFailed | None = None
        self._closing: asyncio.Future[None] | None = None
        stored.is_open = True

    def append(self, data: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._disk.loop.create_future()
        self._disk.appends(self._process, self.path)
        self._disk.logged(self._process, self.path, data)
        self._queue.append((data, future))
        if not self._group:
            self._begin()
        return future

    @property
    def is_open(self) -> bool:
        return self._stored.is_open

    async def close(self) -> None:
        if self._group or self._queue:
            if self._closing is None:
                self._closing = self._disk.loop.create_future()
            await asyncio.shield(self._closing)
        self._stored.is_open = False

    def abandon(self) -> None:
        self._stored.is_open = False

    def die(self) -> None:
        """SIGKILL: what was written stays, or its beginning; whoever syncs it, and when, is the operating system's affair."""
        stored, disk = self._stored, self._disk
        stored.is_open = False
        if self._group:
            self._group = []
            if disk.random.random() < CUT_SHORT:
                cut_short(stored, disk.random)
            disk.loop.outside(disk.random.random() * disk.write_back_s, stored.synced)

    def _begin(self) -> None:
        """Does the work of a thread of the process: writes the queue, and syncs it."""
        group, self._queue = self._queue, []
        self._group = group
        stored, disk = self._stored, self._disk
        if self._failure is None and disk.full and self._end + sum(len(data) for data, _ in group) > stored.size:
            self._failure = SyncFailed(f"disk full: cannot append to {self.path} (No space left on device); make room")
        if self._failure is None:
            for data, _ in group:
                stored.write(self._end, data)
                stored.unsynced.append((self._end, len(data)))
                self._end += len(data)
        disk.take_time(SYNC_S, self._synced)

    def _synced(self) -> None:
        """The sync has ended, in no process."""
        group, self._group = self._group, []
        if not group:
            return  # the process died, and the machine perhaps
        if self._failure is None:
            self._settle_sync()
        failure, process = self._failure, self._process
        for _, future in group:
            end(future, process, None, failure)
        if self._queue:
            self._disk.loop.call_soon(self._begin_next, context=process.context)
        elif self._closing is not None:
            end(self._closing, process, None, None)

    def _begin_next(self) -> None:
        """In the process: a paused one writes when it continues, a killed one never."""
        if not self._group and self._queue:
            self._begin()

    def _settle_sync(self) -> None:
        landed = self._disk.failure_of_sync()
        stored, random = self._stored, self._disk.random
        if landed is not None:
            self._failure = SyncFailed(f"cannot append to {self.path}: Input/output error", file=self.path)
        if landed in (None, "all"):
            stored.synced()
        elif landed == "nothing":
            stored.keep(lambda data: b"")
        elif landed == "part":
            stored.keep(lambda data: share_of(random, data))


class SimFiles:
    """Files, for one life of a process."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self._disk, self._process = disk, process
        self._changes: deque[_Change] = deque()  # the first is under way, the others wait for it
        self.logs: list[SimLogFile] = []
        self._over = False

    def end(self) -> None:
        """The process is gone."""
        disk, self._over = self._disk, True
        if self._changes:
            change, draw = self._changes[0], disk.random.random()
            if draw < HAPPENED:
                with suppress(LogError):
                    change.happen()
            elif draw < HALF and change.half is not None:
                change.half()
        for log in self.logs:
            log.die()

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> SimLogFile:
        disk = self._disk

        def happen() -> Stored:
            if path in disk.stored:
                raise LogError(f"cannot create {path}: it exists already", file=path)
            disk.refuse_change("create", path, needs_room=True)
            disk.stored[path] = stored = Stored(bytearray(header), size_bytes, size_bytes, is_log=True)
            return stored

        def half() -> None:
            if path not in disk.stored:
                written = disk.random.randrange(size_bytes + 1)
                begun = bytearray(share_of(disk.random, header)[:written])
                disk.stored[path] = Stored(begun, written, written, is_log=True)

        stored = await self._change(happen, half)
        log = SimLogFile(disk, self._process, path, stored)
        self.logs = [each for each in self.logs if each.is_open]
        self.logs.append(log)
        return log

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        await self._read_time()
        stored = self._look(path)
        upto = stored.size if length is None else min(offset + length, stored.size)
        data = bytes(stored.data[offset:upto])
        return data + bytes(max(0, upto - offset - len(data)))

    async def list(self, folder: str) -> list[str]:
        await self._read_time()
        start = f"{folder}/" if folder else ""
        return sorted({path[len(start) :].partition("/")[0] for path in self._disk.stored if path.startswith(start)})

    async def size(self, path: str) -> int:
        await self._read_time()
        return self._look(path).size

    async def write_new(self, path: str, data: bytes) -> None:
        disk = self._disk

        def happen() -> None:
            disk.refuse_change("write", path, needs_room=True)
            disk.stored.pop(f"{path}.new", None)
            disk.stored[path] = Stored(bytearray(data), len(data), len(data))

        def half() -> None:
            begun = share_of(disk.random, data)
            disk.stored[f"{path}.new"] = Stored(bytearray(begun), len(begun), len(begun))

        await self._change(happen, half)

    async def write_parts(self, path: str, parts: AsyncIterable[bytes]) -> None:
        await self.write_new(path, b"".join([part async for part in parts]))

    async def truncate_tail(self, path: str, offset: int) -> None:
        disk = self._disk

        def happen() -> None:
            stored = self._look(path)
            disk.refuse_change("cut", path, needs_room=False)
            del stored.data[offset:]
            stored.synced()

        def half() -> None:
            stored = self._look(path)
            begun = disk.random.randrange(len(stored.data) - offset + 1) if len(stored.data) > offset else 0
            stored.data[offset : offset + begun] = bytes(begun)

        await self._change(happen, half)

    async def make_durable(self, path: str) -> None:
        def happen() -> None:
            stored = self._look(path)
            self._disk.refuse_change("sync", path, needs_room=False)
            stored.synced()

        await self._change(happen)

    async def delete(self, path: str) -> None:
        def happen() -> None:
            self._disk.refuse_change("delete", path, needs_room=False)
            self._disk.stored.pop(path, None)

        await self._change(happen)

    async def rename(self, old: str, new: str) -> None:
        def happen() -> None:
            stored = self._disk.stored
            if old not in stored:
                raise SyncFailed(f"cannot rename {old}: No such file or directory", file=old)
            self._disk.refuse_change("rename", old, needs_room=False)
            stored[new] = stored.pop(old)

        await self._change(happen)

    # ---- one change after the other
    async def _change(self, happen: Callable[[], Any], half: Callable[[], None] | None = None) -> Any:
        future: asyncio.Future[Any] = self._disk.loop.create_future()
        self._changes.append(_Change(happen, half, future))
        if len(self._changes) == 1:
            self._disk.take_time(CHANGE_S, self._finish)
        return await future

    def _finish(self) -> None:
        """In no process."""
        if self._over:
            return
        change = self._changes.popleft()
        result, failure = None, None
        try:
            result = change.happen()
        except LogError as error:
            failure = error
        end(change.future, self._process, result, failure)
        if self._changes and not self._process.killed:
            self._disk.take_time(CHANGE_S, self._finish)

    async def _read_time(self) -> None:
        future: asyncio.Future[None] = self._disk.loop.create_future()
        self._disk.take_time(READ_S, lambda: end(future, self._process, None, None))
        await future

    def _look(self, path: str) -> Stored:
        stored = self._disk.stored.get(path)
        if stored is None:
            raise LogError(f"cannot read {path}: No such file or directory", file=path)
        return stored


@dataclass(slots=True, frozen=True)
class _Change:
    """`half`: what it may leave when it is cut off in the middle."""

    happen: Callable[[], Any]
    half: Callable[[], None] | None
    future: asyncio.Future[Any]
