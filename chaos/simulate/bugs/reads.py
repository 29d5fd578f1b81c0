"""Planted bugs of what clients read."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulate.bugs.bug import Bug
from gateway.service.as_of import ScanSnapshots
from storage.engine import StoredRow


async def _scan_now(
    self: ScanSnapshots, number: str, within: object, table: int, start: bytes | None, end: bytes | None, *, reverse: bool,
    limit: int,
) -> Sequence[StoredRow]:
    return await self._engine.scan(table, start, end, reverse=reverse, limit=limit)


BUGS = (
    Bug(
        "pages-of-different-moments", "Each page of a scan with `snapshot` is of its own moment.", "P3", ("scans", "batches"),
        0, 40, ((ScanSnapshots, "scan", _scan_now),), ("pause", "crash"),
    ),
)
