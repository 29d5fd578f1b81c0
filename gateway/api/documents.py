"""The JSON documents of the API as types: what a body must look like, and what the OpenAPI document says of answers.

What always holds: a body decoded with one of these has no unknown member. Rows and conditions on columns depend on the
table, so here they are objects; the codecs of storage/ check them. Source: product.md section 2.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.service.audits import AuditBody, Audits
from switchover.monitor.views import SiteView

Row = dict[str, Any]


class ColumnDocument(Struct):
    """One column. In a new table `nullable` may be left out (true, but false for key columns), `default` too."""

    name: str
    type: Literal["bool", "int32", "int64", "float32", "float64", "string", "bytes", "timestamp", "decimal", "json"]
    nullable: bool = True
    default: Any = None


class TableDocument(Struct):
    name: str
    columns: list[ColumnDocument]
    primary_key: list[str]
    partitioning: Annotated[None, Meta(description="does not work yet: a table that asks for it is refused")] = None
    replication: Literal["sync", "async", "local"] = "sync"
    history_s: Annotated[int, Meta(ge=0, description="how long old versions are kept for as_of, in seconds")] = 0


class TableChange(Struct, omit_defaults=True):
    """What to change; members left out stay as they are."""

    add: list[ColumnDocument] = []
    drop: list[str] = []
    rename: dict[str, str] = {}
    replication: Literal["sync", "async", "local"] = "sync"
    history_s: int = 0


class TableList(Struct):
    tables: list[TableDocument]


class MutationBody(Struct, forbid_unknown_fields=True):
    """`row` for upsert, insert and update (an update: the key columns and those to change), `key` for delete."""

    op: Literal["upsert", "insert", "update", "delete"]
    row: Row | None = None
    key: Row | None = None


class BatchBody(Struct, forbid_unknown_fields=True):
    """All or nothing, in this order. A key that is inserted may occur once."""

    mutations: list[MutationBody]


class ConditionBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One of: a condition on a column (`value` as in a row; a list for `in`; none for `is_null` and `not_null`), on the
    version of the row, or on its existence."""

    column: str | None = None
    op: Literal["=", "!=", "<", "<=", ">", ">=", "in", "prefix", "is_null", "not_null"] | None = None
    value: Any = None
    version: int | None = None
    exists: bool | None = None


class CheckBody(Struct, forbid_unknown_fields=True):
    """`mutations` are done, all or nothing, if the row in the path satisfies all `conditions` (ConditionBody)."""

    conditions: list[dict[str, Any]]
    mutations: list[MutationBody]


class WriteAnswer(Struct):
    """`version` of the last mutation; `receipt` to ask about it later; `mode` is how it was acknowledged."""

    version: int
    receipt: str
    mode: Literal["sync", "async"]


class BatchAnswer(Struct):
    version: int
    receipt: str
    mode: Literal["sync", "async"]
    count: int


class RowAnswer(Struct):
    row: Row
    version: int


class PageAnswer(Struct):
    """`versions[i]` is that of `rows[i]`. With a token there may be more, even after a page with few rows or none."""

    rows: list[Row]
    versions: list[int]
    next_page_token: str | None


class ReceiptAnswer(Struct):
    receipt: str
    outcome: Literal["survived", "lost", "unknown"]
    log: int
    epoch: int
    seq: int
    mode: Literal["sync", "async"]


class ActiveSite(Struct):
    site: str
    url: str
    epoch: int


class ClusterDocument(Struct):
    pair: str
    site: str
    role: str
    epoch: int
    mode: str
    policy: str
    active: ActiveSite | None
    sites: dict[str, Any]
    committed_seq: int
    applied_seq: int
    replication_lag: Any
    remote_log: Any
    at_risk: Any
    operation: Any


class OperationBody(Struct, forbid_unknown_fields=True):
    """A role change. `kind`: switchover, failover, rejoin, degrade, resync. `to`: the site that will be active."""

    kind: str
    to: str | None = None
    options: dict[str, Any] = {}
    dry_run: bool = False


class OperationDocument(Struct):
    id: str
    kind: str
    to: str | None
    state: str
    steps: list[dict[str, Any]]
    started_at: Any


class OperationList(Struct):
    operations: list[OperationDocument]


class CheckDocument(Struct):
    """`status`: ok, warning, failed, unknown. `fix` is empty when there is nothing to do."""

    id: str
    status: Literal["ok", "warning", "failed", "unknown"]
    seen: str
    fix: str


class ChecksDocument(Struct, rename={"kind": "for"}):
    """`ok`: nothing failed. `loss`: the loss manifest of a failover, or null."""

    kind: str
    to: str
    ok: bool
    checks: list[CheckDocument]
    loss: dict[str, Any] | None


class BarrierBody(Struct, forbid_unknown_fields=True):
    """Without a name the site makes one of the time."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}(?![\s\S])")] | None = None  # a `$` takes a newline


class BarrierDocument(Struct):
    """The snapshot that this site holds of all up to sequence `seq` of `epoch`. `place`: where another process reads it."""

    name: str
    epoch: int
    seq: int
    taken_at: str
    expires_at: str
    engine: Literal["rocksdb", "postgresql", "sqlite", "memory"]
    place: str


class BarrierList(Struct):
    site: str
    barriers: list[BarrierDocument]


class HealthAnswer(Struct):
    site: str
    role: str


class Problem(Struct, omit_defaults=True):
    """RFC 9457. More members follow by type: `column`, `active`, `retry_after_s`, `faults`, ..."""

    type: str
    title: str
    status: int
    detail: str
    outcome: Literal["not_applied", "unknown"] | msgspec.UnsetType = msgspec.UNSET


ANSWERS = (
    TableDocument, TableChange, TableList, BatchBody, CheckBody, WriteAnswer, BatchAnswer, RowAnswer, PageAnswer, ReceiptAnswer,
    ClusterDocument, OperationBody, OperationDocument, OperationList, ChecksDocument, HealthAnswer, Problem, MutationBody,
    ConditionBody, SiteView, BarrierBody, BarrierDocument, BarrierList, AuditBody, Audits,
)
