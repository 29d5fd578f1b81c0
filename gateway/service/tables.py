"""Tables: create, alter, drop, restore, as records of the log, one change at a time.

What always holds: a change is decided against applied schemas while no other change runs, tried at both sites' engines first
(`try_change`), and answered after it is committed and applied like any write; a request decoded with an older schema is
refused, never misread; the rows of a dropped table stay under its id until the active logs that their time is over; an id is
given to one table only, for ever, so that no frame, shipped or quarantined, can reach a table that was made after its own was
dropped.
Source: protocol.md section 3 (DDL), product.md 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.epoch.pending import Pending
from gateway.service.catalog import Catalog
from gateway.service.conditions import check_same_request
from gateway.service.port import KeptTable
from gateway.service.serving import Serving
from storage.clock import Clock
from storage.engine import StorageEngine
from storage.log.record import Record, RecordKind, RequestMark, SchemaChange
from storage.rows.schema import (
    TableSchema,
    alter,
    dropped,
    encode_schema,
    name_before_drop,
    parse_table,
    restored,
    same_table,
)
from storage.settings import RESTART, Within
from twinlog.errors import Conflict, InvalidInput, Unavailable

DDL_BYTES = 1024
TABLES_PER_EPOCH_BITS = 20
DROP_KEPT_S_MAX = 30 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """`drop_kept_s`: how long a dropped table can be restored, in seconds; its rows take room until then. 0: not at all."""

    drop_kept_s: Annotated[float, Within(0, DROP_KEPT_S_MAX), RESTART] = 86_400.0


TryChange = Callable[[str, int, bytes | None], Awaitable[None]]  # name, id, schema (None: drop); raises InvalidInput


class TablesService:
    def __init__(
        self, serving: Serving, catalog: Catalog, *, engine: StorageEngine, try_change: TryChange, clock: Clock,
        deadline_s: float, settings: TableSettings,
    ) -> None:
        self._settings = settings
        self._serving, self._catalog, self._engine, self._try_change = serving, catalog, engine, try_change
        self._clock, self._deadline_s = clock, deadline_s
        self._lock = asyncio.Lock()
        self._settled = asyncio.Event()  # the change before this one has its fate, even if its client gave up
        self._settled.set()
        self._last_id = 0  # given to a table in the open epoch, or before

    def get(self, name: str) -> TableSchema:
        """Returns the table as it is now; a standby does not know of one that was just made. Raises NotFound, NotActive."""
        serving = self._serving
        if serving.reading is None and not (serving.reads_stale and self._catalog.find(name) is not None):
            serving.for_reads()
        return self._catalog.get(name)

    def all(self) -> list[TableSchema]:
        if self._serving.reading is None and not self._serving.reads_stale:
            self._serving.for_reads()
        return self._catalog.all()

    def dropped(self) -> list[KeptTable]:
        if self._serving.reading is None and not self._serving.reads_stale:
            self._serving.for_reads()
        kept_ms = round(self._settings.drop_kept_s * 1000)
        return [KeptTable(table, (table.dropped_ms or 0) + kept_ms) for table in self._catalog.dropped]

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[ActiveEpoch]:
        """The only change under way, with the fate of the one before known, at a site that takes writes."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._deadline_s):
                    await self._settled.wait()
            except TimeoutError as error:
                raise Unavailable(
                    "the change of a table before this one has an open fate: nothing was logged, try again", retry_after_s=1
                ) from error
            yield self._serving.for_writes()

    async def _was_made(self, active: ActiveEpoch, mark: RequestMark | None) -> bool:
        """Says whether this very change was made under its key already, under a valid lease only."""
        found = None if mark is None else await self._engine.request_outcome(mark.key)
        if mark is None or found is None:
            return False
        check_same_request(mark.key, found.digest, mark.digest)
        self._check_lease(active)
        return True

    def _check_lease(self, active: ActiveEpoch) -> None:
        if not active.lease.valid_at(self._clock.monotonic_s()):
            raise Unavailable("this site cannot prove that it is still the active: try again", retry_after_s=1)

    async def create(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        """The table, as it is now, and whether this request made it, also if it did so before under its key."""
        async with self._turn() as active:
            wanted = _available(parse_table(body, self._next_id(active.epoch)))
            existing = self._catalog.find(wanted.name)
            if await self._was_made(active, mark):
                if existing is None:
                    raise Conflict(f"table {wanted.name!r} was made by this request, and dropped since", table=wanted.name)
                return existing, True
            if existing is not None:
                self._check_lease(active)
                if same_table(existing, wanted):
                    return existing, False
                raise Conflict(
                    f"table {wanted.name!r} exists with another shape: alter it, or use another name", table=wanted.name
                )
            self._last_id = wanted.id
            await self._log(active, "put", wanted, mark)
            return self._catalog.get(wanted.name), True

    def _next_id(self, epoch: int) -> int:
        """Never given before, by either site: an epoch is one site's and ends with its process, and this counts within it."""
        number = max(self._last_id, epoch << TABLES_PER_EPOCH_BITS) + 1
        if number >> TABLES_PER_EPOCH_BITS != epoch:
            raise Unavailable(f"epoch {epoch} has made all the tables that it can: restart the site", retry_after_s=1)
        return number

    async def alter(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema:
        async with self._turn() as active:
            if await self._was_made(active, mark):
                return self._catalog.get(name)
            changed = _available(alter(self._catalog.get(name), body))
            await self._log(active, "put", changed, mark)
            return self._catalog.get(changed.name)

    async def drop(self, name: str, mark: RequestMark | None = None, confirm: str | None = None) -> None:
        """A table with rows goes only if `confirm` is its name: a key that a client folded away must not drop a table."""
        async with self._turn() as active:
            if not await self._was_made(active, mark):
                table = self._catalog.get(name)
                await check_confirmed(self._engine, table, confirm)
                if self._settings.drop_kept_s > 0:
                    await self._log(active, "put", dropped(table, self._clock.wall_ms()), mark)
                else:
                    await self._log(active, "drop", table, mark)

    async def restore(self, name: str, mark: RequestMark | None = None) -> TableSchema:
        """The last table of this name that was dropped is back, with all its rows. Raises NotFound, Conflict."""
        async with self._turn() as active:
            if await self._was_made(active, mark):
                return self._catalog.get(name_before_drop(name))
            table = restored(self._catalog.find_dropped(name))
            if self._catalog.find(table.name) is not None:
                raise Conflict(
                    f"there is a table {table.name!r} again: drop that one first, which is kept as well, or leave the old one",
                    table=table.name,
                )
            await self._log(active, "put", table, mark)
            return self._catalog.get(table.name)

    async def purge_dropped(self) -> None:
        """At the active: dropped tables go for good once they were kept for long enough. The other site hears it by the log.

        Raises InvalidInput for the last one that a database refuses to drop: the others go all the same.
        """
        until_ms = self._clock.wall_ms() - self._settings.drop_kept_s * 1000
        refused: dict[int, InvalidInput] = {}
        while self._serving.writing is not None:
            async with self._turn() as active:
                kept = [table for table in self._catalog.dropped if table.id not in refused]
                over = [table for table in kept if (table.dropped_ms or 0) <= until_ms]
                if not over:
                    break
                try:
                    await self._log(active, "drop", over[-1], None)
                except InvalidInput as error:
                    refused[over[-1].id] = error
        if refused:
            raise refused.popitem()[1]

    async def _log(self, active: ActiveEpoch, kind: str, table: TableSchema, mark: RequestMark | None) -> None:
        schema = encode_schema(table) if kind == "put" else b""
        await self._try_change(table.name, table.id, schema or None)
        change = SchemaChange(kind, table.id, schema, table.history_s)
        request = b"" if mark is None else msgspec.msgpack.encode(mark)
        record = Record(RecordKind.DDL, table.id, value=msgspec.msgpack.encode(change), request=request)
        pending = Pending([record], DDL_BYTES, self._clock.monotonic_s() + self._deadline_s, self._change_settled)
        self._settled.clear()
        if kind == "drop" or table.dropped_ms is not None:
            self._catalog.drop_begins(table.id)
        active.commit.submit(pending)
        await pending.answer

    def _change_settled(self) -> None:
        self._catalog.drop_ended()
        self._settled.set()


async def check_confirmed(engine: StorageEngine, table: TableSchema, confirm: str | None) -> None:
    """Raises Conflict when `table` holds rows and nothing confirms the drop, InvalidInput when `confirm` names another one."""
    if confirm == table.name:
        return
    if confirm is not None:
        raise InvalidInput(
            f"confirm is {confirm[:60]!r}, but the table is {table.name!r}: nothing was dropped", table=table.name
        )
    if await engine.scan(table.id, None, None, reverse=False, limit=1):
        raise Conflict(
            f"table {table.name!r} holds rows: nothing was dropped; to drop it with all of them, send the request again with "
            f"?confirm={table.name} (to delete one row, name its key: /v1/tables/{table.name}/rows/KEY)",
            table=table.name, confirm=table.name,
        )


def _available(table: TableSchema) -> TableSchema:
    """Raises InvalidInput for a replication that this release does not do (docs/decisions: one record format)."""
    if table.replication != "sync":
        raise InvalidInput(
            f"replication {table.replication!r} is not available in this release: tables are replicated 'sync'",
            replication=table.replication, allowed=["sync"],
        )
    return table
