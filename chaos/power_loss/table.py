"""The table that a recorded process shares with its recorder: which folders are recorded, into which file, and who is cut.

What always holds: behind `cut` no call of that process on these folders begins or returns, and each that had begun has ended
and stands in the record, unless this raised; a process stays cut until it ends. The layout is that of recorded.c.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from chaos.disk_faults.library import library
from chaos.shared_table import mapped
from twinlog.errors import InvalidInput, Unavailable

VARIABLE = "POWER_LOSS_TABLE"
SOURCE = Path(__file__).with_name("recorded.c")
MAGIC = b"pwrlss1"
FOLDERS, LIVES, NAME_BYTES = 8, 1024, 464
END_S = 30.0  # until a call that was under way must have ended
POLL_S = 0.001


class _Life(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_int32), ("cut", ctypes.c_uint32), ("under_way", ctypes.c_int32), ("missing", ctypes.c_uint32),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_char * 8), ("record", ctypes.c_char * NAME_BYTES),
        ("folders", (ctypes.c_char * NAME_BYTES) * FOLDERS), ("lives", _Life * LIVES),
    )


class RecordedProcesses:
    """A table and an empty record in `folder`, which exists. Processes get `environ` when they start."""

    def __init__(self, folder: Path, watched: Iterable[Path]) -> None:
        self.record, self._path = folder.resolve() / "record", folder.resolve() / "table"
        self._library = library(SOURCE)
        self.record.write_bytes(b"")
        names = [os.fsencode(os.path.realpath(each)) for each in watched]
        if len(names) > FOLDERS or any(len(name) >= NAME_BYTES for name in (*names, os.fsencode(self.record))):
            raise InvalidInput(f"at most {FOLDERS} folders are recorded, and no path of {NAME_BYTES} bytes: {folder}")
        self._table = mapped(self._path, _Table)
        self._table.record = os.fsencode(self.record)
        for at, name in enumerate(names):
            self._table.folders[at].value = name
        self._table.magic = MAGIC

    def environ(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(self._path)}

    def is_attached(self, pid: int) -> bool:
        """Returns whether the process is recorded."""
        return self._life(pid) is not None

    def cut(self, *pids: int) -> int:
        """Returns the moment, in ns of the monotonic clock: no caller has heard of the end of a call that ended later. A
        process that is not recorded is left alone. Raises Unavailable where a call does not end, or the record has a gap."""
        lives = [life for life in map(self._life, pids) if life is not None]
        for life in lives:
            life.cut = 1
        moment_ns = time.monotonic_ns()
        until_s = time.monotonic() + END_S
        while any(life.under_way for life in lives):
            if time.monotonic() > until_s:
                raise Unavailable(f"a call on recorded files did not end within {END_S:.0f} s of the cut")
            time.sleep(POLL_S)
        if any(life.missing for life in lives):
            raise Unavailable(f"{self.record} has a gap: look whether its disk is full")
        return moment_ns

    def _life(self, pid: int) -> _Life | None:
        """The last one of this number: numbers of processes come again."""
        return next((life for life in reversed(self._table.lives) if life.pid == pid), None)
