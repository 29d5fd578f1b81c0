"""The rows of the fault matrix: what can go wrong, and the scenarios that show it on real processes.

What always holds: every scenario belongs to a row; a row without one names what holds it instead, and why a run of a pair would
show less (a test looks at both). Source: docs/chaos.md, "The matrix".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """`elsewhere`: the tests that hold what no scenario shows, or shows less of."""

    name: str
    sentence: str
    scenarios: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


ROWS = (
    Row("remote-log-fails", "the remote log fails, and the local one does not", ("dfs-fails", "dfs-hangs", "dfs-slow")),
    Row("local-log-fails", "the local log fails, and the remote one does not", ("wal-fails",)),
    Row("both-logs-fail", "both logs fail at once", ("both-logs-fail",)),
    Row("gateway-killed", "a gateway is killed at any moment", ("active-killed", "standby-killed"), ("tests/crash",)),
    Row("killed-at-a-step", "a gateway, or the operator's command, dies at a step of a role change or of a write",
        ("switchover-steps", "failover-steps", "write-steps", "at-steps"), ("tests/crash",)),
    Row("clock-skew", "clocks jump, and drift within what the protocol allows", ("clock-jumps", "clock-drifts")),
    Row("nothing-left", "file descriptors, memory or threads are exhausted", ("resources", "memory-short")),
    Row("site-lost", "a whole site is lost, with its disk and its DFS", ("site-lost",)),
    Row("loss-accepted", "an asynchronous active is lost, and its loss is accepted", ("site-lost-async", "failover-with-loss")),
    Row("partition", "one site does not reach the other", ("link-cut-a-to-b", "link-cut-b-to-a", "network-split")),
    Row("register-apart", "the register is decided at each site apart", ("register-apart",)),
    Row("dfs-servers-down", "NameNodes and DataNodes are killed, stopped, or cut off",
        ("datanode-killed", "namenode-paused", "dfs-link-cut")),
    Row("coordinator-down", "the server of the coordinator is killed, stopped, or cut off",
        ("coordinator-server-killed", "coordinator-link-cut")),
    Row("database-down", "a storage in PostgreSQL is killed, stopped, or cut off", ("postgres-killed",)),
    Row("standby-away", "the standby is away, and the pair is degraded by hand", ("standby-degraded",)),
    Row("monitor-fails", "a monitor that acts is killed or stopped, and wakes", ("monitor-killed",)),
    Row("bad-links", "links are slow, narrow, jittery, pass pieces, or are reset, also all at once",
        ("slow-link", "resets", "toxiproxy-killed")),
    Row("disk-full", "a disk is full", ("disk-full",)),
    Row("sync-fails", "a sync fails, or writes are refused", ("sync-fails",)),
    Row("disk-hangs", "a disk hangs", ("disk-hangs",)),
    Row("stopped-active-wakes", "the active is stopped, or its event loop stands, it loses its role, and wakes or ends",
        ("active-stopped", "loop-stands")),
    Row("power-lost", "a site loses power, or both do, with what was not synced",
        ("power-lost-active", "power-lost-alone", "power-lost-both", "power-lost-standby"), ("tests/chaos/crash_states",)),
    Row("back-in-time", "a register, a log, a storage, a disk or a DFS is an older copy",
        ("register-restored", "register-restored-for-good", "wal-restored", "storage-restored", "dfs-restored")),
    Row("bits-turned", "a bit of a file turns, or a file is cut",
        ("bits-turned-wal", "bits-turned-dfs", "bits-turned-engine", "bits-turned-engine-active", "bits-turned-notes",
         "wal-cut"),
        ("tests/storage/log/test_wal_recovery.py",)),
    Row("wrong-configuration", "a site is started with another site's file, or a wrong one",
        ("wrong-config", "wrong-config-active", "wrong-config-refused")),
    Row("secrets-renewed", "certificates are renewed and a token is revoked under load", ("secrets-renewed",)),
    Row("two-releases", "an earlier gateway runs beside one of this release", ("upgraded",)),
    Row("torn-write", "a frame is cut at every byte",
        elsewhere=("tests/storage/log/test_wal_recovery.py", "tests/chaos/crash_states")),
    Row("late-writer", "frames of an old epoch arrive late or twice", ("dfs-hangs", "active-stopped"),
        ("tests/remote_log/replication",)),
    Row("audit-blind-spot", "one row is missing, one is stale, one is too many", elsewhere=("tests/spark_jobs",)),
)
BY_NAME = {row.name: row for row in ROWS}
