"""A site with a long past pays nothing for it: its work is counted in instructions of SQLite, not in time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

from bench.ui.filling import repeat, switchover
from switchover.operations.document import HistoryEntry
from switchover.operations.sql_journal import SqlJournal

SHORT, LONG = 300, 6_000  # operations
LISTED = 200
STEP = 10


class _Work:
    """`steps`: instructions of SQLite so far; `statements`: how many there were."""

    def __init__(self) -> None:
        self.steps = self.statements = 0

    def on_connect(self, connection: Any, record: Any) -> None:
        connection.set_progress_handler(self._count, STEP)

    def _count(self) -> int:
        self.steps += STEP
        return 0

    def on_execute(self, connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        self.statements += statement.startswith("SELECT")


@pytest.fixture
def work() -> Iterator[_Work]:
    counted = _Work()
    event.listen(Pool, "connect", counted.on_connect)
    event.listen(Engine, "before_cursor_execute", counted.on_execute)
    yield counted
    event.remove(Pool, "connect", counted.on_connect)
    event.remove(Engine, "before_cursor_execute", counted.on_execute)


async def _cost(path: Path, count: int, work: _Work) -> tuple[int, int, int]:
    """(instructions to list the newest, statements of that, instructions to create one more) with `count` journaled."""
    journal = SqlJournal(f"sqlite:///{path}")
    one = switchover("a")
    entry = HistoryEntry(one.created_ms, one.id, one.kind, one.to, one.actor, "started")
    await journal.create(one, entry)
    repeat(path, one.id, count - 1)
    before, statements = work.steps, work.statements
    newest = await journal.operations(LISTED)
    listing, asked = work.steps - before, work.statements - statements
    assert [found.id for found in newest] == [f"{one.id}-{number}" for number in range(count - 1, count - 1 - LISTED, -1)]
    assert newest[0].steps[1].name == one.steps[1].name
    assert len(newest[0].steps) == len(one.steps)
    before = work.steps
    await journal.create(replace(one, id="one-more"), replace(entry, operation="one-more"))
    creating = work.steps - before
    await journal.close()
    return listing, asked, creating


async def test_a_long_journal_costs_what_a_short_one_does(tmp_path: Path, work: _Work) -> None:
    """The newest are listed by two statements, and a new operation looks at dry runs alone."""
    short = await _cost(tmp_path / "short.db", SHORT, work)
    long = await _cost(tmp_path / "long.db", LONG, work)
    assert short[1] == long[1] == 2
    assert long[0] < 1.2 * short[0] + 1_000
    assert long[2] < 1.2 * short[2] + 1_000


async def test_a_journal_of_an_earlier_release_gets_the_index(tmp_path: Path, work: _Work) -> None:
    path = tmp_path / "old.db"
    await _cost(path, SHORT, work)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP INDEX operations_dry")
    journal = SqlJournal(f"sqlite:///{path}")
    assert len(await journal.operations(LISTED)) == LISTED
    await journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'operations_dry'").fetchone() == (1,)
