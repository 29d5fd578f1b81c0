"""Connections never take the file descriptors that the storage needs."""

from __future__ import annotations

import resource

import pytest

from gateway.http import descriptors
from gateway.http.descriptors import BACKLOG_MAX, OTHER_FILES, fitting
from storage.engines.rocks.opening import RocksSettings
from twinlog.errors import ConfigError

RESERVED = RocksSettings().open_files_max + OTHER_FILES


class Process:
    """A process with limits of its own; `stuck`: nobody may raise them."""

    def __init__(self, soft: int, hard: int, *, stuck: bool = False) -> None:
        self.soft, self.hard, self.stuck = soft, hard, stuck

    def getrlimit(self, what: int) -> tuple[int, int]:
        return self.soft, self.hard

    def setrlimit(self, what: int, limits: tuple[int, int]) -> None:
        if self.stuck or limits[0] > self.hard != resource.RLIM_INFINITY:
            raise ValueError("not allowed to raise maximum limit")
        self.soft, self.hard = limits


def _fitting(process: Process, wanted: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    monkeypatch.setattr(resource, "getrlimit", process.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", process.setrlimit)
    return fitting(wanted)


@pytest.mark.parametrize(("soft", "hard"), [(1024, 1 << 20), (1024, resource.RLIM_INFINITY), (1 << 16, 1 << 20)])
def test_the_limit_is_raised_where_it_may_be(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    process = Process(soft, hard)
    assert _fitting(process, 2000, monkeypatch) == (2000, BACKLOG_MAX)
    assert process.soft >= RESERVED + 2000 + BACKLOG_MAX
    assert process.hard == hard


@pytest.mark.parametrize("process", [Process(1024, 1024), Process(1024, 1 << 20, stuck=True), Process(700, 2000)])
def test_fewer_connections_where_it_may_not(monkeypatch: pytest.MonkeyPatch, process: Process) -> None:
    """Even with all that wait to be accepted they leave the others theirs."""
    connections, backlog = _fitting(process, 2000, monkeypatch)
    assert descriptors.CONNECTIONS_MIN <= connections < 2000
    assert connections + backlog + RESERVED <= process.soft


def test_a_site_without_room_for_any_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"ulimit -n.*LimitNOFILE") as refused:
        _fitting(Process(256, 256), 2000, monkeypatch)
    least = int(str(refused.value).rsplit(" ", 1)[1])
    assert _fitting(Process(least, least), 2000, monkeypatch)[0] == descriptors.CONNECTIONS_MIN
    with pytest.raises(ConfigError):
        _fitting(Process(least - 1, least - 1), 2000, monkeypatch)
