"""A Java that is missing or too old, or packages that are not there: one error that says what to install."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jpype
import pytest

from remote_log.dfs.hdfs import jvm as hdfs_jvm
from twinlog.errors import ConfigError


def fake_java(home: Path, version: str) -> Path:
    library = home / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return library


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_a_java_that_is_too_old(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path} is {version}, too old.*install Java 17 or newer .*or set JAVA_HOME"):
        hdfs_jvm.check_version(fake_java(tmp_path, version))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough(tmp_path: Path, version: str) -> None:
    hdfs_jvm.check_version(fake_java(tmp_path, version))


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> str:
        raise jpype.JVMNotFoundException("none")

    monkeypatch.setattr(jpype, "getDefaultJVMPath", nothing)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"JAVA_HOME is {tmp_path}, and holds no Java; install Java 17.*openjdk-17"):
        hdfs_jvm.java_library()
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(ConfigError, match="no Java was found"):
        hdfs_jvm.java_library()


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def test_the_command_is_that_of_the_library(java_home: Path) -> None:
    fake_java(java_home, "21").touch()
    with pytest.raises(ConfigError, match="has no command `java`"):
        hdfs_jvm.java_program()
    program = java_home / "bin" / "java"
    program.parent.mkdir()
    program.touch()
    assert hdfs_jvm.java_program() == program


def test_the_command_of_one_that_is_too_old(java_home: Path) -> None:
    fake_java(java_home, "11.0.2").touch()
    with pytest.raises(ConfigError, match=r"is 11\.0\.2, too old"):
        hdfs_jvm.java_program()


def test_the_jars_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pyspark.*is not installed; install twinlog-server with its extra `hdfs`"):
        hdfs_jvm.client_jars()


def test_more_jars_come_behind_the_client() -> None:
    jars = hdfs_jvm.client_jars()
    more = hdfs_jvm.client_jars(["log4j-1.2-api"])
    assert more[:-1] == jars
    assert more[-1].name.startswith("log4j-1.2-api-")
    with pytest.raises(ConfigError, match="has no nonesuch jar"):
        hdfs_jvm.client_jars(["nonesuch"])
