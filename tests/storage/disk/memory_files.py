"""A Files port in memory for tests of what stands above it: syncs can be held, fail, and be cut short by a crash.

What is appended is `written` at once and durable with the next `sync` of its file, which comes by itself in the next turn
of the event loop unless `hold` is set. `crashed` makes the disk that a power loss would leave: what was durable, and of
the rest whatever the caller's `choose` picks, write by write, as a disk may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, field

from twinlog.errors import LogError, SyncFailed


@dataclass
class Pending:
    offset: int
    data: bytes
    ended: asyncio.Future[None]


@dataclass
class MemoryFile:
    durable: bytearray
    end: int
    pending: list[Pending] = field(default_factory=list)
    failed: bool = False


class MemoryLogFile:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files, self.path = files, path

    def append(self, data: bytes) -> Awaitable[None]:
        return self._files.append(self.path, data)

    async def close(self) -> None:
        file = self._files.files.get(self.path)
        if file is not None and file.pending:
            await asyncio.wait([pending.ended for pending in file.pending])


class MemoryFiles:
    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.hold = False
        self.full = False  # create_log fails
        self.gate = asyncio.Event()  # create_log waits for it
        self.gate.set()
        self.reading = asyncio.Event()  # read waits for it
        self.reading.set()
        self.deleted: list[str] = []

    # ---- what a disk does

    def append(self, path: str, data: bytes) -> asyncio.Future[None]:
        file = self.files[path]
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if file.failed:
            ended.set_exception(SyncFailed(f"{path} is sealed"))
            return ended
        file.pending.append(Pending(file.end, data, ended))
        file.end += len(data)
        if not self.hold:
            asyncio.get_running_loop().call_soon(self.sync, path)
        return ended

    def sync(self, path: str, count: int | None = None) -> None:
        """The oldest `count` pending appends (all) become durable."""
        file = self.files[path]
        done = file.pending[:count]
        del file.pending[:count]
        for pending in done:
            overwrite(file.durable, pending.offset, pending.data)
            if not pending.ended.done():
                pending.ended.set_result(None)

    def fail(self, path: str, choose: Callable[[Pending], bytes] = lambda _: b"") -> None:
        """The sync of everything pending fails; of each append, what `choose` says came to the disk."""
        file = self.files[path]
        file.failed = True
        for pending in file.pending:
            overwrite(file.durable, pending.offset, choose(pending))
            pending.ended.set_exception(SyncFailed(f"{path} failed"))
        file.pending.clear()

    def crashed(self, choose: Callable[[Pending], bytes]) -> MemoryFiles:
        left = MemoryFiles()
        for path, file in self.files.items():
            data = bytearray(file.durable)
            for pending in file.pending:
                overwrite(data, pending.offset, choose(pending))
            left.files[path] = MemoryFile(data, len(data))
        return left

    # ---- the port

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> MemoryLogFile:
        await self.gate.wait()
        if self.full:
            raise SyncFailed(f"disk full: cannot create {path}")
        if path in self.files:
            raise LogError(f"cannot create {path}: it exists already")
        self.files[path] = MemoryFile(bytearray(header + bytes(size_bytes - len(header))), len(header))
        return MemoryLogFile(self, path)

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        await self.reading.wait()
        if path not in self.files:
            raise LogError(f"cannot read {path}")
        data = bytes(self.files[path].durable)
        return data[offset:] if length is None else data[offset : offset + length]

    async def list(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.files if path.rpartition("/")[0] == folder)

    async def size(self, path: str) -> int:
        return len(self.files[path].durable)

    async def write_new(self, path: str, data: bytes) -> None:
        if self.full:
            raise SyncFailed(f"disk full: cannot write {path}")
        self.files[path] = MemoryFile(bytearray(data), len(data))

    async def write_parts(self, path: str, parts: AsyncIterable[bytes]) -> None:
        await self.write_new(path, b"".join([part async for part in parts]))

    async def truncate_tail(self, path: str, offset: int) -> None:
        durable = self.files[path].durable
        durable[offset:] = bytes(len(durable) - offset)

    async def make_durable(self, path: str) -> None:
        if path not in self.files:
            raise LogError(f"cannot sync {path}")

    async def delete(self, path: str) -> None:
        await asyncio.sleep(0)
        self.files.pop(path, None)
        self.deleted.append(path)

    async def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)


def overwrite(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset + len(data):
        target.extend(bytes(offset + len(data) - len(target)))
    target[offset : offset + len(data)] = data
