"""The needs of tests on the machine that runs them: Java, PostgreSQL, strace, root, Go, packages of an extra, whole history.

What always holds: a test whose need is missing fails, and its error says what to install. It is never skipped, so that a run
that passes has run every test of its tier. The one exception is a sandbox that forbids tracing (tests/chaos/conftest.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from chaos.porcupine.second import HERE, program_of
from chaos.servers import hdfs_jars
from remote_log.dfs.hdfs import jvm as hdfs_jvm
from spark_jobs.audit.java import java_program
from spark_jobs.audit.session import check_installed
from tools.sources import ROOT
from twinlog.errors import ConfigError


def need(missing: str | None) -> None:
    """Fails the test with the reason, unless that is None."""
    if missing is not None:
        pytest.fail(f"this test needs more of the machine: {missing}")


def need_program(name: str, package: str) -> str:
    """Returns the path of a program."""
    path = shutil.which(name)
    need(None if path else f"{name} was not found; install it (Debian, Ubuntu: apt-get install {package})")
    return str(path)


def need_package(name: str, extra: str) -> None:
    found = importlib.util.find_spec(name)
    need(None if found else f"the package {name} was not found; run `make setup`, or install the extra `{extra}`")


def need_root(what_for: str) -> None:
    need(None if os.geteuid() == 0 else f"{what_for} needs root")


def need_hdfs() -> None:
    """The servers' jar is fetched when it is not there."""
    try:
        hdfs_jvm.java_program()
        hdfs_jars.fetch()
        hdfs_jars.class_path()
    except ConfigError as error:
        need(error.message)


def need_porcupine() -> Path:
    """Returns the second checker, built when it is not there."""
    try:
        return program_of(HERE).fetch()
    except ConfigError as error:
        pytest.fail(f"this test needs more of the machine: {error.message}")


def need_spark() -> None:
    try:
        check_installed()
        java_program()
    except ConfigError as error:
        need(error.message)


def need_commit(commit: str) -> None:
    """A shallow clone lacks earlier ones."""
    done = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
    need(None if done.returncode == 0 else f"this clone has no commit {commit}; fetch it: git fetch --unshallow")
