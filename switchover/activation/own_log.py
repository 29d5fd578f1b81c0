"""The part of the own log that a site has to read where no other log is looked at: a restart in an asynchronous mode.

What always holds: the standby may be away for days, and the log that waits for it may be longer than the memory; what the
storage holds already is read only where the log has a hole, or ends too early.
Source: protocol.md section 5 (activation, step 3).
"""

from __future__ import annotations

from storage.log.frame import Frame
from storage.log.wal import Wal


async def frames_from(wal: Wal, seq: int) -> list[Frame]:
    """The frames of a settled log that end at `seq`, up to which the storage has everything, or above; all of them where a link
    is missing, or the log ends before `seq`: for what is behind a hole, and for what is wrong, the others matter."""
    leads = wal.is_unbroken and wal.last_seq >= seq
    return await wal.read_all(seq - 1 if leads else 0)
