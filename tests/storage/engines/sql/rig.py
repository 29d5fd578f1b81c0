"""SQL engines in a test: databases of a PostgreSQL that the test process starts, or SQLite files; and what happens to them."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from chaos.servers.janitor import own_prefix
from chaos.servers.postgres import NoPostgres, PostgresServer
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from tests.storage.engines.rocks.rig import crash_image
from twinlog.errors import EngineFailed

_numbers = count(1)


def _made(settings: Sequence[str]) -> tuple[PostgresServer, Path]:
    """A started server, and the folder to remove at its end. Raises NoPostgres."""
    folder = Path(tempfile.mkdtemp(prefix=own_prefix("postgres")))
    folder.chmod(0o755)  # PostgreSQL does not run as root, and its user must get there
    server = PostgresServer(folder / "server", settings=settings)
    try:
        server.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return server, folder


@cache
def _server() -> PostgresServer | str:
    """The one of this test process, or why there is none. Syncs are off: no test pulls the plug of this machine."""
    try:
        server, folder = _made(("fsync=off", "max_connections=60", "shared_buffers=32MB"))
    except NoPostgres as error:
        return str(error)

    def end() -> None:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


@contextlib.contextmanager
def new_server(settings: Sequence[str]) -> Iterator[PostgresServer]:
    """A server of one test, which may kill it."""
    postgres()  # or why there is none
    server, folder = _made(settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def postgres() -> PostgresServer:
    """The running server. Without PostgreSQL the test fails."""
    server = _server()
    if isinstance(server, PostgresServer):
        return server
    pytest.fail(f"this test needs more of the machine: {server}")


@contextlib.contextmanager
def a_database() -> Iterator[str]:
    """The name of a new database of the running server, which is dropped at the end."""
    server, name = postgres(), f"t{next(_numbers)}"
    server.create_database(name)
    yield name
    server.drop_database(name)


def settings_of(database: str) -> SqlSettings:
    return SqlSettings(postgres().url(database), "test", "a", lock_wait_s=2.0)


class PostgresRig:
    """A database of its own; crashing is the gateway's death, which leaves the server as it is."""

    def __init__(self, database: str, engine: SqlEngine) -> None:
        self.engine, self._database = engine, database

    @classmethod
    async def make(cls, database: str) -> PostgresRig:
        return cls(database, await SqlEngine.open(settings_of(database)))

    def _throw_out(self) -> None:
        with postgres().connect() as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self._database])

    async def crash(self) -> None:
        self._throw_out()
        with contextlib.suppress(EngineFailed):
            await self.engine.close()
        self.engine = await SqlEngine.open(settings_of(self._database))

    async def restart(self) -> None:
        await self.engine.close()
        self.engine = await SqlEngine.open(settings_of(self._database))

    def break_down(self) -> None:
        """The database takes no connections, and cuts those it has."""
        self._allow(False)
        self._throw_out()

    def repair(self) -> None:
        self._allow(True)

    def _allow(self, yes: bool) -> None:
        with postgres().connect() as admin:
            admin.execute(f"ALTER DATABASE {self._database} ALLOW_CONNECTIONS {str(yes).lower()}".encode())


class SqliteRig:
    """Each crash goes on in a copy of the folder; breaking it is a lock that somebody else holds."""

    def __init__(self, root: Path) -> None:
        self._root, self._life = root, 0
        self._lock: sqlite3.Connection | None = None
        self.engine: SqlEngine

    @classmethod
    async def make(cls, root: Path) -> SqliteRig:
        rig = cls(root)
        (root / "0").mkdir(parents=True)
        rig.engine = await SqlEngine.open(rig.settings)
        return rig

    @property
    def _file(self) -> Path:
        return self._root / str(self._life) / "rows.db"

    @property
    def settings(self) -> SqlSettings:
        return SqlSettings(f"sqlite:///{self._file}", "test", "a", lock_wait_s=0.05)

    async def crash(self) -> None:
        crash_image(self._file.parent, self._root / str(self._life + 1))
        await self.engine.close()
        self._life += 1
        self.engine = await SqlEngine.open(self.settings)

    async def restart(self) -> None:
        await self.engine.close()
        self.engine = await SqlEngine.open(self.settings)

    def break_down(self) -> None:
        self._lock = sqlite3.connect(self._file, isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")

    def repair(self) -> None:
        assert self._lock is not None
        self._lock.close()
