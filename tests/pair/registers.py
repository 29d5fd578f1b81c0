"""The register of a test pair is lost, or comes back from a backup, in one moment for whoever reads it.

What always holds: no call of the register is under way while its files change. The register of a pair without a coordinator
lies on two DFSs, and a site that saw only one of them deleted would copy the value back, as it must.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from switchover.register.door import RegisterDoor
from switchover.register.port import Beat, Coordinator, PairState


class Gate:
    """Calls pass; `shut` waits until none is under way, and holds new ones back."""

    def __init__(self) -> None:
        self._under_way = 0
        self._idle, self._open = asyncio.Event(), asyncio.Event()
        self._open.set()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        while not self._open.is_set():
            await self._open.wait()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._idle.set()

    @asynccontextmanager
    async def shut(self) -> AsyncIterator[None]:
        self._open.clear()
        try:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
            yield
        finally:
            self._open.set()


class GatedRegister(RegisterDoor):
    """A door whose every call passes the gate."""

    def __init__(self, door: Coordinator, gate: Gate) -> None:
        super().__init__(door)
        self._gate = gate

    async def read(self) -> PairState | None:
        async with self._gate.passing():
            return await super().read()

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        async with self._gate.passing():
            return await super().compare_and_set(expected, new, blind=blind)

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        async with self._gate.passing():
            return await super().renew(site, epoch, beat)

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        async with self._gate.passing():
            return await super().force(change)


def lose_folders(root: Path) -> None:
    """Deletes the registers on both DFSs."""
    for folder in _folders(root).values():
        shutil.rmtree(folder, ignore_errors=True)


def lose_database(database: Path) -> None:
    """The coordinator is set up anew: its tables are empty."""
    with closing(sqlite3.connect(database)) as connection, connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (table,) in tables.fetchall():
            connection.execute(f"DELETE FROM {table}")


def back_up_folders(root: Path, *, restore: bool) -> None:
    """Copies the registers of both DFSs away, or back."""
    for name, here in _folders(root).items():
        there = root / f"register-{name}"
        source, target = (there, here) if restore else (here, there)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)


def back_up_database(database: Path, *, restore: bool) -> None:
    """Copies the coordinator's database as its own tools do, away or back."""
    backup = database.with_suffix(".bak")
    with closing(sqlite3.connect(backup if restore else database)) as source, closing(
        sqlite3.connect(database if restore else backup)
    ) as target:
        source.backup(target)


def change_file(database: Path, what: str) -> None:
    """The coordinator's file is `deleted` or `damaged` beside its processes, or it is `back` as it was."""
    away = database.with_suffix(".away")
    files = [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
    match what:
        case "deleted":
            for file in files:
                file.unlink(missing_ok=True)
        case "damaged":
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(database, away)
            with open(database, "r+b") as damaged:
                damaged.write(b"no database" * 1000)
        case "back":
            for file in files:
                file.unlink(missing_ok=True)
            away.rename(database)


def _folders(root: Path) -> dict[str, Path]:
    return {name: root / name / "dfs" / "test" / "0" / "register" for name in ("a", "b")}
