"""The PostgreSQL that tests and `make postgres` start: behind a password, killed and started again with what it held."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from chaos.servers.postgres import DATABASES, NoPostgres, PostgresServer, _screen, find_program
from tests.processes import has_ended, wait_for
from tests.storage.engines.sql.rig import new_server


def test_it_is_killed_and_started_again_with_what_it_held() -> None:
    with new_server(("max_connections=10",)) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
            assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
            assert connection.execute("SHOW max_connections").fetchone() == ("10",)
        before = server.pid
        assert before is not None
        server.kill()
        assert server.pid is None
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        with pytest.raises(psycopg.OperationalError, match="refused"):
            server.connect()
        server.start()
        with server.connect() as connection:
            assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
        assert (server.folder / "password").stat().st_mode & 0o077 == 0
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.url(password=False).replace("+psycopg", ""))


@pytest.mark.long
def test_paused_it_answers_nobody_and_resumed_it_goes_on() -> None:
    with new_server(()) as server, server.connect() as connection:
        server.pause()
        assert server.is_running
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(server.url(password=False).replace("+psycopg", ""), connect_timeout=2)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(connection.execute, "SELECT 1")
            with pytest.raises(TimeoutError):
                asked.result(0.3)
            server.resume()
            assert asked.result(60).fetchone() == (1,)


def test_it_ends_with_the_process_that_started_it() -> None:
    """Also when that one is killed, and could stop nothing: a worker of the tests, a demo."""
    with new_server(()) as server:
        server.stop()
        code = (
            "import sys; from pathlib import Path; from chaos.servers.postgres import PostgresServer\n"
            f"server = PostgresServer(Path({str(server.folder)!r})); server.start()\n"
            "print(server.pid, flush=True); sys.stdin.read()"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None
            pid = int(owner.stdout.readline())
            assert not has_ended(pid)
            owner.kill()
        assert wait_for(lambda: has_ended(pid))


def test_the_sites_user_owns_its_database_and_is_no_superuser() -> None:
    with new_server(()) as server:
        server.create_database("twinlog_a")
        with server.connect() as admin:
            asked = "SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls FROM pg_roles"
            assert admin.execute(f"{asked} WHERE rolname = 'twinlog'").fetchone() == (False,)
            owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'twinlog_a'"
            assert admin.execute(owner).fetchone() == ("twinlog",)
        with psycopg.connect(server.url("twinlog_a").replace("+psycopg", "")) as site:
            asked = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'public'"
            assert site.execute(asked).fetchone() == ("twinlog",)
            site.execute("CREATE TABLE mine (k int)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                site.execute("COPY mine FROM PROGRAM 'id'")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.servers.postgres._FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoPostgres, match="apt-get install postgresql"):
        find_program("postgres")


def test_a_server_that_cannot_start_says_what_its_log_says() -> None:
    with new_server(()) as server:
        second = PostgresServer(server.folder)
        with pytest.raises(NoPostgres, match=r"runs in .* already .*: end it first"):
            second.start()
        assert second.pid is None
        server.connect().close()


def test_what_it_prints_can_be_pasted() -> None:
    """The site's [engine] is TOML, and the last line looks into the first database."""
    with new_server(()) as server:
        for database in DATABASES:
            server.create_database(database)
        told = _screen(server, server.folder / "password")
        sections = told.split("# site.toml of site ")[1:]
        for site, section in zip("ab", sections, strict=True):
            engine = tomllib.loads(section.partition("\n\n")[0].removeprefix(site))["engine"]
            assert engine == {
                "kind": "postgresql", "url": server.url(f"twinlog_{site}", password=False),
                "password": f"file:{server.folder / 'password'}",
            }
        look = told.splitlines()[-1]
        asked = f"{look} -Atc 'SELECT current_database()'"
        assert subprocess.run(asked, shell=True, capture_output=True, text=True, check=True).stdout == "twinlog_a\n"
