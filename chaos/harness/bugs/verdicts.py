"""Planted bugs of what a gateway says of itself, and of what it never gives back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import gateway.site.cluster_document
import gateway.site.metrics
import gateway.site.serving_facts
import switchover.quarantine
from chaos.harness.bugs.bug import HarnessBug
from gateway.api.problems import Answer
from gateway.http.protocol import DoorProtocol
from gateway.metrics.catalogue import Figure, Labelled
from gateway.service.documents import AtRisk, ServingDocument
from gateway.site.serving_judgement import ServingFacts, judge_serving
from gateway.site.site import Site
from storage.log.frame import Frame
from storage.log.record import Record
from storage.log.wal import Wal
from switchover.roles.table import Role, permissions

KEPT_BYTES = 8192
_lost, _write, _metrics = DoorProtocol.connection_lost, DoorProtocol._write, gateway.site.metrics.site_metrics
_key = switchover.quarantine._key
_kept: list[bytes] = []


def _connection_lost(self: DoorProtocol, error: Exception | None) -> None:
    _lost(self, error)
    os.open(os.devnull, os.O_RDONLY)


def _write_and_keep(self: DoorProtocol, answer: Answer, keep_alive: bool) -> None:
    _write(self, answer, keep_alive)
    _kept.append(b"x" * KEPT_BYTES)


async def _keep_all(self: Wal, below_seq: int) -> int:
    return 0


def _nothing(site: Site) -> AtRisk | None:
    return None if site.active_epoch is None else AtRisk(0, exact=True)


def _always_well(facts: ServingFacts) -> ServingDocument:
    is_open = facts.proof_age_s is not None and permissions(facts.role).writes
    return ServingDocument(True, True, False) if is_open else judge_serving(facts)


def _no_troubles(facts: ServingFacts, serving: ServingDocument) -> list[Any]:
    return []


def _always_sync(site: Site) -> dict[str, Figure | Labelled]:
    return _metrics(site) | ({"mode_sync": 1.0} if "mode_sync" in _metrics(site) else {})


def _without_the_last_digit(schemas: Mapping[int, bytes], frame: Frame, index: int, record: Record) -> dict[str, Any]:
    named = _key(schemas, frame, index, record)
    return named | {"version": named["version"] - 1}


def _vouched_now(self: Site) -> float | None:
    return self.parts.clock.monotonic_s() if self.role is Role.STANDBY else None


BUGS = (
    HarnessBug(
        "leaks-a-descriptor", "A descriptor is kept for each connection that ends.", "I6", "resets", ("resources",),
        ((DoorProtocol, "connection_lost", _connection_lost),),
    ),
    HarnessBug(
        "leaks-memory", "A few kilobytes are kept for each request that was answered.", "I6", "resets", ("memory",),
        ((DoorProtocol, "_write", _write_and_keep),),
    ),
    HarnessBug(
        "keeps-every-segment", "Segments of the WAL that nobody needs any more are not deleted.", "I6", "sync-fails",
        ("resources",), ((Wal, "trim", _keep_all),),
    ),
    HarnessBug(
        "nothing-at-risk", "The status says that nothing is at risk, whatever the mode.", "P8", "failover-with-loss",
        ("at_risk",), ((gateway.site.cluster_document, "at_risk", _nothing),),
    ),
    HarnessBug(
        "always-well", "An active says that it takes writes, and names no trouble, whatever it waits for.", "P8", "dfs-hangs",
        ("all_well",), (
            (gateway.site.serving_facts, "judge_serving", _always_well),
            (gateway.site.serving_facts, "site_troubles", _no_troubles),
        ),
    ),
    HarnessBug(
        "always-fresh", "A standby says that it is not behind, whatever it has heard.", "P4", "link-cut-a-to-b", ("fresh",),
        ((Site, "vouched_s", _vouched_now),),
    ),
    HarnessBug(
        "metric-of-before", "The metric of the mode stays as it was at the beginning.", "P8", "standby-degraded", ("one_word",),
        ((gateway.site.cluster_document, "site_metrics", _always_sync),),
    ),
    HarnessBug(
        "names-another-row", "The manifest of a quarantine names other versions than were lost.", "P6", "failover-with-loss",
        ("losses", "acknowledged"), ((switchover.quarantine, "_key", _without_the_last_digit),),
    ),
)
