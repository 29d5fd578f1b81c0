"""A table that processes share: zeros when it is new, and what another one wrote when it is not."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from chaos.shared_table import is_mapped_by, mapped


class _Two(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint64), ("second", ctypes.c_uint64))


def test_who_knows_the_path_sees_what_another_one_wrote(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(b"x" * 99)
    made = mapped(path, _Two)
    assert (made.first, made.second, path.stat().st_size) == (0, 0, 16)
    made.second = 7
    assert mapped(path, _Two, new=False).second == 7
    assert mapped(path, _Two).second == 0


def test_a_process_that_looks_at_it_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = mapped(path, _Two)
    assert is_mapped_by(os.getpid(), path)
    assert not is_mapped_by(os.getppid(), path)
    assert not is_mapped_by(2**22 + 1, path), "there is no such process"
    assert table.first == 0
