"""The own log in a change of the active: the part of it that a site has to read where no other log is looked at (a restart in
an asynchronous mode), and what it lacks, in one piece.

What always holds: the standby may be away for days, and the log that waits for it may be longer than the memory; what the
storage holds already is read only where the log has a hole, or ends too early.
Source: protocol.md section 5 (activation, step 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.log.frame import Frame
from storage.log.wal import Wal


async def frames_from(wal: Wal, seq: int) -> list[Frame]:
    """The frames of a settled log that end at `seq`, up to which the storage has everything, or above; all of them where a link
    is missing, or the log ends before `seq`: for what is behind a hole, and for what is wrong, the others matter."""
    leads = wal.is_unbroken and wal.last_seq >= seq
    return await wal.read_all(seq - 1 if leads else 0)


async def append_whole(wal: Wal, frames: Sequence[Frame], reach: Callable[[int], None]) -> None:
    """Appends all of them, durably. `reach` gets how many are. Raises SyncFailed, that of the first that failed: those behind
    it failed with it, and are no news."""
    appends = [wal.append(frame) for frame in frames]
    try:
        for number, synced in enumerate(appends, 1):
            await synced
            reach(number)
    except Exception:
        for each in appends:
            each.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
