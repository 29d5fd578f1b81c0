"""The record of a run: requests and answers of the clients, and the observed acts of both sites. Checkers judge only this.

What always holds: every line is a plain frozen struct of JSON values, so `load(dump(history)) == history`, and a run of the
simulator and one against real processes are judged by the same checkers. Times are seconds on one clock of the recorder.
A row is {column: value} without its key column; its key is the text of that column (a workload's tables have one key
column, of type string). A call that never returned counts as one with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from chaos.history.lines import (
    BarrierLine,
    Blind,
    Kept,
    Line,
    Misled,
    ReceiptLine,
    Repeat,
    RiskLook,
    Served,
    StaleLook,
    Stood,
    Unheard,
)

Kind = Literal["read", "write", "conditional", "batch", "scan", "schema"]
Result = Literal["ok", "not_applied", "unknown"]
Mode = Literal["sync", "async"]


# ---- what a client asks
class Mutation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`op`: upsert, insert, update or delete. `row`: the columns written, without the key; empty for a delete."""

    op: str
    key: str
    row: dict[str, Any] = {}


class Condition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """As in the data API: one of a column with `=` and a value, the version of the row, or whether it exists."""

    column: str | None = None
    op: str | None = None
    value: Any = None
    version: int | None = None
    exists: bool | None = None


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One request of one client.

    read: `key`. write: one mutation. batch: several, all or nothing. conditional: `mutations`, done if the row `key`
    satisfies all `conditions`. scan: `start` included, `end` not, all pages (of `page_rows`, 0: as the client likes) up to
    `limit`; `as_of` a version; `snapshot`: all pages are of one moment.
    schema: `body` of POST /v1/tables when it has a name, else of PATCH of `table`.
    """

    kind: Kind
    table: str
    key: str = ""
    mutations: tuple[Mutation, ...] = ()
    conditions: tuple[Condition, ...] = ()
    start: str | None = None
    end: str | None = None
    reverse: bool = False
    limit: int | None = None
    as_of: int | None = None
    snapshot: bool = False
    page_rows: int = 0
    body: dict[str, Any] = {}


# ---- what it is told
class Ack(msgspec.Struct, frozen=True, gc=False):
    """An acknowledgement. `version` is that of the last mutation; the request's others have the ones right before it."""

    site: str
    epoch: int
    seq: int
    version: int
    mode: Mode


class Row(msgspec.Struct, frozen=True, gc=False):
    key: str
    row: dict[str, Any]
    version: int


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The end of an operation.

    `rows`: of a read none or one, of a scan all in the order of the answer; a scan stopped by its limit is not `complete`.
    `error`: the problem's code. not_applied with precondition-failed, conflict or not-found shows what was stored, as a
    read does. `site`, `epoch`: who answered, where known. `served_s`: when the site let go of the answer, where known. Of a
    scan of several pages all three are those of the last page of its lowest epoch.
    """

    result: Result
    ack: Ack | None = None
    rows: tuple[Row, ...] = ()
    complete: bool = True
    error: str = ""
    site: str = ""
    epoch: int | None = None
    served_s: float | None = None


class Call(Line, tag="call", frozen=True, omit_defaults=True):
    """One operation of one client. `returned_s` and `outcome` are both None when it never ended."""

    id: int
    process: str
    operation: Operation
    invoked_s: float
    deadline_s: float | None = None
    returned_s: float | None = None
    outcome: Outcome | None = None


# ---- what was observed at the sites
class Opened(Line, tag="opened", frozen=True, omit_defaults=True):
    """A site opened an epoch: from now on it answers clients in it."""

    site: str
    epoch: int
    at_s: float
    mode: Mode


class Closed(Line, tag="closed", frozen=True, omit_defaults=True):
    site: str
    epoch: int
    at_s: float


class ModeRecorded(Line, tag="mode", frozen=True, omit_defaults=True):
    """The register (coordinator) holds `mode` for `epoch` from now on."""

    epoch: int
    mode: Mode
    at_s: float


class ReadsServed(Line, tag="reads", frozen=True, omit_defaults=True):
    """The number of reads that a site had answered in an epoch, in all."""

    site: str
    epoch: int
    count: int
    at_s: float


class RemoteLogLine(Line, tag="remote_log", frozen=True, omit_defaults=True):
    """A look at the remote log of `epoch` (its writer is `site`). `needless`: its segments with nothing but what is durably
    applied at the peer, without the newest and the newest with a frame, if they can be deleted now: peer and DFS are in
    reach."""

    site: str
    epoch: int
    at_s: float
    bytes: int
    needless: tuple[str, ...] = ()


class Copies(Line, tag="copies", frozen=True, omit_defaults=True):
    """A look at an open epoch: the last sequence that `site` had committed, and those up to which the log can be followed with
    what is durable at that site alone (`held`: storage and WAL), and at the other one (`held_there`: storage and remote log;
    None: it need not hold everything, for the mode is async, or its storage waits for base data)."""

    site: str
    epoch: int
    at_s: float
    committed: int
    held: int
    held_there: int | None = None


class PositionLine(Line, tag="position", frozen=True, omit_defaults=True):
    """The position of a site. `committed` is that of an active (of a standby: 0)."""

    site: str
    epoch: int
    at_s: float
    committed: int
    applied: int
    durable: int


class RoleChangeLine(Line, tag="role_change", frozen=True, omit_defaults=True):
    """A switchover, failover, rejoin, ... `state` when it ended: done, failed or aborted."""

    id: str
    kind: str
    started_s: float
    ended_s: float | None = None
    state: str = ""


class GivenUp(Line, tag="given_up", frozen=True, omit_defaults=True):
    """An operator's forced takeover from an asynchronous active opened: what `epoch` learned and reported may be undone."""

    epoch: int
    at_s: float


class Apart(Line, tag="apart", frozen=True, omit_defaults=True):
    """A command, in a pair without a coordinator: the register is decided at `site` from now on, without a look at the other
    DFS, where something else may be decided until both hold the same value again (Moment `met`)."""

    site: str
    at_s: float


class Moment(Line, tag="moment", frozen=True, omit_defaults=True):
    """`healed`: no fault is left. `recovered`: recovery was declared done, what is unknown is settled. `drained`: both idle.

    `met`: both sites' DFSs hold the same value of the register again. `forgotten`: the register holds nothing any more.
    """

    name: Literal["healed", "recovered", "drained", "ended", "met", "forgotten"]
    at_s: float


# ---- what was there at the end
class DumpedRow(msgspec.Struct, frozen=True, gc=False):
    row: dict[str, Any]
    version: int


class Dump(Line, tag="dump", frozen=True, omit_defaults=True):
    """The whole storage of a site, after `drained`. `tables`: name -> key -> row."""

    site: str
    active: bool
    at_s: float
    applied: int
    tables: dict[str, dict[str, DumpedRow]]


class LoggedFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    epoch: int
    first_seq: int
    last_seq: int
    previous: int
    digest: str


class SiteLog(Line, tag="log", frozen=True, omit_defaults=True):
    """The frames of a site's WAL that stand, in order; the oldest may have been trimmed."""

    site: str
    active: bool
    frames: tuple[LoggedFrame, ...]


class QuarantinedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    table: str
    key: str
    seq: int
    version: int


class Quarantine(Line, tag="quarantine", frozen=True, omit_defaults=True):
    """The records that a rejoin cut off. `kept`: in a file, by name in its manifest; else never acknowledged, dropped with a
    note."""

    site: str
    epoch: int
    first_seq: int
    last_seq: int
    at_s: float
    kept: bool
    rows: tuple[QuarantinedRow, ...] = ()


# ---- what was set up
class TableUse(Line, tag="table", frozen=True, omit_defaults=True):
    """A table of the run. `value`: the column that differs between writes. `unique`: no two writes use the same value.

    `schema` is the body of POST /v1/tables; `checks`: names of the checkers that judge this table's rows.
    """

    name: str
    schema: dict[str, Any]
    value: str = "value"
    unique: bool = True
    checks: tuple[str, ...] = ()


class Limits(Line, tag="limits", frozen=True, omit_defaults=True):
    """The promised figures of this run.

    `answer_slack_s`: after a deadline. `recovery_s`: from healed to recovered. `trim_slack_s`: from needless to deleted.
    `mode_slack_s`: until a site acts on what the register says. `travel_slack_s`: an answer's way to its client.
    `lease_s`: of a read lease, by the slower of the two sites' clocks. `risk_slack_s`: until a site no longer counts what
    another one may have lost that it does not hear; `heard_slack_s`: what one has lost that it hears.
    """

    answer_slack_s: float = 0.5
    recovery_s: float | None = None
    trim_slack_s: float = 1.0
    mode_slack_s: float = 1.0
    travel_slack_s: float = 0.0
    lease_s: float | None = None
    risk_slack_s: float = 0.0
    heard_slack_s: float = 0.0


AnyLine = (
    Call | Opened | Closed | ModeRecorded | ReadsServed | RemoteLogLine | Copies | PositionLine | RoleChangeLine | GivenUp
    | Apart | Moment | Dump | SiteLog | Quarantine | TableUse | Limits | BarrierLine | Kept | Unheard | Blind | StaleLook
    | Repeat | ReceiptLine | Served | RiskLook | Misled | Stood
)
_GROUPS: dict[type[Line], str] = {
    Call: "calls", Opened: "opened", Closed: "closed", ModeRecorded: "modes", ReadsServed: "reads_served",
    RemoteLogLine: "remote_logs", Copies: "copies", PositionLine: "positions", RoleChangeLine: "role_changes", Apart: "apart",
    GivenUp: "given_up", Moment: "moments", Dump: "dumps", SiteLog: "logs", Quarantine: "quarantines", TableUse: "tables",
    BarrierLine: "barriers", Kept: "kept", Unheard: "unheard", Blind: "blind", StaleLook: "stale_looks",
    Repeat: "repeats", ReceiptLine: "receipts", Served: "served",
    RiskLook: "risk_looks", Misled: "misled", Stood: "stands",
}
_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)


@dataclass(frozen=True, eq=False)
class History:
    """A finished run, by kind of line, each in the order of recording. Never changed once it is made."""

    calls: tuple[Call, ...] = ()
    opened: tuple[Opened, ...] = ()
    closed: tuple[Closed, ...] = ()
    modes: tuple[ModeRecorded, ...] = ()
    reads_served: tuple[ReadsServed, ...] = ()
    remote_logs: tuple[RemoteLogLine, ...] = ()
    copies: tuple[Copies, ...] = ()
    positions: tuple[PositionLine, ...] = ()
    role_changes: tuple[RoleChangeLine, ...] = ()
    apart: tuple[Apart, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    moments: tuple[Moment, ...] = ()
    dumps: tuple[Dump, ...] = ()
    logs: tuple[SiteLog, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    tables: tuple[TableUse, ...] = ()
    barriers: tuple[BarrierLine, ...] = ()
    kept: tuple[Kept, ...] = ()
    stale_looks: tuple[StaleLook, ...] = ()
    unheard: tuple[Unheard, ...] = ()
    blind: tuple[Blind, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    receipts: tuple[ReceiptLine, ...] = ()
    served: tuple[Served, ...] = ()
    risk_looks: tuple[RiskLook, ...] = ()
    misled: tuple[Misled, ...] = ()
    stands: tuple[Stood, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def moment(self, name: str) -> float | None:
        """The last time of that name."""
        times = [moment.at_s for moment in self.moments if moment.name == name]
        return max(times) if times else None

    def lines(self) -> list[Line]:
        return [self.limits, *(line for group in _GROUPS.values() for line in getattr(self, group))]


def history_of(lines: Iterable[Line]) -> History:
    """The lines, sorted into their kinds; the last Limits count."""
    groups: dict[str, list[Line]] = {name: [] for name in _GROUPS.values()}
    limits = Limits()
    for line in lines:
        if isinstance(line, Limits):
            limits = line
        else:
            groups[_GROUPS[type(line)]].append(line)
    return History(**{name: tuple(group) for name, group in groups.items()}, limits=limits)  # type: ignore[arg-type]


def dump(history: History) -> bytes:
    """JSON lines."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in history.lines())


def load(data: bytes) -> History:
    """The inverse of `dump`. Raises msgspec.ValidationError on a line that is none of ours."""
    return history_of(_decoder.decode(line) for line in data.splitlines() if line)


class Recorder:
    """Collects a run while it happens; calls are reported twice, at their start and at their end."""

    def __init__(self) -> None:
        self._open: dict[int, Call] = {}
        self._lines: list[Line] = []
        self._next_id = 1

    def begin(self, process: str, operation: Operation, now_s: float, deadline_s: float | None = None) -> int:
        """The id of the call."""
        call = Call(self._next_id, process, operation, now_s, deadline_s)
        self._open[call.id] = call
        self._next_id += 1
        return call.id

    def end(self, call_id: int, outcome: Outcome, now_s: float) -> Call:
        asked = self._open.pop(call_id)
        call = Call(asked.id, asked.process, asked.operation, asked.invoked_s, asked.deadline_s, now_s, outcome)
        self._lines.append(call)
        return call

    def note(self, line: Line) -> None:
        self._lines.append(line)

    def history(self) -> History:
        """Everything so far; calls still under way are in it without an end."""
        return history_of([*self._lines, *self._open.values()])
