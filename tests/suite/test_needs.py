"""A missing need fails a test and says what to install; the jar of the HDFS servers comes with the first test that needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chaos.servers import hdfs_jars, hdfs_secure
from chaos.servers.postgres import NoPostgres
from tests.needs import need, need_hdfs, need_program, need_root
from tests.storage.engines.sql import rig


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository of the test's own, which is empty, and an empty cache."""
    folder = tmp_path / "repository"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv(hdfs_jars.CACHE_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.setenv(hdfs_jars.ADDRESS_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


def failure(looks: Callable[[], object]) -> str:
    """Returns the text with which the test would fail; a skip would pass for it, were it not caught here."""
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as caught:
        looks()
    assert isinstance(caught.value, pytest.fail.Exception)
    return str(caught.value)


def test_the_jar_of_the_servers_is_fetched(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = repository / hdfs_jars.ARTIFACT
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"")
    monkeypatch.setattr(hdfs_jars, "SHA256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    need_hdfs()
    assert hdfs_jars.server_jar().read_bytes() == b""


@pytest.mark.usefixtures("repository")
def test_a_jar_that_cannot_be_fetched_fails_the_test() -> None:
    assert "404" in (said := failure(need_hdfs))
    assert "MAVEN_MIRROR_URL" in said


def test_what_is_missing_fails_the_test_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(settings: object) -> None:
        raise NoPostgres("postgres of PostgreSQL was not found; install it")

    monkeypatch.setattr("chaos.servers.hdfs_secure._PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rig, "_made", nothing)
    monkeypatch.setattr(rig, "_server", rig._server.__wrapped__)
    for looked, said in (
        (lambda: need(hdfs_secure.missing()), "install krb5-kdc"),
        (lambda: need_program("strace", "strace"), "apt-get install strace"),
        (lambda: need_root("mounting"), "mounting needs root"),
        (rig.postgres, "postgres of PostgreSQL was not found; install"),
    ):
        assert said in failure(looked)
