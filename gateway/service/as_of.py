"""Reads of the past: what an `as_of` read answers, or that this site cannot answer it.

What always holds: no answer where versions that it would need were purged, or never came to this site; judged after the read,
since what was kept when it began may have been purged while it ran. Source: product.md 3 (history_s), protocol.md 7.
"""

from __future__ import annotations

from datetime import UTC, datetime

from storage.clock import Clock
from storage.engine import StorageEngine, StoredRow
from storage.log.frame import COUNTER_BITS
from storage.rows.schema import TableSchema
from twinlog.errors import HistoryNotHeld


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
