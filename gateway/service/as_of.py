"""Reads of the past: what an `as_of` read answers, or that this site cannot answer it; and the snapshots of scans.

What always holds: no answer where versions that it would need were purged, or never came to this site; judged after the read,
since what was kept when it began may have been purged while it ran; a snapshot that scans share is let go when nobody has used
it for a while, when it is old, or with the epoch in which it was taken. Source: product.md 3 (history_s), protocol.md 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from storage.clock import Clock
from storage.engine import Snapshot, StorageEngine, StoredRow
from storage.log.frame import COUNTER_BITS
from storage.rows.schema import TableSchema
from twinlog.errors import EngineFailed, HistoryNotHeld, Overloaded

SNAPSHOTS_MAX = 8
SNAPSHOT_IDLE_S = 60.0
SNAPSHOT_KEPT_S = 5.0  # one that was idle for longer gives way to a new one: whoever goes through pages asks sooner
SNAPSHOT_LIFE_S = 600.0


async def read_row(engine: StorageEngine, clock: Clock, table: TableSchema, key: bytes, as_of: int | None) -> StoredRow | None:
    """The row as it is (`as_of` None), or as it was at version `as_of`. Raises HistoryNotHeld."""
    if as_of is None:
        return await engine.get(table.id, key)
    row = await engine.get_as_of(table.id, key, as_of)
    check_history(engine, clock, table, as_of)
    return row


def check_history(engine: StorageEngine, clock: Clock, table: TableSchema, as_of: int | None) -> None:
    """After a read of `table` as of `as_of` (None: of now): raises HistoryNotHeld when it may lack something."""
    if as_of is None:
        return
    held_from = engine.applied.history_from(table.id, clock.wall_ms())
    if as_of >= held_from:
        return
    if table.history_s == 0:
        why = "none is kept; with history_s set it is kept from then on"
    else:
        why = f"it is kept for {table.history_s} s, and is not copied when a site is filled or repaired"
    when = datetime.fromtimestamp((held_from >> COUNTER_BITS) / 1000, UTC).isoformat(timespec="milliseconds")
    raise HistoryNotHeld(
        f"history of table {table.name!r} before {when} (version {held_from}) is not held at this site: {why}",
        held_from=held_from,
    )


class ScanSnapshots:
    """Snapshots of one site's storage that the pages of scans share, each by an id which another process never gives.

    At most SNAPSHOTS_MAX, since each keeps files and memory of the database; each for SNAPSHOT_IDLE_S behind its last use, and
    for SNAPSHOT_LIFE_S altogether. Where all are taken, the one that was idle for longest gives way to a new one: scans that
    nobody ends, each with the first rows of many, bar nobody for longer than SNAPSHOT_KEPT_S. `within`: the epoch's lease, or
    None for reads that may be stale; another one ends it.
    """

    def __init__(self, engine: StorageEngine, new_id: Callable[[], str]) -> None:
        self._engine, self._new_id = engine, new_id
        self._held: dict[str, _HeldSnapshot] = {}
        self._opening = 0

    async def open(self, within: object) -> str:
        """Returns the id of a new snapshot, of this moment. Raises Overloaded."""
        if len(self._held) + self._opening >= SNAPSHOTS_MAX and not self._gives_way():
            raise Overloaded(
                f"{SNAPSHOTS_MAX} scans with snapshot=true are under way at this site: try again, or scan without",
                retry_after_s=1,
            )
        self._opening += 1
        try:
            snapshot = await self._engine.snapshot()
        finally:
            self._opening -= 1
        number = self._new_id()
        held = self._held[number] = _HeldSnapshot(snapshot, within, asyncio.get_running_loop().time() + SNAPSHOT_LIFE_S)
        self._wait_idle(number, held)
        return number

    def _gives_way(self) -> bool:
        """Lets the snapshot go that was idle for longest, if that is long enough."""
        idle = {number: held.idle_since for number, held in self._held.items() if not held.uses}
        if not idle:
            return False
        longest = min(idle, key=lambda number: idle[number])
        if asyncio.get_running_loop().time() - idle[longest] < SNAPSHOT_KEPT_S:
            return False
        self.release(longest)
        return True

    async def scan(
        self, number: str, within: object, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int
    ) -> Sequence[StoredRow]:
        """Raises HistoryNotHeld when the snapshot is gone."""
        held = self._held.get(number)
        if held is None or held.within is not within:
            raise _gone()
        held.uses += 1
        try:
            return await held.snapshot.scan(table, start, end, reverse=reverse, limit=limit)
        except EngineFailed as error:  # the storage was opened anew, or its schema changed
            self.release(number)
            raise _gone() from error
        finally:
            held.uses -= 1
            if self._held.get(number) is held:
                self._wait_idle(number, held)

    def release(self, number: str) -> None:
        """Lets a snapshot go, if it is there."""
        held = self._held.pop(number, None)
        if held is not None:
            if held.timer is not None:
                held.timer.cancel()
            held.snapshot.close()

    def _wait_idle(self, number: str, held: _HeldSnapshot) -> None:
        loop = asyncio.get_running_loop()
        held.idle_since = loop.time()
        if held.timer is not None:
            held.timer.cancel()
        held.timer = loop.call_at(min(loop.time() + SNAPSHOT_IDLE_S, held.ends_at), self._idle, number, held)

    def _idle(self, number: str, held: _HeldSnapshot) -> None:
        if held.uses:
            held.timer = None  # whoever uses it waits anew behind that
        else:
            self.release(number)


class _HeldSnapshot:
    def __init__(self, snapshot: Snapshot, within: object, ends_at: float) -> None:
        self.snapshot, self.within, self.ends_at = snapshot, within, ends_at
        self.uses = 0
        self.idle_since = 0.0  # by the event loop; as long as it is in use, of before
        self.timer: asyncio.TimerHandle | None = None


def _gone() -> HistoryNotHeld:
    return HistoryNotHeld(
        f"the snapshot of this scan is no longer held: this site keeps one for {SNAPSHOT_IDLE_S:g} s behind its last page, for "
        f"{SNAPSHOT_LIFE_S / 60:g} minutes, and while the site's epoch lasts; begin the scan anew, without page_token"
    )
