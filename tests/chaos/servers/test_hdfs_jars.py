"""The servers' jar is fetched, kept only when it is the right one, and a missing part is reported."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.servers import hdfs_cli, hdfs_jars
from twinlog.errors import ConfigError

SETTINGS = """<settings xmlns="urn:settings"><mirrors>
<mirror><mirrorOf>{of}</mirrorOf><url> http://mirror.example/repository </url></mirror></mirrors></settings>"""


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nobody set up anything."""
    for name in (hdfs_jars.ADDRESS_VARIABLE, "MAVEN_HOME", "M2_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(hdfs_jars.CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository on this machine; what lies in the folder is served, and the environment names it."""
    folder = tmp_path / "repository"
    (folder / hdfs_jars.ARTIFACT).parent.mkdir(parents=True)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv(hdfs_jars.ADDRESS_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def settings(home: Path, of: str) -> None:
    (home / ".m2").mkdir(parents=True, exist_ok=True)
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))


# ---- the address
@pytest.mark.parametrize("of", ["central", "*", "external:*", "other, central"])
def test_a_mirror_in_mavens_settings_is_used(tmp_path: Path, of: str) -> None:
    settings(tmp_path / "home", of)
    assert hdfs_jars.repository()[0] == "http://mirror.example/repository"


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(tmp_path / "home", "*")
    monkeypatch.setenv(hdfs_jars.ADDRESS_VARIABLE, "http://named.example")
    assert hdfs_jars.repository() == ("http://named.example", hdfs_jars.ADDRESS_VARIABLE)


@pytest.mark.parametrize("of", ["spring-releases", "*,!central"])
def test_without_one_it_is_where_pysparks_own_ivy_fetches_from(tmp_path: Path, of: str) -> None:
    settings(tmp_path / "home", of)
    address, origin = hdfs_jars.repository()
    assert address.startswith("https://")
    assert "ivy-" in origin


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    settings(tmp_path / "home", "<")
    with pytest.raises(ConfigError, match=r"settings\.xml cannot be read.*MAVEN_MIRROR_URL"):
        hdfs_jars.repository()


# ---- the file
def test_the_right_file_is_fetched_once(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / hdfs_jars.ARTIFACT).write_bytes(b"the jar")
    monkeypatch.setattr(hdfs_jars, "SHA256", hashlib.sha256(b"the jar").hexdigest())
    kept = hdfs_jars.fetch()
    assert kept.read_bytes() == b"the jar"
    (repository / hdfs_jars.ARTIFACT).unlink()
    assert hdfs_jars.fetch() == kept == hdfs_jars.server_jar()
    assert list(kept.parent.iterdir()) == [kept]


def test_another_file_is_not_kept(repository: Path, tmp_path: Path) -> None:
    (repository / hdfs_jars.ARTIFACT).write_bytes(b"something else")
    with pytest.raises(ConfigError, match="is not the file that is expected"):
        hdfs_jars.fetch()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_repository_without_it_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hdfs_cli.main(["--fetch"]) == 1
    said = capsys.readouterr().err
    assert "404" in said
    assert "name a reachable Maven repository in MAVEN_MIRROR_URL" in said


# ---- what is missing
def test_no_jar_says_how_it_is_got() -> None:
    assert "`python -m chaos hdfs --fetch`" in (hdfs_jars.missing() or "")


def test_a_java_that_does_not_fit_is_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java of the servers is that of the client (remote_log/dfs/hdfs/jvm.py)."""
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "libjvm.so").touch()
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"Java at {tmp_path} is 1.8.0_402, too old" in (hdfs_jars.missing() or "")


def test_a_client_of_another_release_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_jars, "VERSION", "2.0.0")
    with pytest.raises(ConfigError, match=r"should hold hadoop-client-api-2\.0\.0\.jar, and holds hadoop-client-api-3"):
        hdfs_jars.client_jars()
