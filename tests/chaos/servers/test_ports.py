"""Ports: each is given once, to one process, and back when that process has ended."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chaos.servers import ports

HOLDER = """
import sys
from chaos.servers.ports import free_ports
print(*free_ports(3), flush=True)
sys.stdin.read()
"""


@contextmanager
def held() -> Iterator[list[int]]:
    """Ports that another process was given, while it lives; nobody listens there."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            yield [int(word) for word in other.stdout.readline().split()]
        finally:
            other.kill()


def drawn(monkeypatch: pytest.MonkeyPatch, first: list[int]) -> list[int]:
    """Three ports by one who tries `first` before all others."""
    others = [port for port in ports._candidates() if port not in first]
    monkeypatch.setattr(ports, "_candidates", lambda: [*first, *others])
    return ports.free_ports(3)


def test_what_another_process_was_given_is_given_to_nobody_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with held() as theirs:
        assert len(set(theirs)) == 3
        assert not set(drawn(monkeypatch, theirs)) & set(theirs)
    assert drawn(monkeypatch, theirs) == theirs


def test_a_process_is_given_no_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_ports(3)
    assert not set(drawn(monkeypatch, first)) & set(first)


def test_a_port_on_which_somebody_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = ports.free_ports(1)
    ports._given.remove(port)
    with socket.create_server(("127.0.0.1", port)):
        assert port not in drawn(monkeypatch, [port])


def test_the_oldest_are_given_again_and_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "KEPT", 5)
    monkeypatch.setattr(ports, "_given", deque())  # what other tests of this process were given stays theirs
    first = ports.free_ports(3)
    ports.free_ports(3)
    assert first[0] in drawn(monkeypatch, first)
    assert len(ports._given) == 5


def test_no_port_of_those_that_the_system_gives_to_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as system:
        assert system.getsockname()[1] not in range(ports._LOWEST, ports._end())
    assert max(ports._candidates()) < ports._end()


def test_too_many_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="no 30000 free ports"):
        ports.free_ports(30_000)
