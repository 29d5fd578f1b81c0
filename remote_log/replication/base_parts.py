"""Base data: everything an engine holds at one point, cut into parts that are sent one by one.

What always holds: parts come in key order, the rows of one table after another, then what idempotency keys answered, so that
a retry is answered from the record at the filled site too; a part is bounded by entries, and by bytes of rows (one row more at
most; an outcome is small); there is always a first part, also of nothing. How far a base has come is a place in that order, so
another snapshot can go on where one ended. Source: protocol.md section 7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import msgspec

from remote_log.replication.messages import BaseProgress
from storage.engine import RequestOutcome, Snapshot, StoredRow


@dataclass(slots=True)
class BasePart:
    rows: list[tuple[int, StoredRow]] = field(default_factory=list)
    row_bytes: int = 0
    outcomes: list[tuple[str, RequestOutcome]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        return len(self.rows) + len(self.outcomes)

    def moves(self, progress: BaseProgress) -> BaseProgress:
        """`progress` once this part is in, too."""
        table, key = (self.rows[-1][0], self.rows[-1][1].key) if self.rows else (progress.table, progress.key)
        request = self.outcomes[-1][0] if self.outcomes else progress.request
        return msgspec.structs.replace(progress, part=progress.part + 1, table=table, key=key, request=request)


async def base_parts(
    snapshot: Snapshot, tables: Sequence[int], progress: BaseProgress, *, entries_max: int, bytes_max: int
) -> AsyncGenerator[BasePart, None]:
    """The snapshot's rows of `tables`, ascending, and its request outcomes, as far as they lie behind `progress`."""
    part = BasePart()
    for table in tables if progress.request is None else ():
        if table < progress.table:
            continue
        start = progress.key + b"\0" if table == progress.table else None
        while rows := await snapshot.scan(
            table, start, None, reverse=False, limit=entries_max - part.entries, bytes_max=bytes_max - part.row_bytes
        ):
            part.rows += [(table, row) for row in rows]
            part.row_bytes += sum(len(row.key) + len(row.value) for row in rows)
            start = rows[-1].key + b"\0"
            if part.entries >= entries_max or part.row_bytes >= bytes_max:
                yield part
                part = BasePart()
    after = progress.request
    while outcomes := await snapshot.request_outcomes(after, limit=entries_max - part.entries):
        part.outcomes += outcomes
        after = outcomes[-1][0]
        if part.entries >= entries_max:
            yield part
            part = BasePart()
    yield part
