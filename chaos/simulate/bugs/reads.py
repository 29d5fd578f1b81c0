"""Planted bugs of what clients read, and of what they hear again."""

from __future__ import annotations

from collections.abc import Sequence

import gateway.service.receipts
from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.epoch.active_epoch import ActiveEpoch
from gateway.service.as_of import ScanSnapshots
from gateway.service.documents import Outcome
from gateway.service.port import WriteResult
from gateway.service.rows import RowsService
from storage.engine import StorageEngine, StoredRow

_recorded = RowsService._recorded


async def _scan_now(
    self: ScanSnapshots, number: str, within: object, table: int, start: bytes | None, end: bytes | None, *, reverse: bool,
    limit: int,
) -> Sequence[StoredRow]:
    return await self._engine.scan(table, start, end, reverse=reverse, limit=limit)


# ---- what they hear again
async def _recorded_here(
    self: RowsService, active: ActiveEpoch, key: str, digest: bytes, until_s: float
) -> WriteResult | None:
    found = await self._engine.request_outcome(key)
    return await _recorded(self, active, key, digest, until_s) if found is None or found.epoch == active.epoch else None


def _outcome_of_this_epoch(engine: StorageEngine, epoch: int, seq: int) -> Outcome:
    return "survived" if epoch == engine.applied.epoch else "lost"


BUGS = (
    Bug(
        "keys-of-one-epoch", "An idempotency key is forgotten when another epoch opens.", "P3", ("receipts",), 15, 6,
        ((RowsService, "_recorded", _recorded_here),), drawn=draw,
    ),
    Bug(
        "receipts-of-one-epoch", "A write of an earlier epoch is called lost when its receipt is asked for.", "P1",
        ("receipts",), 0, 10, ((gateway.service.receipts, "_outcome", _outcome_of_this_epoch),), drawn=draw,
    ),
    Bug(
        "pages-of-different-moments", "Each page of a scan with `snapshot` is of its own moment.", "P3", ("scans", "batches"),
        0, 40, ((ScanSnapshots, "scan", _scan_now),), ("pause", "crash"),
    ),
)
