"""The table of one process's clocks, in memory that is shared with it when it was started with the library.

What always holds: a jump is in force when `jump` has returned; a rate is in force STARTS_S later, and CLOCK_BOOTTIME goes from
the one to the other without a step; the table outlives the process, so that the next one has the clocks of the same machine.
The layout is that of interposed.c.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from pathlib import Path

from chaos.disk_faults.library import compiled
from chaos.shared_table import is_mapped_by, mapped

VARIABLE = "CLOCK_FAULTS_TABLE"
MAGIC = b"clkflt1"
SOURCE = Path(__file__).with_name("interposed.c")
MILLION = 1_000_000
SECOND = 1_000_000_000
STARTS_S = 0.01


class _Table(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_char * 8), ("version", ctypes.c_uint64), ("since", ctypes.c_int64), ("shows", ctypes.c_int64),
        ("rate_before", ctypes.c_int64), ("rate", ctypes.c_int64), ("jump", ctypes.c_int64),
    )


class ClockFaults:
    """A table at `path`, which is made. The process gets `environ` when it starts."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._library = compiled(SOURCE, "clock-faults")
        self._table = mapped(self.path, _Table)
        self._table.magic = MAGIC
        self._table.rate = self._table.rate_before = MILLION

    def environ(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(self.path)}

    def is_attached(self, pid: int) -> bool:
        """Returns whether the process looks at this table."""
        return is_mapped_by(pid, self.path)

    @property
    def rate(self) -> float:
        """The seconds that pass there in one second."""
        return float(self._table.rate) / MILLION

    @property
    def ahead_s(self) -> float:
        """The seconds by which the wall clock there is ahead of this one."""
        table, real = self._table, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return float(self._shows(real) - real + table.jump) / SECOND

    def jump(self, by_s: float) -> None:
        """Sets the wall clock. The monotonic ones do not notice."""
        self._table.version += 1
        self._table.jump += round(by_s * SECOND)
        self._table.version += 1

    def run_at(self, rate: float) -> None:
        table, since = self._table, time.clock_gettime_ns(time.CLOCK_BOOTTIME) + round(STARTS_S * SECOND)
        shows = self._shows(since)
        table.version += 1
        table.rate_before, table.rate, table.since, table.shows = table.rate, round(rate * MILLION), since, shows
        table.version += 1

    def _shows(self, real: int) -> int:
        table = self._table
        rate = table.rate_before if real < table.since else table.rate
        return int(table.shows + (real - table.since) * rate // MILLION)
