"""The descriptors of a process are counted by kind."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

from chaos.harness.pair.files.footprint import DELETED, LOG, OTHER, SELECTOR, SOCKET, STORAGE, footprint


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


def test_of_a_process_that_is_gone_nothing_is_said(tmp_path: Path) -> None:
    assert footprint(2**22 + 1, tmp_path, tmp_path) is None
