"""The examples of the OpenAPI document. An answer's example is the answer's own struct, so that it has every member."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.api.documents import (
    AuditDocument,
    AuditList,
    BatchAnswer,
    HealthAnswer,
    KeptTableDocument,
    OperationList,
    PageAnswer,
    RowAnswer,
    TableList,
    TrailDocument,
    TrailLine,
    TrailWho,
    WriteAnswer,
)
from gateway.audits.notes import AuditRun, Audits, PastRun
from gateway.audits.running import RunningAudit
from gateway.epoch.commit_rule import CommitMode
from gateway.service.documents import (
    ActiveSite,
    AtRisk,
    BarrierDocument,
    BarrierList,
    ClusterDocument,
    DependencyDocument,
    FormatDocument,
    ReceiptDocument,
    ReloadDocument,
    RemoteLogDocument,
    ReplicationLag,
    ServingDocument,
    SettingChange,
    SiteDocument,
)
from gateway.table_figures.documents import OtherTableDocument, TableFiguresDocument, TableSizeDocument
from remote_log.replication.messages import StatusReply
from storage.rows.schema import ColumnDocument, TableDocument
from switchover.facts import SiteFacts
from switchover.monitor.views import Answers, SiteView
from switchover.operations.document import Operation, OperationResult, StepRecord, document
from switchover.preflight.checks import Check
from switchover.preflight.preflight import ChecksDocument
from switchover.register.port import PairState
from switchover.roles.table import Role
from twinlog.wire.audit_report import AuditProgress, FoundDifference, KeyShares, Pace, SentReport, Stage, TableCount

# ---- bodies
NEW_TABLE: dict[str, Any] = {
    "name": "flights",
    "columns": [
        {"name": "carrier", "type": "string"}, {"name": "flight", "type": "int32"},
        {"name": "delay_min", "type": "float64"}, {"name": "seen_at", "type": "timestamp"},
    ],
    "primary_key": ["carrier", "flight"],
    "replication": "sync",
}
TABLE_CHANGE = {"add": [{"name": "tail", "type": "string"}], "rename": {"seen_at": "at"}}
ROW = {"carrier": "UA", "flight": 1545, "delay_min": 2.0, "seen_at": "2013-01-01T05:17:00Z"}
SOME_COLUMNS = {"delay_min": 4.0}
BATCH: dict[str, Any] = {
    "mutations": [
        {"op": "upsert", "row": ROW},
        {"op": "update", "row": {"carrier": "UA", "flight": 1545, "delay_min": 4.0}},
        {"op": "delete", "key": {"carrier": "AA", "flight": 1}},
    ]
}
BATCH_LINES = '{"op":"upsert","row":{"carrier":"UA","flight":1545}}\n{"op":"delete","key":{"carrier":"AA","flight":1}}\n'
CHECK = {
    "conditions": [{"column": "delay_min", "op": "<", "value": 10}],
    "mutations": [{"op": "upsert", "row": ROW}],
}
SWITCHOVER: dict[str, Any] = {"kind": "switchover", "to": "b", "options": {}, "dry_run": False}
NEW_BARRIER = {"name": "audit-1"}
BACKUP_POINT = {"identity": "0123456789abcdef", "epoch": 3, "seq": 8123}
NEW_AUDIT: dict[str, Any] = {
    "id": "20130101T050000-compare", "job": "compare", "barrier": "audit-1", "started_at": "2013-01-01T05:00:00Z",
    "finished_at": "2013-01-01T05:01:00Z", "outcome": "good", "differences": 0, "tables": ["flights"], "by": "ann@host",
}
_REPORT = SentReport(
    version=1, source="a", peer="b", tables_count=1, tables=[TableCount("flights", 336_776, 336_775, {"stale": 1})],
    kinds={"stale": 1}, advice={"stale": "A write was not applied there."}, differences_count=1,
    differences=[FoundDifference("stale", "flights", "UA,1545", "", "89173404839936000", "89173404839935999")],
    places=[KeyShares("flights", {"stale": [0, 1, 0, 0]})], stages=[Stage("digests of a", 21.5)], pace=[Pace(21.5, 336_776)],
)
NEW_REPORT: dict[str, Any] = msgspec.to_builtins(_REPORT)
NEW_PROGRESS: dict[str, Any] = {
    "job": "compare", "phase": "digests of b", "elapsed_s": 32.5, "done": 336_776, "total": 673_552, "unit": "rows",
}

# ---- answers
_VERSION = "89173404839936000"
_RECEIPT = "AQEAAAMAAAAAAAAAKgAAAAAAAAA"
TABLE = TableDocument(
    "flights",
    [
        ColumnDocument("carrier", "string", False, None), ColumnDocument("flight", "int32", False, None),
        ColumnDocument("delay_min", "float64", True, None), ColumnDocument("seen_at", "timestamp", True, None),
    ],
    ["carrier", "flight"], None, "sync", 0,
)
TABLES = TableList([TABLE], [KeptTableDocument(
    "planes", "planes~3145729", datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 5, tzinfo=UTC),
    [ColumnDocument("tail", "string", False, None)], ["tail"],
)])
TABLE_FIGURES = TableFiguresDocument(
    "flights", "a", 2, TableSizeDocument(340_000, "estimated", 29_000_000, None, 3.2),
    OtherTableDocument("b", "same", 2, TableSizeDocument(330_000, "estimated", 28_000_000, None, 0.1)),
)
WRITTEN = WriteAnswer(_VERSION, _RECEIPT, "sync")
MUTATED = BatchAnswer(_VERSION, _RECEIPT, "sync", 3)
ROW_READ = RowAnswer(ROW, _VERSION)
PAGE = PageAnswer([ROW], [_VERSION], "kwHECO-9v18")
LINES = '{"carrier":"UA","flight":1545,"delay_min":2.0,"seen_at":"2013-01-01T05:17:00Z"}\n'
RECEIPT = ReceiptDocument(_RECEIPT, "survived", 0, 3, 42, "sync")
CLUSTER = ClusterDocument(
    pair="flights", site="a", role=Role.ACTIVE, reason="the plan has opened its epoch", waiting_for=None, epoch=3, mode="sync",
    mode_detail=CommitMode.SYNC, policy="protect", active=ActiveSite("a", "http://10.0.0.1:8401", 3),
    sites={
        "a": SiteDocument("http://10.0.0.1:8401", 8123, role=Role.ACTIVE, release="0.1.0"),
        "b": SiteDocument(
            "http://10.0.0.2:8401", 8121, state="following", durable_seq=8100, sample_age_s=0.02, why=None, release="0.1.0",
        ),
    },
    committed_seq=8123, applied_seq=8123, durable_seq=8100, replication_lag=ReplicationLag(2, 0.02),
    remote_log=RemoteLogDocument(1_048_576, 1, 0, None), at_risk=AtRisk(0, True), resync=None, operation=None,
    serving=ServingDocument(True, True, False), troubles=[], now_ms=1_357_016_400_000,
    release="0.1.0", formats={"protocol": FormatDocument((1, 1), 1), "segments": FormatDocument((2, 3), 3)},
    dependencies={
        "own DFS": DependencyDocument(1.2, None, None), "coordinator": DependencyDocument(0.1, 86.4, None),
        "peer DFS": DependencyDocument(0.05, None, None), "peer": DependencyDocument(0.02, None, None),
    },
)
_OPERATION = Operation(
    "op-3f9c", "switchover", "b", {}, "ann@host (10.0.0.9)", 1_357_016_400_000,
    (
        StepRecord("preflight", "check both sites", True, "done", 1_357_016_400_000, 1_357_016_400_020, {"ok": 12}),
        StepRecord("drain", "let site a finish its writes", True, "running", 1_357_016_400_020),
        StepRecord("open", "open epoch 4 at site b", False),
    ),
)
_PREFLIGHT, _DRAIN, _OPEN = _OPERATION.steps
OPERATION = document(_OPERATION)
OPERATIONS = OperationList([OPERATION])
_PLAN = OperationResult(20, {"preflight": 20})
PLANNED = document(Operation(
    _OPERATION.id, _OPERATION.kind, _OPERATION.to, {}, _OPERATION.actor, _OPERATION.created_ms,
    (_PREFLIGHT, StepRecord(_DRAIN.name, _DRAIN.what, True), _OPEN), dry_run=True, state="succeeded",
    finished_ms=1_357_016_400_021, result=_PLAN,
))
CHECKS = ChecksDocument(
    "switchover", "b", True, [Check("replication.lag", "ok", "0 records behind, heard 0.1 s ago")], None
)
VIEW = SiteView(
    own=SiteFacts(
        site="a", pair="flights", release="0.1.0", wall_ms=1_357_016_400_000, lease_s=1.0, drift_margin=0.2,
        initial_active="a", policy="protect", role="ACTIVE", epoch=3, mode="sync", lease_left_s=0.8,
        serves_reads=True, serves_writes=True, applied_seq=8123, durable_seq=8100, committed_seq=8123,
    ),
    peer=StatusReply("b", "STANDBY", 3, "sync", 8121, 8100, 8121, ""),
    register=PairState(7, 3, 3, "a", "op-3f9b", reason="site a opened epoch 3"),
    answers=Answers(8123, 0, 24.4),
)
BARRIER = BarrierDocument(
    "audit-1", 3, 8123, "2013-01-01T05:00:00.000Z", "2013-01-01T06:00:00.000Z", "rocksdb",
    "rocksdb:/srv/twinlog/engine/kept/audit-1/rocksdb",
)
BARRIERS = BarrierList("a", [BARRIER])
AUDIT = AuditRun(
    "20130101T050000-compare", "compare", datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 1, 5, 1, tzinfo=UTC), "good",
    "audit-1", 0, ["flights"], "ann@host",
)
TRAIL = TrailDocument("b", 812, "5f" * 32, None, [TrailLine(
    812, 1_357_016_400_000, "operation.begun", "begun", TrailWho("ann", "token", "10.0.0.7", "ann@host"),
    {"kind": "failover", "to": "b", "options": {"accept_data_loss": 12}}, "14c0a1b2c3d-5e6f7a8b", 0, 0,
)])
RELOADED = ReloadDocument(
    "a", [SettingChange("access.limits.requests_per_s", "not set", "2000.0")], [SettingChange("http.port", "8401", "8501")],
)
LOG_LEVEL = {"level": "debug"}
LOG_LEVEL_SET = ReloadDocument("a", [SettingChange("log.level", "info", "debug")])
AUDITS = Audits({"compare": AUDIT}, AUDIT)
_RUNNING = RunningAudit("20130102T050000Z-compare", AuditProgress(**NEW_PROGRESS), 1.5, "running")
AUDIT_LIST = AuditList([_RUNNING], [PastRun(AUDIT, 1)])
AUDIT_SHOWN = AuditDocument(AUDIT.id, AUDIT, 1, _REPORT, 0, None)
HEALTH = HealthAnswer("a", Role.ACTIVE, reads=True, writes=True, follows=False)
METRICS = "twinlog_epoch 3.0\n"
