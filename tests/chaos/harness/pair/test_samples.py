"""One look at a site: its word by all ways, and what the machine says of its process and its files."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.pair.files.footprint import DELETED, LOG, OTHER, SOCKET, STORAGE, bytes_below, footprint
from chaos.harness.pair.files.remote_copy import RemoteCopy
from chaos.harness.pair.samples import contradictions, sample_of

DOCUMENT: dict[str, Any] = {
    "role": "ACTIVE", "epoch": 3, "mode": "sync", "committed_seq": 10, "applied_seq": 9, "durable_seq": 5, "waiting_for": None,
    "serving": {"reads": True, "writes": True, "follows": False, "why": None, "do": None}, "remote_log": None,
    "replication_lag": {"records": 4, "sample_age_s": 0.1}, "at_risk": {"records": 0, "exact": True},
    "troubles": [{"about": "peer", "seen": "it does not answer", "do": "see to it", "error": None}],
}
FIGURES = {
    'twinlog_role{role="ACTIVE"}': 1.0, "twinlog_epoch": 3.0, "twinlog_troubles": 1.0, "twinlog_serves_reads": 1.0,
    "twinlog_mode_sync": 1.0,
    "twinlog_serves_writes": 1.0, "twinlog_follows": 0.0, "twinlog_applied_seq": 9.0, "twinlog_committed_seq": 10.0,
    "twinlog_replication_lag_records": 4.0,
}
HEALTHY = {"primary": True, "ready": True}


def told(after: dict[str, Any], figures: dict[str, float], healths: dict[str, bool]) -> list[str]:
    shown = {**FIGURES, **figures}
    return list(contradictions(DOCUMENT, {**DOCUMENT, **after}, shown, {**HEALTHY, **healths}))


def test_a_sample_keeps_what_the_status_says() -> None:
    sample = sample_of("a", 1.0, 1.1, DOCUMENT, there=RemoteCopy(10))
    assert (sample.role, sample.at_risk, sample.at_risk_exact, sample.lag_records) == ("ACTIVE", 0, True, 4)
    assert sample.troubles == ("peer: it does not answer",)
    assert sample.serves
    assert sample.written_there == 10
    assert sample.remote_log_bytes is None


def test_health_and_metrics_that_say_the_same_are_no_contradiction() -> None:
    assert not told({}, {}, {})


@pytest.mark.parametrize(("figures", "healths", "what"), [
    ({}, {"primary": False}, "/health/primary says False, and the status reads: True, writes: True"),
    ({}, {"ready": False}, "/health/ready says False"),
    ({'twinlog_role{role="ACTIVE"}': 0.0}, {}, "the metric twinlog_role is not ACTIVE"),
    ({"twinlog_epoch": 4.0}, {}, "the metric twinlog_epoch is 4.0, and by the status 3.0"),
    ({"twinlog_troubles": 0.0}, {}, "the metric twinlog_troubles is 0.0"),
    ({"twinlog_mode_sync": 0.0}, {}, "the metric twinlog_mode_sync is 0.0"),
    ({"twinlog_committed_seq": 11.0}, {}, "the metric twinlog_committed_seq is 11, and by the status 10 to 10"),
])
def test_each_way_that_says_otherwise_is_named(figures: dict[str, float], healths: dict[str, bool], what: str) -> None:
    found = told({}, figures, healths)
    assert len(found) == 1
    assert what in found[0]


def test_what_changed_between_the_two_looks_contradicts_nothing() -> None:
    closed = {"reads": False, "writes": False, "follows": False, "why": "x", "do": "y"}
    assert not told({"serving": closed, "committed_seq": 12}, {"twinlog_serves_writes": 0.0, "twinlog_serves_reads": 0.0,
                    "twinlog_mode_sync": 1.0, "twinlog_committed_seq": 11.0}, {"primary": False, "ready": False})


def test_a_lag_that_one_of_them_does_not_know_is_a_contradiction() -> None:
    without = {name: value for name, value in FIGURES.items() if "lag" not in name}
    found = contradictions(DOCUMENT, DOCUMENT, without, HEALTHY)
    assert any("twinlog_replication_lag_records" in each for each in found)


def test_descriptors_count_by_kind_and_files_by_their_blocks(tmp_path: Path) -> None:
    data, dfs = tmp_path / "a" / "data", tmp_path / "a" / "dfs"
    for folder in (data / "wal", data / "engine", dfs, tmp_path / "b" / "dfs"):
        folder.mkdir(parents=True)
    before = footprint(os.getpid(), data, dfs, disks=True)
    assert before is not None
    assert (before.wal_bytes, before.dfs_bytes) == (0, 0)
    opened = [
        (data / "wal" / "0").open("wb"), (data / "engine" / "0.sst").open("wb"), (tmp_path / "b" / "dfs" / "0").open("wb"),
        (tmp_path / "gone").open("wb"), (tmp_path / "other").open("wb"), socket.socket(),
    ]
    try:
        (tmp_path / "gone").unlink()
        (data / "wal" / "full").write_bytes(bytes(9000))
        after = footprint(os.getpid(), data, dfs, disks=True)
        assert after is not None
        more = {kind: count - before.open_files.get(kind, 0) for kind, count in after.open_files.items()}
        assert {kind: count for kind, count in more.items() if count} == {LOG: 2, STORAGE: 1, DELETED: 1, OTHER: 1, SOCKET: 1}
        assert after.descriptors == before.descriptors + 6
        assert 9000 <= after.wal_bytes == bytes_below(data / "wal")
    finally:
        for each in opened:
            each.close()


def test_of_a_process_that_is_not_there_nothing_is_said(tmp_path: Path) -> None:
    assert footprint(2**22 + 1, tmp_path, tmp_path) is None
