"""The gauges of a site by Prometheus name, and the lag, which screens show, too.

What always holds: unknown figures are left out, never shown as 0; what the other site only had in memory counts while it is
heard, for it may have restarted since. Source: switchover-lessons.md (21, "misleading lag").
"""

from __future__ import annotations

from math import isfinite

from gateway.epoch.commit_rule import CommitMode
from gateway.service.documents import ReplicationLag
from gateway.service.histogram import Histogram
from gateway.site.serving_facts import lacks_base, site_condition
from gateway.site.site import Site
from switchover.roles.table import Role

ROLE_NUMBERS = {role: number for number, role in enumerate(Role)}
SAMPLE_OLD_S = 5.0  # ten of the shipper's idle rounds


def site_metrics(site: Site) -> dict[str, float | Histogram]:
    engine, condition = site.parts.engine, site_condition(site)
    figures: dict[str, float | Histogram] = {
        "role": ROLE_NUMBERS[site.role],
        "is_active": float(site.active_epoch is not None),
        "serves_reads": float(condition.serving.reads),
        "serves_writes": float(condition.serving.writes),
        "follows": float(condition.serving.follows),
        "troubles": len(condition.troubles),
        "epoch": site.epoch,
        "applied_seq": engine.applied.seq,
        "durable_seq": engine.durable_seq,
        "wal_bytes": site.parts.wal.bytes_held,
        "admission_queue_bytes": site.admission.queued_bytes,
        "admission_requests": site.admission.requests,
        "admission_refused_total": site.admission.refused,
        "remote_append_seconds": site.remote_appends,
        "collector_seconds": site.collections,
        "sink_frames_total": site.sink.frames_received,
        "sink_bytes_total": site.sink.bytes_received,
        "barriers_held": len(engine.kept_snapshots()),
        **{f"engine_{name}": float(value) for name, value in engine.counters().items()},
        **site.audits.figures(),
        **site.door_figures(),
    }
    for subject, word in condition.words.items():
        figures[f"{subject.lower().replace(' ', '_')}_ok"] = float(word.error is None)
    if site.pair_state is not None:
        figures["coordinator_state_id"] = site.pair_state.state_id
    epoch = site.active_epoch
    if epoch is not None:
        now_s = site.parts.clock.monotonic_s()
        if condition.serving.writes:  # else nobody is acknowledged, in no mode
            figures["mode_sync"] = float(epoch.core.mode is CommitMode.SYNC)
        if isfinite(epoch.proof_age_s):
            figures["lease_proof_age_seconds"] = epoch.proof_age_s
        if epoch.commit.acknowledged_s is not None:
            figures["last_acknowledgement_age_seconds"] = now_s - epoch.commit.acknowledged_s
        figures["waiting_write_age_seconds"] = epoch.commit.waiting_age_s(now_s)
        figures["local_append_seconds"] = epoch.commit.local_appends
        figures["apply_seconds"] = epoch.commit.applies
        figures["snapshot_seconds"] = epoch.commit.snapshots
        figures["committed_seq"] = epoch.core.committed
        figures["frames_in_flight"] = epoch.core.frames_in_flight
        figures["shipped_frames_total"] = epoch.shipper.frames_shipped
        figures["shipped_bytes_total"] = epoch.shipper.bytes_shipped
        figures["shipped_base_rows_total"] = epoch.shipper.base_rows_sent
        figures["standby_setbacks_total"] = epoch.shipper.setbacks.count
        if (lag := replication_lag(site)) is not None:
            figures["replication_lag_records"] = lag.records
            if lag.sample_age_s is not None:
                figures["replication_lag_sample_age_seconds"] = lag.sample_age_s
        if epoch.remote is not None:
            figures["remote_log_bytes"] = sum(segment.bytes for segment in epoch.remote.segments)
            figures["remote_log_segments"] = len(epoch.remote.segments)
            figures["remote_unsynced_frames"] = epoch.remote.unsynced().frames
    return figures


def replication_lag(site: Site) -> ReplicationLag | None:
    """Counts the committed records that the other site lacks, by its newest word; None: unknown, or this is not the active.

    Of a site that does not follow, or was not heard for SAMPLE_OLD_S, only what it had stored durably counts."""
    epoch = site.active_epoch
    if epoch is None or (view := epoch.shipper.view).at_s is None or lacks_base(view, site.parts.wal.first_previous):
        return None
    age_s, committed = site.parts.clock.monotonic_s() - view.at_s, epoch.core.committed
    is_heard = view.state == "following" and age_s <= SAMPLE_OLD_S
    held_seq = view.applied_seq if is_heard else view.durable_seq
    return None if held_seq is None else ReplicationLag(max(0, committed - held_seq), round(age_s, 3))
