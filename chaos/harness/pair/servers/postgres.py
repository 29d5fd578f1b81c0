"""PostgreSQL of one site, with the site's database; or that of the coordinator, as that of a site that nobody loses.

What always holds: its data lies in a folder that the user who runs PostgreSQL can reach, and goes with the run; its log and the
file of the site's password stand in the site's own folder. A start finds the database of before, unless the site was lost.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url

from chaos.harness.pair.servers.server import Server
from chaos.servers.janitor import own_prefix
from chaos.servers.postgres import NoPostgres, PostgresServer
from twinlog.errors import TwinlogError, Unavailable

PASSWORD = "postgres.password"  # the file in the site's folder


class OnePostgres:
    """Server. A postmaster and its children."""

    def __init__(self, folder: Path, port: int) -> None:
        self.server = PostgresServer(folder, port)
        self._one_at_a_time = threading.Lock()
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        return self.server.is_running

    def start(self) -> None:
        with self._one_at_a_time:
            if self.is_running:
                return
            self.server.kill()  # it may have ended by itself
            try:
                self.server.start()
            except NoPostgres as error:
                raise Unavailable(str(error)) from error

    def terminate(self) -> None:
        with self._one_at_a_time:
            self.server.stop()
            self.is_paused = False

    def kill(self) -> None:
        with self._one_at_a_time:
            self.server.kill()
            self.is_paused = False

    def pause(self) -> None:
        with self._one_at_a_time:
            self.server.pause()
            self.is_paused = True

    def resume(self) -> None:
        with self._one_at_a_time:
            self.is_paused = False
            self.server.resume()


class SitePostgres:
    """SiteServers. `folder`: the site's own."""

    def __init__(self, site: str, folder: Path, port: int) -> None:
        self.database, self._folder, self.port = f"twinlog_{site}", folder, port
        self._data = Path(tempfile.mkdtemp(prefix=own_prefix("postgres")))
        self._data.chmod(0o711)  # PostgreSQL passes through it as another user
        self._one = OnePostgres(self._data / "server", port)
        self.servers: Mapping[str, Server] = {f"pg-{site}": self._one}

    def url(self, port: int | None = None) -> str:
        """The database with its password, which is there once it was started: past the link, or by a link at `port`."""
        address = make_url(self.address(port or self.port)).set(password=(self._folder / PASSWORD).read_text())
        return address.render_as_string(hide_password=False)

    def address(self, port: int) -> str:
        """The database for a configuration, by a link at `port`."""
        return self._one.server.url(self.database, password=False).replace(f":{self.port}/", f":{port}/")

    def start(self) -> None:
        is_new = not self._one.server.folder.exists()
        self._one.start()
        if is_new:
            self._one.server.create_database(self.database)
            secret = self._folder / PASSWORD
            secret.touch(0o600)
            secret.write_text(self._one.server.password)

    def lose(self) -> None:
        self._one.kill()
        shutil.rmtree(self._one.server.folder)

    def stop(self) -> None:
        with suppress(TwinlogError, OSError):
            shutil.copy(self._one.server.folder / "log", self._folder / "postgres.log")
        self._one.kill()
        shutil.rmtree(self._data, ignore_errors=True)
