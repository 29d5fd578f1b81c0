"""The Files port: what the local log asks of a disk. The real one is `OsFiles`; the simulated twin loses, tears and fails.

What always holds: a `LogFile` is preallocated and zeroed, so that a sync changes no metadata; `append` resolves only when
the bytes are on the disk; after one failed append every later one on that file fails too (an fsync that failed is never
retried on that descriptor). Source: protocol.md sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable
from typing import Protocol


class LogFile(Protocol):
    """An open, preallocated file for append. Several appends may be outstanding; they land in call order."""

    path: str

    def append(self, data: bytes) -> Awaitable[None]:
        """Queue `data` behind what was queued before; the awaitable resolves when it is synced.

        Not a coroutine: the bytes have their place in the order when this returns. Raises (from the awaitable)
        SyncFailed. One sync may cover many appends.
        """

    async def close(self) -> None: ...


class Files(Protocol):
    """Paths are relative to the site's data directory, with `/`."""

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> LogFile:
        """Exclusive create; preallocated and zeroed to `size_bytes`, `header` at its start; file and directory synced."""

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes: ...

    async def list(self, folder: str) -> list[str]:
        """Names in `folder`, sorted; empty when it does not exist."""

    async def size(self, path: str) -> int: ...

    async def write_new(self, path: str, data: bytes) -> None:
        """A small whole file, atomically and durably; replaces one that exists."""

    async def write_parts(self, path: str, parts: AsyncIterable[bytes]) -> None:
        """A whole file of any size, atomically and durably; replaces one that exists. Each part is written before the next one
        is asked for, and not kept. Nothing changes when `parts` raises; its error passes through."""

    async def truncate_tail(self, path: str, offset: int) -> None:
        """Zero everything from `offset` on and sync: a torn tail is cut."""

    async def make_durable(self, path: str) -> None:
        """Syncs what a read of this file shows now, and its name: a process that died may have left them unsynced."""

    async def delete(self, path: str) -> None:
        """Absent is fine: a call before this one may have failed behind the removal. The directory is synced."""

    async def rename(self, old: str, new: str) -> None:
        """Atomically, directories synced."""
