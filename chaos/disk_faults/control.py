"""The table of rules, in memory that is shared with the processes that were started with the library.

What always holds: a rule is in force for each call that begins after `begin` has returned, and for none that begins after `end`
has; a call that is frozen continues then. A prefix is plain text: `/x/data/wal` takes `/x/data/wal`, what lies below it, and
`/x/data/wal-2`. The layout is that of interposed.c.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos.disk_faults.library import library
from chaos.shared_table import is_mapped_by, mapped
from twinlog.errors import InvalidInput

VARIABLE = "DISK_FAULTS_TABLE"
MAGIC = b"dskflt1"
RULES = 16
PREFIX_BYTES = 464
LOOK, OPEN, MAKE, DROP, WRITE, SYNC = 1, 2, 4, 8, 16, 32  # kinds of calls
_CHANGES = MAKE | DROP | WRITE | SYNC
_FAILING = {"EIO": _CHANGES, "EROFS": OPEN | _CHANGES, "ENOSPC": MAKE | WRITE | SYNC}  # error -> the calls that meet it


class _Rule(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_uint64), ("action", ctypes.c_uint32), ("kinds", ctypes.c_uint32), ("error", ctypes.c_int32),
        ("delay_us", ctypes.c_uint32), ("left", ctypes.c_int64), ("hits", ctypes.c_uint64), ("again", ctypes.c_uint64),
        ("prefix", ctypes.c_char * PREFIX_BYTES),
    )


class _Table(ctypes.Structure):
    _fields_ = (("magic", ctypes.c_char * 8), ("in_force", ctypes.c_uint64), ("rules", _Rule * RULES))


@dataclass(frozen=True, slots=True)
class Rule:
    """Says what becomes of calls; `slow`, `failing`, `freezing`, `full` and `failing_sync` make one."""

    action: int
    kinds: int
    error: int = 0
    delay_us: int = 0
    left: int = 0


def slow(delay_ms: float) -> Rule:
    """Every call takes so much longer."""
    return Rule(1, LOOK | OPEN | _CHANGES, delay_us=round(delay_ms * 1000))


def failing(error: str) -> Rule:
    """EIO, ENOSPC or EROFS: what changes something fails, as far as a file system answers that call with it."""
    if error not in _FAILING:
        raise InvalidInput(f"{error!r} is none of {', '.join(_FAILING)}")
    return Rule(2, _FAILING[error], getattr(errno, error))


def freezing() -> Rule:
    """No call ends, until the rule does."""
    return Rule(3, LOOK | OPEN | _CHANGES)


def full(left_bytes: int) -> Rule:
    """So much fits; then no file grows. What is deleted or cut makes room; what is written over needs none."""
    return Rule(4, WRITE, errno.ENOSPC, left=left_bytes)


def failing_sync(after: int = 0) -> Rule:
    """One sync fails with EIO, behind so many that succeed. What was to be synced stays in the file."""
    return Rule(5, WRITE | SYNC, errno.EIO, left=after)


class DiskFaults:
    """A table at `path`, which is made. Processes get `environ` when they start."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._library = library()
        self._table: _Table | None = mapped(self.path, _Table)
        self._table.magic = MAGIC
        self._last = 0

    def environ(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(self.path)}

    def is_attached(self, pid: int) -> bool:
        """Returns whether the process looks at this table."""
        return is_mapped_by(pid, self.path)

    def begin(self, prefix: Path, rule: Rule) -> int:
        """Returns the number of the rule, which is in force. Links in `prefix` are followed. Raises InvalidInput."""
        text = os.fsencode(os.path.realpath(prefix))
        free = [each for each in self._rules() if not each.number]
        if not free or len(text) >= PREFIX_BYTES:
            raise InvalidInput(f"no rule for {prefix}: {RULES} rules are in force, or it is too long")
        slot, self._last = free[0], self._last + 1
        slot.action, slot.kinds, slot.error, slot.delay_us, slot.left = (
            rule.action, rule.kinds, rule.error, rule.delay_us, rule.left
        )
        slot.hits = slot.again = 0
        slot.prefix = text
        slot.number = self._last  # last: a reader that saw the old number sees that it changed
        self._count()
        return self._last

    def end(self, number: int) -> None:
        self._slot(number).number = 0
        self._count()

    def in_force(self) -> int:
        """Returns how many rules there are."""
        return sum(each.number != 0 for each in self._rules())

    def hits(self, number: int) -> int:
        """Returns how many calls it has delayed, failed or frozen."""
        return int(self._slot(number).hits)

    def used_again(self, number: int) -> int:
        """Returns how often a descriptor was written or synced whose sync `failing_sync` had failed."""
        return int(self._slot(number).again)

    def close(self) -> None:
        """All rules end; processes that look at the table continue without."""
        if self._table is None:
            return
        for each in self._rules():
            each.number = 0
        self._count()
        self._table = None  # the memory goes with the last look at it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _rules(self) -> list[_Rule]:
        assert self._table is not None, "the table is closed"
        return list(self._table.rules)

    def _slot(self, number: int) -> _Rule:
        return next(each for each in self._rules() if each.number == number)

    def _count(self) -> None:
        assert self._table is not None
        self._table.in_force = self.in_force()
