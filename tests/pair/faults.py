"""Faults on demand between a site and its disk, the other site's DFS and the coordinator. Real parts do the rest.

`fail_local` / `fail_remote`: so many of the next appends answer failure; `land` says whether their bytes are written all the
same (a failure whose bytes are there) or not. `dead`: the process is gone, so nothing is closed in good order any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from remote_log.dfs.port import DfsEntry
from switchover.register.single import OneRegister
from twinlog.errors import DfsError, SyncFailed, Unavailable


@dataclass
class Faults:
    fail_local: int = 0
    local_lands: bool = False
    hold_local: asyncio.Event = field(default_factory=asyncio.Event)  # appends that fail wait for it
    fail_remote: int = 0
    remote_lands: bool = False
    remote_down: bool = False  # every call of the DFS fails
    hold_remote: asyncio.Event = field(default_factory=asyncio.Event)  # appends wait for it
    hold_deletes: asyncio.Event = field(default_factory=asyncio.Event)  # so do deletions at the DFS
    waiting_deletes: int = 0
    recovered: list[str] = field(default_factory=list)  # paths at the DFS
    coordinator_down: bool = False
    dead: bool = False
    left_open: list[Any] = field(default_factory=list)  # what a dead process did not close

    def __post_init__(self) -> None:
        self.hold_local.set()
        self.hold_remote.set()
        self.hold_deletes.set()


class FaultyLogFile:
    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults, self._failed = file, faults, False

    @property
    def path(self) -> str:
        path: str = self._file.path
        return path

    def append(self, data: bytes) -> Awaitable[None]:
        if self._failed or self._faults.dead or self._faults.fail_local > 0:
            self._faults.fail_local -= 0 if self._failed else 1
            landing = self._file.append(data) if self._faults.local_lands and not self._failed else None
            self._failed = True
            return asyncio.ensure_future(self._fail(landing))
        return asyncio.ensure_future(self._living(self._file.append(data)))

    async def _living(self, appended: Awaitable[None]) -> None:
        """Ends no append that was on its way when the process died: the image of its disk may lack it."""
        await appended
        if self._faults.dead:
            raise SyncFailed("injected: the process died")

    async def _fail(self, landing: Awaitable[None] | None) -> None:
        if landing is not None:
            await landing
        await self._faults.hold_local.wait()
        raise SyncFailed("injected: the sync failed")

    async def close(self) -> None:
        await self._file.close()


class FaultyFiles:
    """Everything but log files passes through."""

    def __init__(self, files: Any, faults: Faults) -> None:
        self._files, self._faults = files, faults

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> FaultyLogFile:
        return FaultyLogFile(await self._files.create_log(path, header, size_bytes), self._faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class FaultyDfsWriter:
    def __init__(self, writer: Any, faults: Faults) -> None:
        self._writer, self._faults, self._failed = writer, faults, False

    @property
    def path(self) -> str:
        path: str = self._writer.path
        return path

    def append(self, data: bytes) -> Awaitable[None]:
        if self._failed or self._faults.remote_down or self._faults.dead or self._faults.fail_remote > 0:
            if not self._failed and not self._faults.remote_down:
                self._faults.fail_remote -= 1
            landing = self._writer.append(data) if self._faults.remote_lands and not self._failed else None
            self._failed = True
            return asyncio.ensure_future(self._fail(landing))
        return asyncio.ensure_future(self._held(self._writer.append(data)))

    async def _held(self, appended: Awaitable[None]) -> None:
        await appended
        await self._faults.hold_remote.wait()
        if self._faults.dead:
            raise DfsError("injected: the process died")

    async def _fail(self, landing: Awaitable[None] | None) -> None:
        if landing is not None:
            await landing
        raise DfsError("injected: the append failed")

    async def close(self) -> None:
        if self._faults.dead:
            self._faults.left_open.append(self._writer)
            return
        await self._writer.close()


class FaultyDfs:
    def __init__(self, dfs: Any, faults: Faults) -> None:
        self._dfs, self._faults = dfs, faults

    def _check(self) -> None:
        if self._faults.remote_down or self._faults.dead:
            raise DfsError("injected: the DFS does not answer")

    async def create(self, path: str) -> FaultyDfsWriter:
        self._check()
        return FaultyDfsWriter(await self._dfs.create(path), self._faults)

    async def create_file(self, path: str, content: bytes) -> None:
        self._check()
        await self._dfs.create_file(path, content)

    async def list(self, folder: str) -> list[DfsEntry]:
        self._check()
        entries: list[DfsEntry] = await self._dfs.list(folder)
        return entries

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._check()
        data: bytes = await self._dfs.read(path, offset, length)
        return data

    async def delete(self, path: str) -> None:
        self._check()
        self._faults.waiting_deletes += 1
        await self._faults.hold_deletes.wait()
        self._faults.waiting_deletes -= 1
        await self._dfs.delete(path)

    async def recover_lease(self, path: str) -> None:
        self._check()
        self._faults.recovered.append(path)
        await self._dfs.recover_lease(path)

    async def is_closed(self, path: str) -> bool:
        self._check()
        closed: bool = await self._dfs.is_closed(path)
        return closed

    async def probe(self) -> None:
        self._check()
        await self._dfs.probe()


class FaultyCoordinator(OneRegister):
    def __init__(self, coordinator: Any, faults: Faults) -> None:
        self._coordinator, self._faults = coordinator, faults

    async def read(self) -> Any:
        return await self._answer(self._coordinator.read)

    async def compare_and_set(self, expected: Any, new: Any, *, blind: bool = False) -> Any:
        return await self._answer(lambda: self._coordinator.compare_and_set(expected, new, blind=blind))

    async def held(self, value: Any) -> Any:
        return await self._answer(lambda: self._coordinator.held(value))

    async def _answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        if self._faults.coordinator_down or self._faults.dead:
            raise Unavailable("injected: the coordinator does not answer", retry_after_s=1)
        return await ask()

    async def close(self) -> None:
        await self._coordinator.close()
