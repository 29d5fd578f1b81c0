"""A PostgreSQL of our own: in a chosen folder, on a loopback port, started, stopped, killed and started again.

What always holds: it listens on 127.0.0.1 only, and asks for a password (SCRAM) that was made at random and lies in
`password` beside the data, readable by its owner alone; the sites' user owns its databases and is no superuser; only the
process that this object started is ever ended, and it ends with this process. PostgreSQL refuses to run as root: root runs it
as the user `postgres` (or `nobody`), who must be able to reach the folder.
Used by `make postgres`, the tests and the chaos scenarios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from chaos.servers.daemon import wait_stopped
from chaos.servers.ports import free_ports
from gateway.demo.child import start_child

USER = "twinlog"  # of the sites: it owns its databases and their schemas, and is no superuser
ADMIN = ADMINS = "postgres"  # the superuser, who makes databases and roles, and the database of that name
DATABASES = ("twinlog_a", "twinlog_b")
_USERS = ("postgres", "nobody")
_START_S, _STOP_S = 300.0, 120.0
_POLL_S = 0.02
_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")


class NoPostgres(Exception):
    """PostgreSQL is not installed, or does not start; the text says what to do."""


def find_program(name: str) -> str:
    """The path of one of PostgreSQL's programs, the newest release first. Raises NoPostgres."""
    found = [path for pattern in _FOLDERS for path in Path("/").glob(f"{pattern[1:]}/{name}")]
    newest = sorted(found, key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()])
    if newest:
        return str(newest[-1])
    on_path = shutil.which(name)
    if on_path is None:
        raise NoPostgres(f"{name} of PostgreSQL was not found; install it (Debian, Ubuntu: apt-get install postgresql)")
    return on_path


class PostgresServer:
    """One server, in the absolute `folder`. `settings` are further `name=value` of postgresql.conf."""

    def __init__(self, folder: Path, port: int | None = None, settings: Sequence[str] = ()) -> None:
        self.folder, self.port = folder, port or free_ports(1)[0]
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Returns the process id of the running server; None when it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True also while it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def password(self) -> str:
        return (self.folder / "password").read_text().strip()

    def url(self, database: str = "postgres", password: bool = True) -> str:
        """The SQLAlchemy address of a database, for the sites' user; without a password it may stand in a configuration."""
        secret = f":{self.password}" if password else ""
        return f"postgresql+psycopg://{USER}{secret}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = ADMINS, user: str = "") -> psycopg.Connection[Any]:
        """As the superuser, or in another database as its owner; each statement is a transaction of its own."""
        user = user or (ADMIN if database == ADMINS else USER)
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=user, password=self.password, dbname=database, autocommit=True,
            connect_timeout=5,
        )

    def create_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(USER)))
        with self.connect(name, ADMIN) as connection:
            connection.execute(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(USER)))

    def drop_database(self, name: str) -> None:
        """Whoever is connected is thrown out."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def start(self) -> None:
        """Make the data folder when it is not there, and run the server until it answers. Raises NoPostgres."""
        assert self._process is None, "it runs already"
        if not (self.folder / "data" / "PG_VERSION").exists():
            self._initialise()
        settings = ("unix_socket_directories=", "listen_addresses=127.0.0.1", f"port={self.port}", *self._settings)
        with (self.folder / "log").open("ab") as log:
            command = [find_program("postgres"), "-D", str(self.folder / "data"), *(f"--{setting}" for setting in settings)]
            self._process = start_child(command, log, folder="/", left=signal.SIGINT, owner=_as_user())
        try:
            self._wait_until_it_answers()
            self._make_user()
        except BaseException:
            self.kill()
            raise

    def _initialise(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.folder, **_owner())
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(secrets.token_urlsafe(24) + "\n")
        if os.geteuid() == 0:
            shutil.chown(secret, **_owner())
        made = subprocess.run(
            [find_program("initdb"), "-D", str(self.folder / "data"), "-U", ADMIN, "--auth=scram-sha-256",
             f"--pwfile={secret}", "--encoding=UTF8", "--locale=C", "--no-sync"],
            capture_output=True, text=True, cwd="/", check=False, **_as_user(),
        )
        if made.returncode != 0:
            told = " ".join((made.stderr or made.stdout).split())
            raise NoPostgres(f"initdb failed in {self.folder}, which its user must be able to reach: {told}")

    def _make_user(self) -> None:
        with self.connect() as connection:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [USER]).fetchone() is None:
                made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(USER), sql.Literal(self.password))
                connection.execute(made)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        until_s = time.monotonic() + _START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None:
                    end = " / ".join((self.folder / "log").read_text(errors="replace").splitlines()[-5:])
                    if '"postmaster.pid" already exists' in end:
                        raise NoPostgres(
                            f"a PostgreSQL runs in {self.folder} already (`make postgres`, or a demo with ENGINE=postgresql): "
                            "end it first (the first line of data/postmaster.pid names its process), or name another folder"
                        ) from error
                    raise NoPostgres(f"PostgreSQL ended at its start; {self.folder / 'log'} ends: {end}") from error
                if time.monotonic() > until_s:
                    raise NoPostgres(f"PostgreSQL does not answer after {_START_S:g} s: {error}") from error
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Throw everyone out and end cleanly. Stopping twice is fine."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As if the machine had taken its power away from the process: nothing is written any more."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP for it and for its children, who serve: its connections stay open, and nobody answers on them."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)
        wait_stopped(self._process.pid)  # it makes no child any more
        _signal(_children(self._process.pid), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT. Nothing to do when it does not run."""
        if self._process is not None and self.is_running:
            _signal(_children(self._process.pid), signal.SIGCONT)
            self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid) if how == signal.SIGKILL else []
        process.send_signal(how)
        _signal(children, how)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    """Returns the child processes of our own server: a postmaster that is killed leaves its children to find that out."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _signal(children: Sequence[int], number: signal.Signals) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


def _owner() -> dict[str, str]:
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return {"user": name, "group": str(_group(pwd.getpwnam(name).pw_gid))}
    raise NoPostgres("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def _group(number: int) -> str:
    import grp

    return grp.getgrgid(number).gr_name


def _as_user() -> dict[str, Any]:
    return {**_owner(), "extra_groups": []} if os.geteuid() == 0 else {}


@contextlib.contextmanager
def running(server: PostgresServer) -> Iterator[PostgresServer]:
    """The server, started, and stopped at the end."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _note(server: PostgresServer, secret: Path) -> Path:
    """postgres.json for programs: the address of each site's database, and the password by reference; there, whole."""
    urls = {database[-1]: server.url(database, password=False) for database in DATABASES}
    note = server.folder / "postgres.json"
    part = note.with_suffix(".part")
    part.write_text(json.dumps({"urls": urls, "password": f"file:{secret}"}) + "\n")
    part.replace(note)
    return note


def _screen(server: PostgresServer, secret: Path) -> str:
    """Returns the screen for a person: a site's [engine] for each database, and the command that looks into one."""
    told = f"PostgreSQL runs on 127.0.0.1:{server.port}; its data is kept in {server.folder}. Ctrl-C ends it.\n"
    for database in DATABASES:
        told += (
            f"\n# site.toml of site {database[-1]}\n[engine]\nkind = \"postgresql\"\n"
            f'url = "{server.url(database, password=False)}"\npassword = "file:{secret}"\n'
        )
    address = server.url(DATABASES[0], password=False).replace("+psycopg", "")
    return f'{told}\n# to look into the first one\nPGPASSWORD="$(cat {shlex.quote(str(secret))})" psql {address}\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """`make postgres`: one server in the foreground, until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m chaos postgres", description="a PostgreSQL on a loopback port")
    parser.add_argument("--dir", type=Path, default=Path("postgres"), help="where its data lies; kept (default: postgres)")
    parser.add_argument("--port", type=int, default=5433, help="0: any free one (default: 5433)")
    chosen = parser.parse_args(arguments)
    server = PostgresServer(chosen.dir.resolve(), chosen.port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        with contextlib.ExitStack() as running_now:
            running_now.enter_context(running(server))
            for database in DATABASES:
                with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                    server.create_database(database)
            secret = server.folder / "password"
            running_now.callback(_note(server, secret).unlink, missing_ok=True)
            sys.stdout.write(_screen(server, secret))
            sys.stdout.flush()
            signal.pause()
    except NoPostgres as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
