"""The Dfs port in memory, with faults at chosen calls. Lease recovery behaves as HDFS's does: it takes some polls, and
until the file is closed the old writer's appends still succeed and are kept. A listing gives an open file the length 0, as HDFS
may. It passes the contract suite itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from remote_log.dfs.port import DfsEntry
from twinlog.errors import DfsError, DfsExists, DfsNotFound, LeaseLost


@dataclass
class Fault:
    """The fate of one call: wait for `gate`, let the `landed` share of an append (or, if 1, any effect) happen, then
    raise `error`."""

    error: Exception | None = None
    landed: float = 0.0
    gate: asyncio.Event | None = None


@dataclass
class _File:
    data: bytearray = field(default_factory=bytearray)
    closed: bool = False
    polls_left: int | None = None  # set while lease recovery runs


@dataclass
class MemoryDisk:
    """The disk that all clients of one DFS share."""

    files: dict[str, _File] = field(default_factory=dict)
    recovery_polls: int = 2

    def put(self, path: str, content: bytes) -> None:
        """A closed file that is simply there; one that is there already stays."""
        self.files.setdefault(path, _File(bytearray(content), closed=True))


class MemoryDfs:
    """One client. `faults[(operation, n)]` meets the n-th call (from 1) of that operation; `down` fails every call."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.faults: dict[tuple[str, int], Fault] = {}
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self.down = False

    async def meet(self, operation: str, path: str) -> Fault:
        """Count the call; wait if it is to wait; raise if it is to fail without effect."""
        self.calls[operation] += 1
        self.log.append((operation, path))
        fault = self.faults.get((operation, self.calls[operation]), Fault())
        await asyncio.sleep(0)
        if fault.gate is not None:
            await fault.gate.wait()
        if self.down:
            raise DfsError("the DFS is down")
        if fault.error is not None and fault.landed == 0:
            raise fault.error
        return fault

    def _file(self, path: str) -> _File:
        if path not in self.disk.files:
            raise DfsNotFound(path)
        return self.disk.files[path]

    async def create_file(self, path: str, content: bytes) -> None:
        fault = await self.meet("create_file", path)
        if path in self.disk.files:
            raise DfsExists(path)
        self.disk.files[path] = _File(bytearray(content), closed=True)
        if fault.error:
            raise fault.error

    async def create(self, path: str) -> MemoryWriter:
        fault = await self.meet("create", path)
        if path in self.disk.files:
            raise DfsExists(path)
        self.disk.files[path] = _File()
        if fault.error:
            raise fault.error
        return MemoryWriter(self, path)

    async def list(self, folder: str) -> list[DfsEntry]:
        await self.meet("list", folder)
        entries: dict[str, DfsEntry] = {}
        for path, file in self.disk.files.items():
            if path.startswith(folder + "/"):
                name, _, below = path.removeprefix(folder + "/").partition("/")
                entries[name] = DfsEntry(name, len(file.data) if file.closed and not below else 0, bool(below))
        return [entries[name] for name in sorted(entries)]

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        await self.meet("read", path)
        data = self._file(path).data
        return bytes(data[offset : len(data) if length is None else offset + length])

    async def delete(self, path: str) -> None:
        fault = await self.meet("delete", path)
        for name in [name for name in self.disk.files if name == path or name.startswith(path + "/")]:
            del self.disk.files[name]
        if fault.error:
            raise fault.error

    async def recover_lease(self, path: str) -> None:
        fault = await self.meet("recover_lease", path)
        file = self._file(path)
        if not file.closed:
            file.polls_left = self.disk.recovery_polls
        if fault.error:
            raise fault.error

    async def is_closed(self, path: str) -> bool:
        await self.meet("is_closed", path)
        file = self._file(path)
        if not file.closed and file.polls_left is not None:
            file.polls_left -= 1
            file.closed = file.polls_left < 0
        return file.closed

    async def probe(self) -> None:
        await self.meet("probe", "/")


class MemoryWriter:
    """Appends land one after the other, in call order, each at some later step of the event loop."""

    def __init__(self, dfs: MemoryDfs, path: str) -> None:
        self.path = path
        self._dfs = dfs
        self._file = dfs.disk.files[path]
        self._failure: DfsError | None = None
        self._queue: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def append(self, data: bytes) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((data, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return done

    async def close(self) -> None:
        if self._task is not None:
            await self._task
        fault = await self._dfs.meet("close", self.path)
        if self._failure is None:
            self._check()
            self._file.closed = True
            self._failure = DfsError("closed by its writer")
        if fault.error:
            raise fault.error

    def _check(self) -> None:
        if self._dfs.disk.files.get(self.path) is not self._file or self._file.closed:
            raise LeaseLost(self.path)

    async def _run(self) -> None:
        while self._queue:
            data, done = self._queue.popleft()
            try:
                if self._failure is not None:
                    raise self._failure
                fault = await self._dfs.meet("append", self.path)
                self._check()
                self._file.data += data[: int(len(data) * fault.landed)] if fault.error else data
                if fault.error is not None:
                    raise fault.error
            except DfsError as error:
                self._failure = error
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)
