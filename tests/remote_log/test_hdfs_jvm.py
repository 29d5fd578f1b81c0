"""A Java that is missing or too old, or packages that are not there: one error that says what to install."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from remote_log import hdfs_jvm
from storage.errors import ConfigError


def fake_java(home: Path, version: str) -> Path:
    library = home / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return library


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_a_java_that_is_too_old(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path} is {version}, too old.*install Java 17 or newer, or set JAVA_HOME"):
        hdfs_jvm.check_version(fake_java(tmp_path, version))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough(tmp_path: Path, version: str) -> None:
    hdfs_jvm.check_version(fake_java(tmp_path, version))


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jpype = pytest.importorskip("jpype")

    def nothing() -> str:
        raise jpype.JVMNotFoundException("none")

    monkeypatch.setattr(jpype, "getDefaultJVMPath", nothing)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"JAVA_HOME is {tmp_path}, and holds no Java; install Java 17"):
        hdfs_jvm.java_library(jpype)
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(ConfigError, match="no Java was found"):
        hdfs_jvm.java_library(jpype)


def test_the_jars_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pyspark.*is not installed; install twinlog with its extra `hdfs`"):
        hdfs_jvm.client_jars()
