"""Fills a pair that runs: many tables by its API, and many operations in the journals of both sites.

What always holds: a table is made as anybody makes one; the journal's own code writes one operation, a switchover that
succeeded with all its steps, and SQL repeats it over ten years. The list of events of an operation is not repeated, as no view
reads it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.pair import Pair
from switchover.operations.document import HistoryEntry, Operation, OperationResult, StepRecord
from switchover.operations.sql_journal import JournalSettings, SqlJournal

STEPS = (
    "preflight", "drain", "catch_up", "step_down", "begin", "claim", "fence", "replay", "wait_lease", "open", "cleanup",
    "verify",
)
_RETURN = 3  # from this step on there is no way back
_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
_FIRST_MS = 1_450_000_000_000
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
_REPEATED = {"id": "id || '-' || n", "operation_id": "operation_id || '-' || n"} | {
    name: f"{name} + n * :apart_ms" for name in ("created_ms", "finished_ms", "started_ms")
}
TABLE: dict[str, Any] = {
    "columns": [
        {"name": "id", "type": "int64"}, {"name": "part", "type": "string"},
        *({"name": f"value_{number}", "type": "float64"} for number in range(8)),
    ],
    "primary_key": ["id", "part"],
}


def table_name(number: int) -> str:
    return f"orders_{number:05d}"


def make_tables(pair: Pair, count: int, note: Callable[[str], None]) -> None:
    for number in range(count):
        pair.create_table(table_name(number), TABLE)
        if (number + 1) % 1_000 == 0:
            note(f"{number + 1:,} tables")


def make_operations(pair: Pair, count: int, note: Callable[[str], None]) -> None:
    """`count` in the journal of each site."""
    for site in pair.pids:
        (path,) = (pair.folder / site).rglob("journal.db")
        asyncio.run(_one(path.parent, site))
        repeat(path, f"bench-{site}", count - 1)
        note(f"{count:,} operations in the journal of site {site}")


async def _one(data_dir: Path, site: str) -> None:
    journal = SqlJournal(JournalSettings().address(data_dir))
    one = switchover(site)
    try:
        await journal.create(one, HistoryEntry(one.created_ms, one.id, one.kind, one.to, one.actor, "started"))
    finally:
        await journal.close()


def switchover(site: str) -> Operation:
    """One that took 1.2 s."""
    steps = tuple(
        StepRecord(name, f"what {name} does, in a sentence of usual length", place < _RETURN, "done", _FIRST_MS + 100 * place,
                   _FIRST_MS + 100 * place + 90, {"epoch": 3, "mode": "sync"} if name == "open" else {"count": place})
        for place, name in enumerate(STEPS)
    )
    took_ms = 100 * len(STEPS)
    return Operation(
        f"bench-{site}", "switchover", site, {"reason": "a drill of the month"}, "anna (10.0.0.1)", _FIRST_MS, steps,
        state="succeeded", finished_ms=_FIRST_MS + took_ms, result=OperationResult(took_ms, dict.fromkeys(STEPS, 90)),
    )


def repeat(path: Path, operation_id: str, count: int) -> None:
    """Adds so many copies of an operation and its steps to a journal in SQLite, evenly over ten years."""
    with closing(sqlite3.connect(path, timeout=60.0)) as connection, connection:
        for table, key in (("operations", "id"), ("steps", "operation_id")):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "number"]
            names = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join(_REPEATED.get(name, f'"{name}"') for name in columns)
            connection.execute(
                f"INSERT INTO {table} ({names}) {_NUMBERS} SELECT {values} FROM {table}, numbers WHERE {key} = :id ORDER BY n",
                {"count": count, "apart_ms": _TEN_YEARS_MS // max(1, count), "id": operation_id},
            )
