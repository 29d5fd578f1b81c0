"""The table of traps of one site, in memory that the harness and the gateway of that site share.

What always holds: a trap counts passes from `arm` on, also across a restart of the gateway, and strikes once (of the deed
REFUSE: each time); that it struck stands in the table before anything happens to the process; one that was disarmed strikes no
more, and whoever waits at it continues.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from chaos.shared_table import mapped
from twinlog.errors import InvalidInput

TRAPS = 16
POINT_BYTES = 96


class Deed(IntEnum):
    """A deed is done to the process, or to the call."""

    CRASH = 1
    PAUSE = 2
    FAIL = 3
    WAIT = 4
    REFUSE = 5  # each pass, not one
    STAND = 6


class Slot(ctypes.Structure):
    """`number` 0: free. `struck`: when it did so last, by the monotonic clock of this machine; 0: never. `left`: passes until
    it strikes, the last one included. `passed`: since it was armed."""

    _fields_ = (
        ("number", ctypes.c_uint64), ("deed", ctypes.c_uint64), ("struck", ctypes.c_double), ("left", ctypes.c_int64),
        ("passed", ctypes.c_uint64), ("point", ctypes.c_char * POINT_BYTES),
    )


class _Table(ctypes.Structure):
    _fields_ = (("in_force", ctypes.c_uint64), ("slots", Slot * TRAPS))


class TrapTable:
    """The table at `path`: made by the harness (`new`), looked at by the gateway."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path.absolute()
        self._table = mapped(self.path, _Table, new=new)
        self._last = 0

    # ---- the harness
    def arm(self, point: str, nth: int, deed: Deed) -> int:
        """Returns the number of the trap, which is in force. Raises InvalidInput when the table is full."""
        free = next((slot for slot in self._slots() if not slot.number), None)
        if free is None:
            raise InvalidInput(f"no trap for {point}: {TRAPS} are set already")
        self._last += 1
        free.deed, free.struck, free.left, free.passed, free.point = deed, 0.0, nth, 0, point.encode()
        free.number = self._last  # last: the gateway looks at no slot without a number
        self._count()
        return self._last

    def disarm(self, number: int) -> tuple[float, int]:
        """Returns when it struck, 0: it did not, and how often its point was passed since it was armed."""
        slot = self._slot(number)
        slot.number = 0
        self._count()
        return float(slot.struck), int(slot.passed)

    def has_struck(self, number: int) -> bool:
        return bool(self._slot(number).struck)

    # ---- the gateway
    def pass_by(self, point: str) -> tuple[int, Deed] | None:
        """Counts a pass of the point. Returns the number and the deed of the trap that strikes now."""
        if not self._table.in_force:
            return None
        told, strikes = point.encode(), None
        for slot in self._slots():
            if slot.number and slot.point == told:
                slot.passed += 1
                slot.left -= 1
                if (slot.left == 0 or slot.deed == Deed.REFUSE) and strikes is None:
                    slot.struck = time.monotonic()
                    strikes = int(slot.number), Deed(slot.deed)
        return strikes

    def is_armed(self, number: int) -> bool:
        return any(slot.number == number for slot in self._slots())

    def refuses(self, point: str) -> bool:
        """Returns whether each pass of the point is refused now."""
        return any(slot.number and slot.deed == Deed.REFUSE and slot.point == point.encode() for slot in self._slots())

    def _slots(self) -> Iterator[Slot]:
        yield from self._table.slots

    def _slot(self, number: int) -> Slot:
        return next(slot for slot in self._slots() if slot.number == number)

    def _count(self) -> None:
        self._table.in_force = sum(slot.number != 0 for slot in self._slots())
