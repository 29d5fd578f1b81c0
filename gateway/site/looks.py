"""Shows a site to operators: at its own page, and to the other site's gateway, which shows the pair.

What always holds: nothing is changed, and no look waits for longer than its deadline; what the other site shows comes through
its gateway, or the reason why it does not. Implements gateway.service.port.Looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gateway.metrics.catalogue import Figures
from gateway.service.port import DoorFigures
from gateway.site.cluster_document import cluster_document, site_figures
from gateway.site.operations import SiteOperations
from gateway.site.site import Site
from gateway.table_figures.documents import TableHeld, TablesHeld, TableSizeDocument
from gateway.table_figures.series import TableSeries
from gateway.table_figures.sizes import TableSizes
from gateway.ui.happenings import Happened
from gateway.ui.looks import (
    Epochs,
    EpochShown,
    LogClaim,
    LogHolder,
    Logs,
    LogSegment,
    OperationsShown,
    SiteLook,
    counted,
    read_document,
    split,
)
from remote_log.dfs.retrying import within
from remote_log.fencing.claims import claimed_epochs, read_claim
from remote_log.layout import SegmentName
from remote_log.replication.messages import LookReply, LookRequest
from storage.engines.unshown import standing_at
from switchover.monitor.views import SiteView
from switchover.preflight.preflight import ChecksDocument
from twinlog.errors import InvalidInput, NotFound, TwinlogError

OPERATIONS_MAX = 200
EPOCHS_MAX = 500
SEGMENTS_MAX = 200
CLAIMS_MAX = 12
TABLES_MAX = 40_000
LOOK_S = 2.0
ASK_S = 1.0  # a look that waits for nobody: the other site's process answers, or hangs
ASK_LONG_S = 7.0  # the other site waits for this one, both DFSs and the register
T = TypeVar("T")


class SiteLooks:
    def __init__(self, site: Site, operations: SiteOperations) -> None:
        self._site, self._operations = site, operations
        self._sizes = TableSizes(site.parts.engine, site.parts.clock)
        self._series = TableSeries(self._sizes, lambda: site.catalog.all(), site.parts.clock)
        self.door: DoorFigures | None = None

    # ---- of this site
    def now(self) -> SiteLook:
        running = self._operations.running
        plain, durations = split(site_figures(self._site))
        if self.door is not None:
            durations |= {name: counted(value) for name, value in self.door.durations().items()}
            plain |= {**self.door.problems(), **self.door.disk()}
        return SiteLook(cluster_document(self._site, running.id if running else None), plain, durations, running)

    async def view(self) -> SiteView:
        seen = await self._operations.view()
        return seen if self.door is None else replace(seen, answers=self.door.answers())

    async def operations(self) -> OperationsShown:
        return OperationsShown((await self._operations.all())[:OPERATIONS_MAX])

    def epochs(self) -> Epochs:
        applied = self._site.parts.engine.applied
        newest = [EpochShown(one.epoch, one.first_seq, one.site, one.kind) for one in applied.epochs[-EPOCHS_MAX:]]
        return Epochs(newest, applied.seq)

    def happenings(self) -> Happened:
        return self._site.happenings.all()

    async def logs(self) -> Logs:
        site, parts, epoch = self._site, self._site.parts, self._site.active_epoch
        newest = parts.wal.segments()[-SEGMENTS_MAX:]
        wal = [LogSegment(one.name, one.epoch, one.first_seq, one.last_seq, one.bytes) for one in newest]
        remote = None
        if epoch is not None and epoch.remote is not None:
            remote = [
                LogSegment(one.path, epoch.epoch, one.first_seq, one.last_seq, one.bytes, not one.closed)
                for one in epoch.remote.segments[-SEGMENTS_MAX:]
            ]
        kept, claims, kept_error = None, None, None
        try:
            kept, claims = await asyncio.gather(within(LOOK_S, self._kept()), within(LOOK_S, self._claims()))
        except TwinlogError as error:
            kept_error = error.message
        holders = [LogHolder(name, seq) for name, seq in parts.cursors.positions(site.epoch).items()]
        return Logs(
            site.site, wal, parts.wal.bytes_held, parts.wal.first_previous, holders, remote, kept, claims, kept_error
        )

    async def _kept(self) -> list[LogSegment]:
        """Their files are not opened: of one that is written now, its length may be more."""
        dfs, layout, found = self._site.parts.own_dfs, self._site.layout, []
        for folder in await dfs.list(layout.folder):
            epoch = layout.parse_epoch(folder.name) if folder.is_folder else None
            if epoch is None:
                continue
            for one in await dfs.list(layout.epoch_folder(epoch)):
                path = f"{layout.epoch_folder(epoch)}/{one.name}"
                if not one.is_folder and isinstance(layout.parse(path), SegmentName):
                    found.append(LogSegment(path, epoch, bytes=one.length))
        return found[-SEGMENTS_MAX:]

    async def _claims(self) -> list[LogClaim]:
        dfs, layout = self._site.parts.own_dfs, self._site.layout
        newest = (await claimed_epochs(dfs, layout))[-CLAIMS_MAX:]

        async def read(epoch: int) -> LogClaim:
            try:
                one = await read_claim(dfs, layout, epoch)
            except TwinlogError:  # which is shown as not known
                return LogClaim(epoch, None, None, None, None)
            return LogClaim(epoch, one.site, one.kind, one.reason, one.wall_ms)

        return list(await asyncio.gather(*map(read, newest)))

    async def table_sizes(self, tables: Sequence[int]) -> Mapping[int, TableSizeDocument]:
        return await self._sizes.of(tables)

    def table_figures(self) -> Figures:
        return self._series.figures()

    async def tables(self, of: str) -> TablesHeld:
        """`of`: the id of one table, which comes with its size; empty: all."""
        engine = self._site.parts.engine
        if of and not (of.isascii() and of.isdecimal()):
            raise InvalidInput(f"{of[:40]!r} is no id of a table")
        found = [table for table in self._site.catalog.all() if not of or table.id == int(of)]
        sizes = await self.table_sizes([table.id for table in found]) if of else {}
        refused = standing_at(engine)
        held = [
            TableHeld(
                table.id, table.revision, sizes.get(table.id),
                refused.problem if refused is not None and refused.table == table.id else None,
            ) for table in found[:TABLES_MAX]
        ]
        return TablesHeld(self._site.site, engine.applied.loading, len(found) > TABLES_MAX, held)

    # ---- for the other site
    async def answer(self, asked: LookRequest) -> LookReply:
        """Raises NotFound for what this release does not show, InvalidInput for a role change that there is not."""
        document: msgspec.Struct
        match asked.what:
            case "now":
                document = self.now()
            case "view":
                document = await self.view()
            case "checks":
                document = await self._operations.checks(asked.kind)
            case "operations":
                document = await self.operations()
            case "epochs":
                document = self.epochs()
            case "happenings":
                document = self.happenings()
            case "logs":
                document = await self.logs()
            case "tables":
                document = await self.tables(asked.kind)
            case _:
                raise NotFound(f"this release shows no {asked.what!r} of a site")
        return LookReply(self._site.site, msgspec.json.encode(document))

    # ---- of the other site
    async def other_now(self) -> SiteLook:
        return await self._ask("now", SiteLook, ASK_S)

    async def other_view(self) -> SiteView:
        return await self._ask("view", SiteView, ASK_LONG_S)

    async def other_checks(self, kind: str) -> ChecksDocument:
        return await self._ask("checks", ChecksDocument, ASK_LONG_S, kind)

    async def other_operations(self) -> OperationsShown:
        return await self._ask("operations", OperationsShown, LOOK_S)

    async def other_epochs(self) -> Epochs:
        return await self._ask("epochs", Epochs, LOOK_S)

    async def other_happenings(self) -> Happened:
        return await self._ask("happenings", Happened, LOOK_S)

    async def other_logs(self) -> Logs:
        return await self._ask("logs", Logs, LOOK_S + ASK_S)

    async def other_tables(self, table: int | None = None) -> TablesHeld:
        return await self._ask("tables", TablesHeld, LOOK_S + ASK_S, "" if table is None else str(table))

    async def _ask(self, what: str, kind: type[T], timeout_s: float, of: str = "") -> T:
        site = self._site
        data = await site.parts.other_site.look(LookRequest(what, of), timeout_s)
        return read_document(kind, site.peer, data)
