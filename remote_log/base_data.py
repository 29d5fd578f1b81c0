"""Base data: everything an engine holds at one point, cut into parts that are sent one by one.

What always holds: parts come in key order, the rows of one table after another, then what idempotency keys answered, so that
a retry is answered from the record at the filled site too; a part is bounded by entries, and by bytes of rows (one row more at
most; an outcome is small); there is always a first part, also of nothing. Source: protocol.md section 7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from storage.engine import RequestOutcome, Snapshot, StoredRow


@dataclass(slots=True)
class BasePart:
    rows: list[tuple[int, StoredRow]] = field(default_factory=list)
    row_bytes: int = 0
    outcomes: list[tuple[str, RequestOutcome]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        return len(self.rows) + len(self.outcomes)


async def base_parts(
    snapshot: Snapshot, tables: Sequence[int], *, entries_max: int, bytes_max: int
) -> AsyncGenerator[BasePart, None]:
    """The snapshot's rows of `tables` and its request outcomes."""
    part = BasePart()
    for table in tables:
        start: bytes | None = None
        while rows := await snapshot.scan(
            table, start, None, reverse=False, limit=entries_max - part.entries, bytes_max=bytes_max - part.row_bytes
        ):
            part.rows += [(table, row) for row in rows]
            part.row_bytes += sum(len(row.key) + len(row.value) for row in rows)
            start = rows[-1].key + b"\0"
            if part.entries >= entries_max or part.row_bytes >= bytes_max:
                yield part
                part = BasePart()
    after: str | None = None
    while outcomes := await snapshot.request_outcomes(after, limit=entries_max - part.entries):
        part.outcomes += outcomes
        after = outcomes[-1][0]
        if part.entries >= entries_max:
            yield part
            part = BasePart()
    yield part
