"""The coordinator in a database: SQLite for a pair on one machine, PostgreSQL at a third site by URL.

What always holds: a change is one transaction whose first statement is `UPDATE ... WHERE state_id = :expected`, which returns
the value to compare (or the exclusive INSERT of the first value), so that of any number of processes exactly one wins, and on
the very value that it had read; every change that is not a mere
lease renewal leaves a row in `history`, which is only ever added to.
Source: protocol.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, Text, insert, select, update

from storage.clock import Clock
from storage.settings import RESTART, Secret
from switchover.register.port import PairState, next_state_id, superseded
from switchover.register.single import OneRegister
from switchover.register.transitions import LEASE_RENEWED
from switchover.register.went_back import same_facts
from switchover.sql_database import AlreadyThere, Database
from twinlog.decoding import decoded
from twinlog.errors import Refused

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    url: Annotated[str, Secret(), RESTART] = field(repr=False)  # an SQLAlchemy address


class SqlCoordinator(OneRegister):
    """The coordinator of one pair. Every call ends by `deadline_s`, then with Unavailable."""

    def __init__(self, url: str, pair: str, clock: Clock, deadline_s: float = 3.0) -> None:
        self._database = Database(url, "coordinator", _metadata, deadline_s)
        self._pair, self._clock = pair, clock

    async def read(self) -> PairState | None:
        return await self._database.run(self._read)

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        value = replace(new, state_id=next_state_id(expected))
        row = {
            "pair": self._pair,
            "state_id": value.state_id,
            "value": msgspec.json.encode(value).decode(),
        }
        entry = None if new.reason == LEASE_RENEWED else row | {"wall_ms": self._clock.wall_ms(), "reason": new.reason}
        try:
            won = await self._database.run(lambda connection: self._replace(connection, expected, row, entry))
        except AlreadyThere:
            won = False
        if not won:
            raise superseded(expected, await self.read())
        return value

    async def held(self, value: PairState) -> bool:
        found = await self._database.run(lambda connection: self._read_history(connection, 1, value.state_id))
        return bool(found) and same_facts(found[0].value, value)

    async def history(self, limit: int = 100) -> list[HistoryRow]:
        """The last changes, newest first, lease renewals left out."""
        return await self._database.run(lambda connection: self._read_history(connection, limit))

    async def close(self) -> None:
        await self._database.close()

    def _read(self, connection: Connection) -> PairState | None:
        value = connection.execute(select(_pairs.c.value).where(_pairs.c.pair == self._pair)).scalar()
        return None if value is None else _decoded(value)

    def _replace(
        self, connection: Connection, expected: PairState | None, row: dict[str, Any], entry: dict[str, Any] | None
    ) -> bool:
        if expected is None:
            connection.execute(insert(_pairs).values(row))
        else:
            same = (_pairs.c.pair == self._pair) & (_pairs.c.state_id == expected.state_id)
            locked = update(_pairs).where(same).values(state_id=expected.state_id).returning(_pairs.c.value)
            found = connection.execute(locked).scalar()
            if found is None or _decoded(found) != expected:
                return False
            connection.execute(update(_pairs).where(same).values(row))
        if entry is not None:
            connection.execute(insert(_history).values(entry))
        return True

    def _read_history(self, connection: Connection, limit: int, upto_state_id: int | None = None) -> list[HistoryRow]:
        newest = select(_history).where(_history.c.pair == self._pair).order_by(_history.c.id.desc()).limit(limit)
        if upto_state_id is not None:
            newest = newest.where(_history.c.state_id <= upto_state_id)
        return [
            HistoryRow(row.wall_ms, row.reason, _decoded(row.value))
            for row in connection.execute(newest)
        ]


_decode = msgspec.json.Decoder(PairState).decode


def _decoded(value: str) -> PairState:
    return decoded(_decode, value, lambda what: Refused(
        f"the coordinator's value of this pair cannot be read: {what}; its table of changes has the values before"
    ))
