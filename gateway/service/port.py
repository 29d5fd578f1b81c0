"""The ports between the API (HTTP routes, hot path, simulator) and one site. Nothing here knows HTTP.

`Rows` and `Tables` are the ports for data: plain structs, numbers, strings and bytes go in and come out, so that one day they
can be called over a socket. No engine object, callable or class crosses them; a TableSchema crosses as the plain struct that it
is, and a site compares it by id and revision where it is not the very object that the site gave out.

What always holds: every method raises only errors of twinlog/errors.py; a write's result is returned only after it is
acknowledged by the rules of protocol.md section 4; reads check the read lease before and after the read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway.audits.notes import AuditRun, Audits, PastRun
from gateway.audits.running import RunningAudits
from gateway.metrics.catalogue import Figures
from gateway.service.documents import (
    BarrierDocument,
    BarrierList,
    ClusterDocument,
    ReceiptDocument,
    ReloadDocument,
    ServingDocument,
)
from gateway.service.histogram import Histogram
from gateway.table_figures.documents import TablesHeld, TableSizeDocument
from gateway.ui.happenings import Happened
from gateway.ui.looks import Epochs, Logs, OperationsShown, SiteLook
from storage.engine import StoredRow
from storage.log.record import Record, RequestMark
from storage.rows.schema import TableSchema
from switchover.monitor.views import Answers, SiteView
from switchover.operations.document import OperationDocument
from switchover.preflight.preflight import ChecksDocument
from switchover.register.port import Mode
from twinlog.wire.audit_report import AuditProgress, SentReport


class Mutation(msgspec.Struct, frozen=True, gc=False):
    """One row change, already validated and encoded. `op`: upsert | insert | update | delete."""

    op: str
    key: bytes
    value: bytes = b""


class Condition(msgspec.Struct, frozen=True):
    """A check on one key's current row, evaluated while the key is held. All members that are given must hold.

    `version`: the row is at this version; `exists`: there is a row, or none; `versions`: the row is at one of these;
    `other_versions`: there is no row, or it is at none of these; `columns`: predicates in the form of
    storage/rows/predicates.py, `native` when their values came from msgpack.
    """

    key: bytes
    version: int | None = None
    exists: bool | None = None
    versions: tuple[int, ...] | None = None
    other_versions: tuple[int, ...] | None = None
    columns: tuple[dict[str, Any], ...] = ()
    native: bool = False
    problem: str = "the condition does not hold"


class WriteRequest(msgspec.Struct, frozen=True, gc=False):
    """One client request: all mutations or none. `idempotency_key` with the `digest` of its body.

    `table`: the schema that the rows were encoded with. `records`: bulk upserts that are encoded as records already (Arrow);
    then `mutations` is empty. `trace_context`: of the span of a request that is traced.
    """

    table: TableSchema
    mutations: Sequence[Mutation] = ()
    conditions: Sequence[Condition] = ()
    idempotency_key: str | None = None
    digest: bytes = b""
    records: list[Record] | None = None
    trace_context: str = ""


class WriteResult(msgspec.Struct, frozen=True, gc=False):
    version: int  # of the last mutation
    receipt: str
    mode: Mode
    count: int


class Rows(Protocol):
    """Reads and writes of rows. A port for data."""

    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        """Raises PreconditionFailed, NotFound (update of an absent row), Overloaded, Unavailable, NotActive, OutcomeUnknown."""

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        """Returns the answer to the write that bore this idempotency key, if it was applied; waits for one under way."""

    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None:
        """Returns the row, as it is or as it was at version `as_of`. `stale`: also a standby answers."""

    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False, snapshot: str | None = None,
    ) -> Sequence[StoredRow]:
        """Returns at most `limit` rows in key order, `start` included and `end` not; of `snapshot`, if one is given.

        Raises HistoryNotHeld when the snapshot is gone.
        """

    async def open_snapshot(self, stale: bool = False) -> str:
        """Returns the name of a snapshot for scans; the site lets it go by itself. Raises Overloaded."""

    def release_snapshot(self, snapshot: str) -> None: ...

    async def receipt(self, receipt: str) -> ReceiptDocument:
        """Raises InvalidInput when it is none."""


class KeptTable(NamedTuple):
    """A table that was dropped. Its rows are kept until `until_ms`, in milliseconds since 1970, and may go after that."""

    schema: TableSchema
    until_ms: int


class Tables(Protocol):
    """Schemas and their changes. A port for data."""

    def get(self, name: str) -> TableSchema:
        """Raises NotFound, NotActive."""

    def all(self) -> list[TableSchema]: ...
    def dropped(self) -> list[KeptTable]:
        """Those that were dropped and can be restored, the last one first."""

    async def create(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        """Returns (schema, created); an equal one that exists: created is False; a different one: Conflict.

        `mark`, here and below, is the idempotency entry: what was done under it is not done again, and answered as then.
        """

    async def alter(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema: ...
    async def drop(self, name: str, mark: RequestMark | None = None, confirm: str | None = None) -> None:
        """`confirm`: the name once more. Raises Conflict for a table with rows without it, InvalidInput for another name."""


    async def restore(self, name: str, mark: RequestMark | None = None) -> TableSchema:
        """The table that was dropped under `name` last, back with its rows. Raises NotFound, Conflict."""


class Cluster(Protocol):
    """The pair as this site sees it, and the site itself, for status pages, load balancers and Prometheus."""

    def document(self) -> ClusterDocument: ...
    def events(self) -> AsyncIterator[ClusterDocument]:
        """Yields the current cluster document at once, then one at each change."""

    def role(self) -> str:
        """Returns CLOSED | STANDBY | SWITCHING | DRAINING | ACTIVE | DOWNGRADE_ACTIVE | FENCED."""

    def serving(self) -> ServingDocument:
        """Returns what the site serves now, and why not: what health probes answer by."""

    def vouched_s(self) -> float | None:
        """At a standby: the moment, by the site's own clock, before which no acknowledged write is missing. None: unknown."""

    def age_s(self, vouched_s: float) -> float:
        """Returns how many seconds, at most, have passed since that moment."""

    def figures(self) -> Figures:
        """Returns what the site knows of the metrics of gateway/metrics/catalogue.py."""


class Operations(Protocol):
    """Role changes."""

    async def start(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None,
        expires_ms: int | None = None,
    ) -> OperationDocument:
        """The same idempotency `key` again: the operation that the first request began. Raises Refused, Conflict.

        `expires_ms`, by this site's wall clock: not begun, nor any step before the point of no return, after it.
        """

    async def checks(self, kind: str) -> ChecksDocument:
        """Judges whether a role change of this kind to this site would work now."""

    async def view(self) -> SiteView:
        """Returns what this site sees of the pair, for the availability monitor; nothing is changed."""

    async def all(self) -> list[OperationDocument]: ...
    async def get(self, operation_id: str) -> OperationDocument: ...
    def follow(self, operation_id: str) -> AsyncIterator[OperationDocument]: ...
    async def abort(self, operation_id: str, actor: str) -> OperationDocument: ...
    async def resume(self, operation_id: str, actor: str, expires_ms: int | None = None) -> OperationDocument: ...


class Barriers(Protocol):
    async def take(self, name: str | None) -> tuple[BarrierDocument, bool]:
        """Returns (document, taken by this request). Raises Conflict, NotActive, Unavailable, OutcomeUnknown, EngineFailed."""

    def all(self) -> BarrierList: ...
    def get(self, name: str) -> BarrierDocument:
        """Raises NotFound when this site does not hold its snapshot."""

    async def release(self, name: str) -> None: ...


class Backups(Protocol):
    """Rows and log for a backup. What sends messages raises before the first one, and from then on only breaks."""

    def base(self, target: str) -> AsyncGenerator[bytes, None]:
        """Messages of all rows (storage/backup/stream.py). Raises NotActive, Unavailable, Overloaded."""

    def log(self, target: str, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        """Messages of the committed log behind a point. Raises Conflict when it is not held, Refused for another pair's."""

    def kept(self, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        """As `log`, of what a site kept of an earlier time as the active. Raises Unavailable, Conflict, Refused."""

    async def complete(self, target: str, identity: str, epoch: int, seq: int) -> None:
        """The backup has everything up to this point; at any site. Raises Refused."""

    async def release(self, target: str, identity: str = "") -> None:
        """Nothing is kept for the backup any more; at any site. Raises Refused if `identity` is that of another pair."""


class AuditLog(Protocol):
    running: RunningAudits

    async def note(self, audit: AuditRun) -> None:
        """The note is durable when this returns."""

    def all(self) -> Audits: ...

    def past(self) -> list[PastRun]:
        """The last runs, the newest first."""

    def run(self, audit: str) -> PastRun:
        """Raises NotFound."""

    def report(self, audit: str) -> SentReport | None:
        """Returns it with all keys: whoever shows it leaves out those that the caller may not see."""

    async def keep_report(self, audit: str, report: SentReport) -> None:
        """The report is durable when this returns. Raises NotFound for a run that was not noted, InvalidInput."""

    def progress(self, audit: str, progress: AuditProgress) -> None: ...


class Configuration(Protocol):
    async def reload(self) -> ReloadDocument:
        """Reads the site's file, and puts into effect what can change while the gateway runs. Raises ConfigError, with every
        fault, and then nothing has changed."""
        ...

    def log_level(self, level: str) -> ReloadDocument:
        """Logs from `level` on, until the next reload or start. Raises InvalidInput."""
        ...
class DoorFigures(Protocol):
    """The figures that a door keeps of what it answers."""

    def answers(self) -> Answers: ...
    def durations(self) -> Mapping[str, Histogram]:
        """By Prometheus name, without the twinlog_ prefix."""

    def problems(self) -> Mapping[str, float]: ...
    def disk(self) -> Mapping[str, float]: ...


class Looks(Protocol):
    """Shows a site to operators: itself and, through the other gateway, the other site. Those of the other site
    raise the error that it answers with, or PeerError, within a few seconds."""

    door: DoorFigures | None

    def now(self) -> SiteLook: ...
    async def view(self) -> SiteView: ...
    async def operations(self) -> OperationsShown: ...
    def epochs(self) -> Epochs: ...
    def happenings(self) -> Happened: ...
    async def logs(self) -> Logs: ...
    async def table_sizes(self, tables: Sequence[int]) -> Mapping[int, TableSizeDocument]:
        """Returns how much these tables hold, by id, within a few seconds: those that are not there are not known."""

    def table_figures(self) -> Figures:
        """Returns what is known of the sizes of tables as metrics; what is old is measured until the next time."""

    async def other_now(self) -> SiteLook: ...
    async def other_view(self) -> SiteView: ...
    async def other_checks(self, kind: str) -> ChecksDocument: ...
    async def other_operations(self) -> OperationsShown: ...
    async def other_epochs(self) -> Epochs: ...
    async def other_happenings(self) -> Happened: ...
    async def other_logs(self) -> Logs: ...
    async def other_tables(self, table: int | None = None) -> TablesHeld:
        """One table with its size, or all of them, without."""


@dataclass(frozen=True, slots=True)
class SiteService:
    """The eight ports of the site named `site`, and `peer_call(method, body)`, one call of the other site."""

    site: str
    rows: Rows
    tables: Tables
    cluster: Cluster
    operations: Operations
    barriers: Barriers
    backups: Backups
    audits: AuditLog
    looks: Looks
    peer_call: Callable[[str, bytes], Awaitable[bytes]]
