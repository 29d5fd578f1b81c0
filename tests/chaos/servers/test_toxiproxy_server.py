"""The Toxiproxy server: what is missing is told with what to install, and the real one starts and stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.servers import hdfs_jars, toxiproxy
from tests.processes import has_ended
from twinlog.errors import ConfigError


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(hdfs_jars.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake_go(folder: Path, version: str, install: str) -> None:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\nif [ \"$1\" = env ]; then echo {version}; else {install}; fi\n")
    program.chmod(0o755)


@pytest.mark.usefixtures("empty_cache")
def test_without_go_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"there is no `go`: install it .*golang-go"):
        toxiproxy.fetch()
    with pytest.raises(ConfigError, match="python -m chaos toxiproxy --fetch"):
        toxiproxy.program()


def test_a_go_that_is_too_old_is_told(empty_cache: Path) -> None:
    fake_go(empty_cache, "go1.19.8", "exit 1")
    with pytest.raises(ConfigError, match=r"built by Go 1\.23 or newer, and .*/go is go1\.19\.8"):
        toxiproxy.fetch()


def test_a_build_that_fails_leaves_nothing_and_is_told(empty_cache: Path) -> None:
    fake_go(empty_cache, "go1.23.1", "echo no such module >&2; exit 1")
    with pytest.raises(ConfigError, match="no such module"):
        toxiproxy.fetch()
    assert not [*(empty_cache / "cache").iterdir()]


def test_a_program_that_was_built_is_kept(empty_cache: Path) -> None:
    fake_go(empty_cache, "go1.23.1", 'echo "$2" > "$GOBIN/server"')
    built = toxiproxy.fetch()
    assert built.read_text().strip() == toxiproxy.MODULE
    (empty_cache / "go").unlink()
    assert toxiproxy.fetch() == toxiproxy.program() == built


def test_the_real_server_starts_and_stops(tmp_path: Path) -> None:
    toxiproxy.fetch()
    server = toxiproxy.Toxiproxy(tmp_path)
    server.start()
    pid = server._daemon.pid
    assert pid is not None
    server.stop()
    assert has_ended(pid)
