"""What the door (HTTP routes, hot path) asks of a site. Implemented by gateway/site/site.py; nothing here knows HTTP.

What always holds: every method raises only errors of twinlog/errors.py; a write's result is returned only after it is
acknowledged by the rules of protocol.md section 4; reads check the read lease before and after the read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from gateway.service.audits import Audit, Audits
from gateway.service.documents import BarrierDocument, BarrierList, ClusterDocument, ReceiptDocument
from gateway.service.histogram import Histogram
from storage.engine import StoredRow
from storage.log.record import Record, RequestMark
from storage.rows.schema import TableSchema
from switchover.monitor.views import SiteView
from switchover.operations.document import OperationDocument
from switchover.preflight.preflight import ChecksDocument
from twinlog.errors import PreconditionFailed, TwinlogError


class Mutation(msgspec.Struct, frozen=True, gc=False):
    """One row change, already validated and encoded. `op`: upsert | insert | update | delete."""

    op: str
    key: bytes
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Condition:
    """A check on one key's current row, evaluated under its lock.

    `version`: the row must exist at this version; `exists`: it must (or must not) exist; `predicate`: called with the
    stored row, True when it holds (a compiled column predicate).
    """

    key: bytes
    version: int | None = None
    exists: bool | None = None
    predicate: Any | None = None  # Callable[[StoredRow | None], bool]
    problem: str = "the condition does not hold"
    error: type[TwinlogError] = PreconditionFailed  # what is raised when it does not hold


class WriteRequest(msgspec.Struct, frozen=True, gc=False):
    """One client request: all mutations or none. `idempotency_key` with the `digest` of its body.

    `records`: bulk upserts that are encoded as records already (Arrow); then `mutations` is empty.
    """

    table: TableSchema
    mutations: Sequence[Mutation] = ()
    conditions: Sequence[Condition] = ()
    idempotency_key: str | None = None
    digest: bytes = b""
    records: list[Record] | None = None

    @property
    def count(self) -> int:
        return len(self.mutations) if self.records is None else len(self.records)


class WriteResult(msgspec.Struct, frozen=True, gc=False):
    version: int  # of the last mutation
    receipt: str
    mode: str  # "sync" | "async"
    count: int


class SiteService(Protocol):
    """One site, as the routes see it."""

    site: str

    # tables
    def table(self, name: str) -> TableSchema:
        """Raises NotFound, NotActive."""

    def tables(self) -> list[TableSchema]: ...
    async def create_table(self, body: dict[str, Any], mark: RequestMark | None = None) -> tuple[TableSchema, bool]:
        """(schema, created); an equal one that exists: created is False; a different one: Conflict.

        `mark`, here and below, is the idempotency entry: what was done under it is not done again, and answered as then.
        """

    async def alter_table(self, name: str, body: dict[str, Any], mark: RequestMark | None = None) -> TableSchema: ...
    async def drop_table(self, name: str, mark: RequestMark | None = None) -> None: ...

    # rows
    async def write(self, request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        """Raises PreconditionFailed, NotFound (update of an absent row), Overloaded, Unavailable, NotActive, OutcomeUnknown."""

    async def recorded(self, key: str, digest: bytes, deadline_s: float | None = None) -> WriteResult | None:
        """The answer to the write that bore this idempotency key, if it was applied; waits for one that is under way."""

    async def read(self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False) -> StoredRow | None: ...
    async def scan(
        self, table: TableSchema, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int,
        as_of: int | None = None, stale: bool = False,
    ) -> Sequence[StoredRow]: ...

    async def receipt(self, receipt: str) -> ReceiptDocument:
        """Raises InvalidInput when it is none."""

    # the pair
    async def cluster(self) -> ClusterDocument: ...
    def cluster_events(self) -> AsyncIterator[ClusterDocument]:
        """The current cluster document at once, then one at each change."""

    def active(self) -> dict[str, Any] | None:
        """{"site", "url", "epoch"} of the active as far as known."""

    # operations (role changes)
    async def start_operation(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None
    ) -> OperationDocument:
        """The same idempotency `key` again: the operation that the first request began. Raises Refused, Conflict."""

    async def checks(self, kind: str) -> ChecksDocument:
        """Judges whether a role change of this kind to this site would work now."""

    async def view(self) -> SiteView:
        """What this site sees of the pair, for the availability monitor; nothing is changed."""

    async def operations(self) -> list[OperationDocument]: ...
    async def operation(self, operation_id: str) -> OperationDocument: ...
    def operation_events(self, operation_id: str) -> AsyncIterator[OperationDocument]: ...
    async def abort_operation(self, operation_id: str, actor: str) -> OperationDocument: ...
    async def resume_operation(self, operation_id: str, actor: str) -> OperationDocument: ...

    # barriers and audits
    async def take_barrier(self, name: str | None) -> tuple[BarrierDocument, bool]:
        """(document, taken by this request). Raises Conflict, NotActive, Unavailable, OutcomeUnknown, EngineFailed."""

    def barriers(self) -> BarrierList: ...
    def barrier(self, name: str) -> BarrierDocument:
        """Raises NotFound when this site does not hold its snapshot."""

    async def release_barrier(self, name: str) -> None: ...
    async def note_audit(self, audit: Audit) -> None:
        """Durable when it returns."""

    def audits(self) -> Audits: ...

    # health
    def role(self) -> str:
        """CLOSED | STANDBY | SWITCHING | DRAINING | ACTIVE | DOWNGRADE_ACTIVE | FENCED."""

    def replication_lag_s(self) -> float | None:
        """Age of the newest thing a standby lacks; None: unknown."""

    def metrics(self) -> Mapping[str, float | Histogram]:
        """Gauges, counters and histograms by Prometheus name, without the twinlog_ prefix."""

    # between sites
    async def peer_call(self, method: str, body: bytes) -> bytes:
        """One call of the other site (gateway/site/peer_api.py)."""
