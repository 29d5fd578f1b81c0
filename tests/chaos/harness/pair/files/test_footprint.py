"""The descriptors of a process are counted by kind."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

import pytest

from chaos.harness.pair.files.footprint import DATABASE, DELETED, LOG, OTHER, SELECTOR, SOCKET, STORAGE, footprint


def opened(data_dir: Path) -> dict[str, int]:
    held = footprint(os.getpid(), data_dir, data_dir)
    assert held is not None
    return held.open_files


def test_each_descriptor_has_its_kind(tmp_path: Path) -> None:
    for folder in ("engine", "wal"):
        (tmp_path / folder).mkdir()
    before = opened(tmp_path)
    gone = (tmp_path / "gone").open("wb")
    (tmp_path / "gone").unlink()
    with (
        gone, (tmp_path / "engine" / "rows").open("wb"), (tmp_path / "wal" / "1").open("wb"), (tmp_path / "note").open("wb"),
        socket.socket(), select.epoll(),
    ):
        now = opened(tmp_path)
    kinds = (DELETED, STORAGE, LOG, OTHER, SOCKET, SELECTOR)
    assert [now.get(kind, 0) - before.get(kind, 0) for kind in kinds] == [1] * len(kinds)


def test_what_may_not_grow_is_named_where_disks_are_looked_at(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    reading, writing = os.pipe()
    with (data_dir / "note").open("wb"):
        held = footprint(os.getpid(), data_dir, tmp_path, disks=True)
        quick = footprint(os.getpid(), data_dir, tmp_path)
    os.close(reading)
    os.close(writing)
    assert held is not None
    assert quick is not None
    assert quick.names == {}
    assert "data/note" in held.names[OTHER]
    assert held.names[OTHER].count("pipe") >= 2


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_is_of_the_kind_of_its_server(family: socket.AddressFamily, tmp_path: Path) -> None:
    """The one that calls is, and neither the server's own end nor what listens."""
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((host, port)), server.accept()[0]:
            held = footprint(os.getpid(), tmp_path, tmp_path, servers={port: DATABASE})
            others = footprint(os.getpid(), tmp_path, tmp_path, servers={1: DATABASE})
    assert held is not None
    assert others is not None
    assert (held.open_files[DATABASE], held.open_files[SOCKET]) == (1, others.open_files[SOCKET] - 1)
    assert DATABASE not in others.open_files


def test_of_a_process_that_is_gone_nothing_is_said(tmp_path: Path) -> None:
    assert footprint(2**22 + 1, tmp_path, tmp_path) is None
