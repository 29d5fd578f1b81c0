"""A read of the past costs the same however many versions its row has had: its work is counted in instructions of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from tests.storage.engines.engine_rig import Log, T, put_table, upsert, value

STEP, FEW, MANY = 10, 10, 1000


async def _cost(path: Path, versions: int) -> int:
    """Returns the instructions for the first version of a row that had so many later."""
    steps = [0]

    def count() -> int:
        steps[0] += STEP
        return 0

    def on_connect(connection: Any, record: Any) -> None:
        connection.set_progress_handler(count, STEP)

    event.listen(Pool, "connect", on_connect)
    try:
        log, engine = Log(), await SqlEngine.open(SqlSettings(f"sqlite:///{path}", "pair", "a"))
        await engine.apply([log.frame(put_table(history_s=3600))])
        first = log.frame(upsert(b"k", value(c1=0)))
        await engine.apply([first, *(log.frame(upsert(b"k", value(c1=version))) for version in range(1, versions))])
        before = steps[0]
        row = await engine.get_as_of(T, b"k", first.timestamp)
        taken = steps[0] - before
        assert row is not None
        assert row.value == value(c1=0)
        await engine.close()
    finally:
        event.remove(Pool, "connect", on_connect)
    return taken


async def test_later_versions_cost_a_read_of_the_past_nothing(tmp_path: Path) -> None:
    few, many = [await _cost(tmp_path / f"{versions}.db", versions) for versions in (FEW, MANY)]
    assert many <= few + 5 * STEP
