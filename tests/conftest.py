"""Shared parts of all tests: checked invariants, one real HDFS for all tests of a process, and the profile of Hypothesis."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.janitor import employ
from storage.invariants import watched
from tests.needs import need_hdfs
from tests.suite.longest_first import LongestFirst

_folders = count(1)

# How fast a busy machine draws inputs is no property of the code under test.
settings.register_profile("twinlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("twinlog")


def pytest_configure() -> None:
    """A janitor clears away all that a killed worker leaves."""
    employ()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst | None:
    """Says who gives the tests to the workers; None: xdist's own."""
    return LongestFirst(config, log) if config.getoption("dist") == "worksteal" else None


@pytest.fixture(autouse=True)
def no_broken_invariant() -> Iterator[None]:
    """Every test runs with the costly checks, and fails when an invariant broke in it, also where a handler took the error."""
    with watched() as broken:
        yield
    assert not broken, [str(one) for one in broken]


@pytest.fixture(autouse=True)
def every_answer_is_documented() -> Iterator[None]:
    """Every test fails that saw an answer of a door which the OpenAPI document does not allow."""
    yield
    documented = sys.modules.get("tests.gateway.documented")  # imported by what opens doors
    if documented is not None:
        faults = [*documented.faults]
        documented.faults.clear()
        assert not faults


@pytest.fixture(autouse=True)
def the_process_is_as_it_was() -> Iterator[None]:
    """Every test fails that leaves this process silenced, or without garbage collection: the next one would judge on less."""
    before = _of_the_process()
    yield
    assert _of_the_process() == before


def _of_the_process() -> dict[str, object]:
    return {
        "garbage collection": gc.isenabled(),
        "the hook of what cannot be raised": sys.unraisablehook,
        "logging is disabled up to level": logging.root.manager.disable,
        "filters of loggers": {
            name: tuple(logger.filters) for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and logger.filters
        },
    }


@pytest.fixture(scope="session")
def hdfs_here() -> None:
    """This machine can run an HDFS: the servers' jar is fetched when it is not there."""
    need_hdfs()


@pytest.fixture(scope="session")
def shared_hdfs(hdfs_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """One NameNode and one DataNode. Tests use `hdfs`, or `faulty_hdfs` when they break it."""
    with HdfsCluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture
def hdfs(shared_hdfs: HdfsCluster) -> HdfsCluster:
    return shared_hdfs


@pytest.fixture
def faulty_hdfs(shared_hdfs: HdfsCluster) -> Iterator[HdfsCluster]:
    """The same; whatever the test did to its daemons is undone."""
    yield shared_hdfs
    shared_hdfs.heal()


@pytest.fixture
def hdfs_root(shared_hdfs: HdfsCluster) -> str:
    """A folder of this test's own in it, which exists."""
    folder = f"/test{next(_folders)}"
    shared_hdfs.make_folder(folder)
    return folder

