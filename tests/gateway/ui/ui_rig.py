"""Looks at a pair as the page gets them, and pages as a browser shows them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from msgspec.structs import replace

from gateway.epoch.commit_rule import CommitMode
from gateway.service.documents import (
    ActiveSite,
    AtRisk,
    ClusterDocument,
    DependencyDocument,
    RemoteLogDocument,
    ReplicationLag,
    ServingDocument,
    SiteDocument,
)
from gateway.ui.looks import Counts, SiteLook
from gateway.ui.rendering import regions
from gateway.ui.views.now import now_page
from gateway.ui.watch import PairSeen, Point, Side
from switchover.monitor.findings import AdviceKind
from switchover.monitor.judgement import Advice
from switchover.operations.document import Operation, OperationDocument, StepRecord, document
from switchover.roles.table import Role

NOW_MS = 1_700_000_010_000
URLS = {"a": "http://a.example:8401", "b": "http://b.example:8401"}
WELL = DependencyDocument(0.1, None, None)
NOTHING = Advice(AdviceKind.NOTHING, "all is well")


def cluster(site: str = "a", role: str = "ACTIVE", **changes: Any) -> ClusterDocument:
    """A site of a pair that is well, with site a active."""
    is_active = role.endswith("ACTIVE")
    made = ClusterDocument(
        pair="shop", site=site, role=Role(role), reason="", waiting_for=None,
        serving=ServingDocument(is_active, is_active, role == "STANDBY"), troubles=[],
        dependencies={name: WELL for name in ("own DFS", "peer DFS", "coordinator", "peer", "storage", "local log")},
        now_ms=NOW_MS, release="0.1.0", formats={},
        epoch=3, mode="sync", mode_detail=CommitMode.SYNC if is_active else None, policy="protect",
        active=ActiveSite("a", URLS["a"], 3),
        sites={
            "a": SiteDocument(URLS["a"], 120), "b": SiteDocument(URLS["b"], 120, state="following", sample_age_s=0.2),
        },
        committed_seq=120, applied_seq=120, durable_seq=100, replication_lag=ReplicationLag(0, 0.2) if is_active else None,
        remote_log=RemoteLogDocument(4096, 1, 0, None) if is_active else None, at_risk=AtRisk(0, True) if is_active else None,
        resync=None, operation=None,
    )
    return replace(made, **changes)


def look(site: str = "a", role: str = "ACTIVE", *, operation: OperationDocument | None = None, **changes: Any) -> SiteLook:
    counts = Counts((0,) * 4 + (5,) + (0,) * 14, 0.006)
    figures = {"wal_bytes": float(1 << 20), "engine_disk_bytes": float(5 << 20)}
    return SiteLook(cluster(site, role, **changes), figures, {"ack_seconds_sync": counts}, operation)


def pair_seen(
    a: SiteLook | str = "", b: SiteLook | str = "", *, site: str = "a", advice: Advice | None = NOTHING,
    unwritten_s: float = 0.0,
    operations: tuple[tuple[str, OperationDocument], ...] = (), number: int = 1,
) -> PairSeen:
    """`a`, `b`: a look, or why the site does not answer; left out: it is well."""
    sides = {}
    for name, given, role in (("a", a or look("a"), "ACTIVE"), ("b", b or look("b", "STANDBY"), "STANDBY")):
        if isinstance(given, str):
            sides[name] = Side(error=given, seen_s=95.0, last=look(name, role))
        else:
            sides[name] = Side(given, seen_s=100.0, last=given)
    return PairSeen(
        number, site, "b" if site == "a" else "a", 100.0, sides, advice, unwritten_s,
        (Point(98.0, 10.0, True), Point(99.0, 0.0, False), Point(100.0, 12.0, True)), operations,
    )


STEPS = (
    ("preflight", True, "done", 0, 100), ("drain", True, "done", 100, 150), ("catch_up", True, "done", 150, 200),
    ("step_down", False, "done", 200, 260), ("claim", False, "running", 260, None), ("open", False, "pending", None, None),
)


def operation(state: str = "running", steps: tuple[Any, ...] = STEPS, **changes: Any) -> OperationDocument:
    """A switchover to site b that passed its point of no return."""
    begun_ms = NOW_MS - 400
    records = tuple(
        StepRecord(name, f"what {name} does", back, how, None if at is None else begun_ms + at,
                   None if end is None else begun_ms + end) for name, back, how, at, end in steps
    )
    made = Operation("op-1", "switchover", "b", {"reason": "disk"}, "anna (10.0.0.1)", begun_ms, records, state=state)  # type: ignore[arg-type]
    return document(replace(made, **changes))


def now_text(seen: PairSeen, *, is_advised: bool = True) -> str:
    """Returns what a person reads on the page *Now*."""
    page = now_page(seen, is_advised=is_advised)
    return text_of(" ".join(regions("now.html", {"page": page, "is_advised": is_advised}).values()))


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


