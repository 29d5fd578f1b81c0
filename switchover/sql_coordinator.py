"""The coordinator in a database: SQLite for a pair on one machine, PostgreSQL at a third site by URL.

What always holds: a change is one transaction whose first statement is `UPDATE ... WHERE state_id = :expected` (or the
exclusive INSERT of the first value), so that of any number of processes exactly one wins; every change that is not a mere
lease renewal leaves a row in `history`, which is only ever added to. Blocking calls run on a thread of their own.
Source: protocol.md section 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, Text, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from storage.clock import Clock
from storage.errors import Unavailable
from storage.threads import Worker
from switchover.coordinator import PairState, superseded
from switchover.register import LEASE_RENEWED
from switchover.sql import open_engine

T = TypeVar("T")

_metadata = MetaData()
_pairs = Table(
    "pairs",
    _metadata,
    Column("pair", String(200), primary_key=True),
    Column("state_id", BigInteger, nullable=False),
    Column("value", Text, nullable=False),  # JSON of PairState
)
_history = Table(
    "history",
    _metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("pair", String(200), nullable=False),
    Column("state_id", BigInteger, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("value", Text, nullable=False),
)


class HistoryRow(msgspec.Struct, frozen=True):
    """One change of the register: when (by the clock of the site that made it), why, and the value since."""

    wall_ms: int
    reason: str
    value: PairState


class SqlCoordinator:
    """The coordinator of one pair. Every call ends by `deadline_s`, then with Unavailable."""

    def __init__(self, url: str, pair: str, clock: Clock, deadline_s: float = 3.0) -> None:
        self._engine = open_engine(url, busy_timeout_s=deadline_s)
        self._pair, self._clock, self._deadline_s = pair, clock, deadline_s
        self._worker = Worker("coordinator")
        self._has_tables = False

    async def read(self) -> PairState | None:
        return await self._run(self._read)

    async def compare_and_set(self, expected_state_id: int, new: PairState) -> PairState:
        value = replace(new, state_id=expected_state_id + 1)
        row = {
            "pair": self._pair,
            "state_id": value.state_id,
            "value": msgspec.json.encode(value).decode(),
        }
        entry = None if new.reason == LEASE_RENEWED else row | {"wall_ms": self._clock.wall_ms(), "reason": new.reason}
        try:
            won = await self._run(lambda connection: self._replace(connection, expected_state_id, row, entry))
        except _AlreadyThere:
            won = False
        if not won:
            raise superseded(expected_state_id, await self.read())
        return value

    async def history(self, limit: int = 100) -> list[HistoryRow]:
        """The last changes, newest first, lease renewals left out."""
        return await self._run(lambda connection: self._read_history(connection, limit))

    async def close(self) -> None:
        """Ends the connection and the thread; a database that hangs is left to itself after the deadline."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._worker.submit(self._engine.dispose)
                await self._worker.close()
        except TimeoutError:
            return

    async def _run(self, call: Callable[[Connection], T]) -> T:
        """`call` in one transaction on the thread. A call that its caller gave up in the queue is not made any more."""
        given_up = False

        def blocking() -> T:
            if given_up:
                raise self._silent("the caller gave up")
            return self._transact(call)

        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._worker.submit(blocking)
        except TimeoutError:
            raise self._silent(f"no answer in {self._deadline_s} s") from None
        finally:
            given_up = True

    def _transact(self, call: Callable[[Connection], T]) -> T:
        try:
            with self._engine.begin() as connection:
                if not self._has_tables:
                    for table in _metadata.sorted_tables:
                        connection.execute(CreateTable(table, if_not_exists=True))
                result = call(connection)
            self._has_tables = True
            return result
        except IntegrityError as error:
            raise _AlreadyThere from error
        except SQLAlchemyError as error:
            raise self._silent(str(error)) from error

    def _silent(self, why: str) -> Unavailable:
        url = self._engine.url.render_as_string(hide_password=True)
        return Unavailable(
            f"the coordinator at {url} does not answer: {why}; check that the database is up and can be reached from here",
            waiting_for="coordinator",
        )

    def _read(self, connection: Connection) -> PairState | None:
        value = connection.execute(select(_pairs.c.value).where(_pairs.c.pair == self._pair)).scalar()
        return None if value is None else msgspec.json.decode(value, type=PairState)

    def _replace(
        self, connection: Connection, expected_state_id: int, row: dict[str, Any], entry: dict[str, Any] | None
    ) -> bool:
        if expected_state_id == 0:
            connection.execute(insert(_pairs).values(row))
        else:
            same = (_pairs.c.pair == self._pair) & (_pairs.c.state_id == expected_state_id)
            if connection.execute(update(_pairs).where(same).values(row)).rowcount != 1:
                return False
        if entry is not None:
            connection.execute(insert(_history).values(entry))
        return True

    def _read_history(self, connection: Connection, limit: int) -> list[HistoryRow]:
        newest = select(_history).where(_history.c.pair == self._pair).order_by(_history.c.id.desc()).limit(limit)
        return [
            HistoryRow(row.wall_ms, row.reason, msgspec.json.decode(row.value, type=PairState))
            for row in connection.execute(newest)
        ]


class _AlreadyThere(Exception):
    """The first value was to be inserted, and there is one."""
