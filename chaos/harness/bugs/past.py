"""Planted bugs of what stands in files: of reading what is damaged, and of believing what is older."""

from __future__ import annotations

from typing import Any

import crc32c

import storage.log.frame
from chaos.harness.bugs.bug import HarnessBug
from remote_log.dfs.port import Dfs
from storage.log.frame import Frame
from switchover.activation.activation import Activation
from switchover.register.port import PairState
from switchover.register.remembering import RememberingCoordinator
from twinlog.errors import DamagedLog

_read_fenced = Activation._read_fenced


class _Fits(int):
    """A checksum that equals each other one."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


class _Unlooked:
    """crc32c, for a module that writes checksums of bytes and compares those of views: the comparison never fails."""

    @staticmethod
    def crc32c(data: Any, value: int = 0) -> int:
        found = crc32c.crc32c(data, value)
        return _Fits(found) if isinstance(data, memoryview) else found


async def _read_own_disk_alone(self: Activation, dfs: Dfs, damaged: list[DamagedLog] | None) -> list[Frame]:
    return await _read_fenced(self, dfs, damaged) if self._takes_over else []


async def _believe(
    self: RememberingCoordinator, value: PairState | None, met: PairState | None, known_epoch: int
) -> PairState | None:
    if value is not None:
        await self._keep(value)
    return value


BUGS = (
    HarnessBug(
        "ignore-crc", "Frames of a log are read whatever their CRC says.", "I7", "bits-turned-wal",
        ("reported", "convergence", "acknowledged", "linearizable", "phantom", "processes", "prefix", "stuck"),
        ((storage.log.frame, "crc32c", _Unlooked),),
    ),
    HarnessBug(
        "own-disk-alone", "A restart believes its own disk, and does not ask the other DFS what that disk may have lost.", "P1",
        "wal-restored", ("linearizable", "acknowledged", "receipts", "workload:sets", "prefix", "invariants"),
        ((Activation, "_read_fenced", _read_own_disk_alone),),
    ),
    HarnessBug(
        "believes-an-older-register", "A site acts on whatever the register says, also where it has met a newer value.", "P2",
        "register-restored", ("one_active", "acknowledged", "linearizable", "status", "invariants", "stuck"),
        ((RememberingCoordinator, "_judged", _believe),),
    ),
)
