"""The bodies that the API takes, and the answers that it makes itself, as types.

What always holds: a body decoded with one of these has no unknown member. Rows and conditions on columns depend on the
table, so here they are objects; the codecs of storage/ check them. Source: product.md section 2.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.audits.notes import AuditRun, PastRun
from gateway.audits.running import RunningAudit
from storage.log.record import BARRIER_NAME
from storage.rows.schema import (
    COLUMNS_MAX,
    HISTORY_S_MAX,
    KEY_COLUMNS_MAX,
    NAME,
    ColumnDocument,
    Replication,
    TableDocument,
    TypeName,
)
from switchover.operations.document import OperationDocument
from twinlog.wire.audit_report import SentReport

Row = dict[str, Any]
Version = Annotated[
    str | int, Meta(description="a version, as decimal text in JSON; a number in msgpack, and with ?versions=number")
]
Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}$")]
HistoryS = Annotated[int, Meta(ge=0, le=HISTORY_S_MAX, description="how long old versions are kept for as_of, in seconds")]


class TrailWho(Struct):
    """`says` is what whoever asked calls himself; the rest is proven, as far as anything is at this site."""

    name: str
    kind: str
    address: str
    says: str


class TrailLine(Struct):
    """A line of the audit trail. `of`: the number of the line of its beginning; 0: it has none. `late_ms`: how much later than
    `time_ms` it could be written."""

    number: int
    time_ms: int
    event: str
    outcome: str
    who: TrailWho
    what: dict[str, Any]
    operation: str
    of: int
    late_ms: int


class TrailDocument(Struct):
    """The newest lines of a site's audit trail, the oldest of them first. `number` and `sha256`: of its last line; keep them
    elsewhere, and a trail that was cut is found. `fault`: why the next line cannot be written; null: it can."""

    site: str
    number: int
    sha256: str
    fault: str | None
    entries: list[TrailLine]


class ColumnBody(Struct, forbid_unknown_fields=True):
    """A column of a new table, or a new column. `nullable` left out is true, but false for key columns."""

    name: Name
    type: TypeName
    nullable: bool = True
    default: Any = None


class TableBody(Struct, forbid_unknown_fields=True):
    """A new table. storage/rows/schema.py checks it, and names every fault at once."""

    name: Name
    columns: Annotated[list[ColumnBody], Meta(min_length=1, max_length=COLUMNS_MAX)]
    primary_key: Annotated[list[str], Meta(min_length=1, max_length=KEY_COLUMNS_MAX)]
    partitioning: Annotated[None, Meta(description="does not work yet: a table that asks for it is refused")] = None
    replication: Replication = "sync"
    history_s: HistoryS = 0


class TableChange(Struct, forbid_unknown_fields=True):
    """A change of a table; a member that is left out stays as it is."""

    add: list[ColumnBody] | UnsetType = UNSET
    drop: list[str] | UnsetType = UNSET
    rename: dict[str, str] | UnsetType = UNSET
    replication: Replication | UnsetType = UNSET
    history_s: HistoryS | UnsetType = UNSET


class KeptTableDocument(Struct):
    """A table that was dropped. `name`: the one that it had, and `{name}:restore` restores the last of them; `kept_as` names
    this very one there. `kept_until`: its rows may be gone after that."""

    name: str
    kept_as: str
    dropped_at: datetime
    kept_until: datetime
    columns: list[ColumnDocument]
    primary_key: list[str]


class TableList(Struct):
    """`dropped`: where they were asked for, the last one first."""

    tables: list[TableDocument]
    dropped: list[KeptTableDocument] | UnsetType = UNSET


class MutationBody(Struct, forbid_unknown_fields=True):
    """`row` for upsert, insert and update (an update: the key columns and those to change), `key` for delete."""

    op: Literal["upsert", "insert", "update", "delete"]
    row: Row | None = None
    key: Row | None = None


class BatchBody(Struct, forbid_unknown_fields=True):
    """The mutations are applied all or nothing, in this order. A key that is inserted may occur once."""

    mutations: list[MutationBody]


class ConditionBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on a column (`value` as in a row; a list for `in`; none for `is_null` and `not_null`), on the version of the
    row, or on its existence: one of the three."""

    column: str | None = None
    op: Literal["=", "!=", "<", "<=", ">", ">=", "in", "prefix", "is_null", "not_null"] | None = None
    value: Any = None
    version: str | int | None = None
    exists: bool | None = None


class CheckBody(Struct, forbid_unknown_fields=True):
    """The mutations are applied, all or nothing, if the row in the path satisfies all `conditions` (ConditionBody)."""

    conditions: list[dict[str, Any]]
    mutations: list[MutationBody]


class WriteAnswer(Struct):
    """`version` of the last mutation; `receipt` to ask about it later; `mode` is how it was acknowledged."""

    version: Version
    receipt: str
    mode: Literal["sync", "async"]


class BatchAnswer(Struct):
    version: Version
    receipt: str
    mode: Literal["sync", "async"]
    count: int


class RowAnswer(Struct):
    row: Row
    version: Version


class PageAnswer(Struct):
    """`versions[i]` is that of `rows[i]`. With a token there may be more, even after a page with few rows or none."""

    rows: list[Row]
    versions: list[Version]
    next_page_token: str | None


class OperationBody(Struct, forbid_unknown_fields=True):
    """A role change. `kind`: switchover, failover, rejoin, degrade, resync, skip. `to`: the site that will be active."""

    kind: str
    to: str | None = None
    options: dict[str, Any] = {}
    dry_run: bool = False


class LogLevelBody(Struct, forbid_unknown_fields=True):
    """`level`: debug, info, warning or error."""

    level: str


class OperationList(Struct):
    operations: list[OperationDocument]


class BarrierBody(Struct, forbid_unknown_fields=True):
    """A new barrier; the site makes its name of the time when the name is left out."""

    name: Annotated[str, Meta(pattern=rf"^{BARRIER_NAME}(?![\s\S])")] | None = None  # a `$` takes a newline


class AuditList(Struct):
    """The audits that run now, as they say themselves, and the last runs that this site was notified of, the newest first."""

    running: list[RunningAudit]
    past: list[PastRun]


class AuditDocument(Struct):
    """One audit. `run` null: it has not ended, as far as this site knows. `tables`: how many there were. `report` null: it sent
    none, or this site keeps it no longer. `hidden_keys`: of differences in tables that the caller may not read. `progress`
    null: it does not run, or has not reported since this site's start."""

    id: str
    run: AuditRun | None
    tables: int
    report: SentReport | None
    hidden_keys: int
    progress: RunningAudit | None


class BackupPoint(Struct, forbid_unknown_fields=True):
    """The point up to which a backup has the log. `identity`: of the pair that it is of."""

    identity: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    epoch: Annotated[int, Meta(ge=1, le=1 << 53)]
    seq: Annotated[int, Meta(ge=0, le=1 << 53)]


class HealthAnswer(Struct, frozen=True):
    """Shows what the site does now, and why not, as in the cluster document."""

    site: str
    role: str
    reads: bool
    writes: bool
    follows: bool
    why: str | None = None
