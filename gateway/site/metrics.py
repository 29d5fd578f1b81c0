"""The figures of a site by the names of the catalogue, and the lag, which screens show, too.

What always holds: unknown figures are left out, never shown as 0; what the other site only had in memory counts while it is
heard, for it may have restarted since. Source: switchover-lessons.md (21, "misleading lag").
"""

from __future__ import annotations

import re
from math import isfinite

from gateway.epoch.active_epoch import ActiveEpoch
from gateway.epoch.commit_rule import CommitMode
from gateway.metrics.catalogue import Figure, Labelled
from gateway.service.documents import AtRisk, ReplicationLag
from gateway.site.serving_facts import SiteCondition, lacks_base, site_condition
from gateway.site.site import Site
from remote_log.replication.understanding import Understanding
from switchover.roles.table import Role

SAMPLE_OLD_S = 5.0  # ten of the shipper's idle rounds
OPERATOR = "the operator"  # how that begins which a site waits for until somebody acts


def site_metrics(site: Site) -> dict[str, Figure | Labelled]:
    condition = site_condition(site)
    figures: dict[str, Figure | Labelled] = {
        "role": {(str(role),): float(role is site.role) for role in Role},
        "site_info": {(site.settings.pair, site.site, site.settings.policy, site.settings.engine.kind): 1.0},
        "epoch_open": float(site.active_epoch is not None),
        "waits": float(site.waiting_for is not None),
        "waits_for_operator": float((site.waiting_for or "").startswith(OPERATOR)),
        "notices": len(site.notices()),
        "epoch": site.epoch,
        "remote_append_seconds": site.remote_appends,
        "collector_seconds": site.collections,
        "fence_rejections_total": site.fence_rejections,
        "epochs_ended_total": {(cause,): float(count) for cause, count in site.epochs_ended.items()},
        "sink_frames_total": site.sink.frames_received,
        "sink_bytes_total": site.sink.bytes_received,
        **_of_releases(site.parts.understanding),
        **_of_condition(condition),
        **_of_storage(site),
        **site.audits.figures(),
        **site.backup_holds.figures(site.settings.backups),
    }
    if site.pair_state is not None:
        figures["register_state_id"] = site.pair_state.state_id
    if (silence_s := site.follower_silence_s()) is not None:
        figures["active_heard_age_seconds"] = silence_s
    if (vouched_s := site.vouched_s()) is not None:
        figures["standby_staleness_seconds"] = site.age_s(vouched_s)
    if site.active_epoch is not None:
        figures |= _of_epoch(site, site.active_epoch)
        if condition.serving.writes:  # else nobody is acknowledged, in no mode
            figures["mode_sync"] = float(site.active_epoch.core.mode is CommitMode.SYNC)
    return figures


def risk_metrics(site: Site, risk: AtRisk | None) -> dict[str, float]:
    """`risk`: as the cluster document has it."""
    epoch = site.active_epoch
    if epoch is None or risk is None or risk.records is None:
        return {}
    found = {"at_risk_records": float(risk.records)}
    behind = epoch.commit.marks.behind(epoch.core.committed - risk.records, site.parts.clock.monotonic_s())
    return found if behind is None else found | {"at_risk_bytes": float(behind.bytes), "at_risk_seconds": behind.seconds}


def _slug(words: str) -> str:
    return re.sub(r"[^a-z]+", "_", words.lower().replace("'", ""))


def _of_releases(known: Understanding) -> dict[str, Figure | Labelled]:
    versions: dict[tuple[str, ...], float] = {}
    for what, (lowest, highest) in known.own.formats.items():
        versions |= {(what, "lowest_read"): lowest, (what, "highest_read"): highest, (what, "written"): known.writes(what)}
    return {"format_version": versions, "releases_fit": float(known.conflict is None)}


def _of_condition(condition: SiteCondition) -> dict[str, Figure | Labelled]:
    words = {(_slug(subject),): word for subject, word in condition.words.items()}
    return {
        "serves_reads": float(condition.serving.reads),
        "serves_writes": float(condition.serving.writes),
        "follows": float(condition.serving.follows),
        "troubles": len(condition.troubles),
        "trouble": {(_slug(one.about),): 1.0 for one in condition.troubles},
        "dependency_ok": {subject: float(word.error is None) for subject, word in words.items()},
        "dependency_answered_age_seconds": {
            subject: max(0.0, condition.now_s - word.answered_s)
            for subject, word in words.items() if word.answered_s is not None
        },
    }


def _of_storage(site: Site) -> dict[str, Figure | Labelled]:
    engine = site.parts.engine
    return {
        "applied_seq": engine.applied.seq,
        "durable_seq": engine.durable_seq,
        "wal_bytes": site.parts.wal.bytes_held,
        "wal_tail_bytes": site.parts.wal.tail_bytes,
        "refusals_bytes": site.rows.refusals.size_bytes,
        "wal_segments": len(site.parts.wal.segments()),
        "admission_queue_bytes": site.admission.queued_bytes,
        "admission_requests": site.admission.requests,
        "limit_refusals_total": {("write_queue",): float(site.admission.refused)},
        "tables": len(site.catalog.writable),
        "barriers_held": len(engine.kept_snapshots()),
        **{f"engine_{name}": float(value) for name, value in engine.counters().items()},
    }


def _of_epoch(site: Site, epoch: ActiveEpoch) -> dict[str, Figure | Labelled]:
    now_s, lease_s, commit, shipper = site.parts.clock.monotonic_s(), site.settings.lease.lease_s, epoch.commit, epoch.shipper
    figures: dict[str, Figure | Labelled] = {
        "lease_seconds": lease_s,
        "lease_remaining_seconds": max(0.0, lease_s - epoch.proof_age_s),
        "waiting_write_age_seconds": commit.waiting_age_s(now_s),
        "local_append_seconds": commit.appends,
        "apply_seconds": commit.applies,
        "snapshot_seconds": commit.snapshots,
        "committed_seq": epoch.core.committed,
        "frames_in_flight": epoch.core.frames_in_flight,
        "shipped_frames_total": shipper.frames_shipped,
        "shipped_bytes_total": shipper.bytes_shipped,
        "shipped_base_rows_total": shipper.base_rows_sent,
        "standby_setbacks_total": shipper.setbacks.count,
    }
    if isfinite(epoch.proof_age_s):
        figures["lease_proof_age_seconds"] = epoch.proof_age_s
    if commit.acknowledged_s is not None:
        figures["last_acknowledgement_age_seconds"] = now_s - commit.acknowledged_s
    if (lag := replication_lag(site)) is not None:
        figures["replication_lag_records"] = lag.records
        if lag.sample_age_s is not None:
            figures["replication_sample_age_seconds"] = lag.sample_age_s
        if (behind := commit.marks.behind(epoch.core.committed - lag.records, now_s)) is not None:
            figures |= {"replication_lag_bytes": behind.bytes, "replication_lag_seconds": behind.seconds}
    if epoch.remote is not None:
        segments = epoch.remote.segments
        figures["remote_log_bytes"] = sum(segment.bytes for segment in segments)
        figures["remote_log_segments"] = len(segments)
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
