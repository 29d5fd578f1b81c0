"""PostgreSQL of a site: the same database after a kill, an empty one after the loss of the site, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from chaos.harness.pair.servers.postgres import PASSWORD, SitePostgres
from chaos.servers.ports import free_ports


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


def test_a_kill_keeps_what_it_holds_and_a_loss_keeps_nothing(tmp_path: Path) -> None:
    site = SitePostgres("a", tmp_path, free_ports(1)[0])
    try:
        site.start()
        server = site.servers["pg-a"]
        with psycopg.connect(plain(site.url()), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        server.kill()
        assert not server.is_running
        server.start()
        with psycopg.connect(plain(site.url())) as connection:
            assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
        assert (tmp_path / PASSWORD).stat().st_mode & 0o077 == 0
        by_link = plain(site.address(site.port))
        psycopg.connect(by_link, password=(tmp_path / PASSWORD).read_text()).close()
        site.lose()
        site.start()
        with psycopg.connect(plain(site.url())) as connection, pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT one FROM kept")
        server.pause()
    finally:
        pid = site._one.server.pid
        site.stop()
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "database system is ready" in (tmp_path / "postgres.log").read_text()
    assert not site._data.exists()
