"""How this room opens its databases: SQLite files that lose nothing which was committed, or any other by its URL.

What always holds: a committed transaction is on the disk (WAL with synchronous=FULL), a busy file is waited for, not failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import QueuePool


def open_engine(url: str, busy_timeout_s: float) -> Engine:
    """An engine with one connection, made on first use. `busy_timeout_s`: how long SQLite waits for another writer."""
    engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_settings(busy_timeout_s))
    return engine


def _sqlite_settings(busy_timeout_s: float) -> Callable[[Any, Any], None]:
    def apply(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={round(busy_timeout_s * 1000)}")  # first: the next one may have to wait
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return apply
