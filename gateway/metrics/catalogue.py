"""The list of every metric of a site: name, type, labels, and what it says. docs/metrics.md is drawn from it.

What always holds: nothing is on `/metrics` that is not in this list; names follow Prometheus' conventions (base units, `_total`
on counters alone), and every label has few values, which no client chooses; names of tables are bounded by TABLES_MAX of
gateway/table_figures/series.py. Source: product.md section 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gateway.service.histogram import Histogram

Kind = Literal["gauge", "counter", "histogram"]
Figure = float | Histogram
Labelled = Mapping[tuple[str, ...], Figure]  # by the values of its labels
Figures = Mapping[str, Figure | Labelled]  # by the name of a metric, without PREFIX; what is not known is not there
PREFIX = "twinlog_"


class Metric(NamedTuple):
    """One metric. `help`: the text that Prometheus shows, and docs/metrics.md."""

    name: str  # without PREFIX
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _gauges(**helps: str) -> list[Metric]:
    return [Metric(name, "gauge", text) for name, text in helps.items()]


def _counters(**helps: str) -> list[Metric]:
    return [Metric(f"{name}_total", "counter", text) for name, text in helps.items()]


def _histograms(**helps: str) -> list[Metric]:
    return [Metric(f"{name}_seconds", "histogram", text) for name, text in helps.items()]


SECTIONS: dict[str, list[Metric]] = {
    "Role and service": [
        Metric("role", "gauge", "1 for the role that the site has, 0 for the others.", ("role",)),
        Metric("site_info", "gauge", "Always 1; the site by name, and what it is configured to be.",
               ("pair", "site", "policy", "engine")),
        Metric("build_info", "gauge", "Always 1; the release of twinlog and the Python that runs it.", ("version", "python")),
        Metric("format_version", "gauge",
               "The lowest and highest version of each format that the release reads, and the highest that it writes.",
               ("format", "of")),
        *_gauges(
            releases_fit="0 while the other site, as it was last heard, runs a release that does not work with this one.",
            epoch_open="1 while the site has an epoch open, so that it is the writer of the log.",
            serves_writes="1 while the site takes writes.",
            serves_reads="1 while the site answers reads as the active.",
            follows="1 while the site follows the active as a standby.",
            epoch="The epoch that the site has open, or follows.",
            register_state_id="The number of the newest value of the register that the site has read.",
            mode_sync="1 while writes wait for both logs, 0 while for the local log alone. Of an active that takes writes.",
            waits="1 while the site waits for something before it can serve or follow.",
            waits_for_operator="1 while the site waits for a person: a role change stopped, or a fault ended its epoch.",
            troubles="The number of faults that keep the site from being whole.",
            notices="The number of notices about listeners and certificates.",
            insecure="1 where the configuration says insecure = true, and a listener that others reach is unprotected.",
        ),
        Metric("trouble", "gauge", "1 for each fault that keeps the site from being whole, by what it is about.", ("about",)),
        Metric("dependency_ok", "gauge", "0 while the newest word of something that the site depends on is an error.",
               ("dependency",)),
        Metric("dependency_answered_age_seconds", "gauge", "The time since something that the site depends on last answered.",
               ("dependency",)),
    ],
    "Lease and fencing": [
        *_gauges(
            lease_seconds="How long a proof lets an active serve.",
            lease_proof_age_seconds="The age of the newest proof that the active is not fenced.",
            lease_remaining_seconds="How long the newest proof still lets the active serve; 0: it serves nobody.",
        ),
        *_counters(fence_rejections="Calls of an older epoch that the site rejected: an old active tries to write."),
        Metric("epochs_ended_total", "counter", "Open epochs that ended without a command: fenced, or by a fault.", ("cause",)),
    ],
    "Writes and reads": [
        Metric("ack_seconds", "histogram", "Acknowledged writes, from the whole request to the acknowledgement.", ("mode",)),
        *_histograms(
            read="Reads of one row.",
            local_append="Appends to the local log, until they are synced.",
            remote_append="Appends to the remote log, until they are durable there.",
            apply="How long writes wait for the storage.",
            snapshot="How long writes wait for the snapshot of a barrier.",
        ),
        *_gauges(
            admission_queue_bytes="Bytes of writes that are admitted and not settled.",
            admission_requests="Writes that are admitted and not settled.",
            frames_in_flight="Frames that are logged and not committed.",
            committed_seq="The last committed sequence. Of an active.",
            applied_seq="The last sequence that the storage has applied.",
            durable_seq="The last sequence that the storage has on its disk.",
            last_acknowledgement_age_seconds="The time since a write was last acknowledged in this epoch.",
            waiting_write_age_seconds="How long writes have waited without one acknowledgement; 0: nobody waits.",
            wal_bytes="The size of the local log on the disk.",
            wal_segments="The segments of the local log.",
            wal_tail_bytes="What the newest frames of the log take in memory, to be shipped without a look at the files.",
        ),
    ],
    "Replication and what is at risk": [
        *_gauges(
            replication_lag_records="Committed records that the other site has not applied. Of an active.",
            replication_lag_bytes="The most that these records may have in the log.",
            replication_lag_seconds="The most that may have passed since the oldest of these records was logged.",
            replication_sample_age_seconds="The age of the other site's newest word about what it has applied.",
            at_risk_records="Acknowledged records that the other site may lack if this one is lost now.",
            at_risk_bytes="The most that these records may have in the log.",
            at_risk_seconds="The most that may have passed since the oldest of these records was logged.",
            standby_staleness_seconds="The age of the newest moment before which nothing acknowledged is missing here.",
            active_heard_age_seconds="The time since the active was last heard. Of a standby.",
            resync_automatic="1 where the pair returns to synchronous mode without a command. Of a degraded active.",
            resync_records_left="Records that are missing at the other site before the mode is synchronous again.",
            remote_log_bytes="The size of the remote log on the other site's DFS. Of an active.",
            remote_log_segments="The segments of the remote log.",
            remote_unsynced_frames="Frames that were sent to the remote log and are not known to be durable there.",
        ),
        *_counters(
            shipped_frames="Frames that this epoch has shipped to the other site.",
            shipped_bytes="Bytes of log that this epoch has shipped to the other site.",
            shipped_base_rows="Rows of base data that this epoch has sent.",
            standby_setbacks="How often the other site held less than it had stored.",
            sink_frames="Frames that the site has taken from the active.",
            sink_bytes="Bytes of log that the site has taken from the active.",
        ),
    ],
    "Role changes, audits and backups": [
        Metric("operations_total", "counter", "Role changes that ended at this site since its start, by kind and outcome.",
               ("kind", "outcome")),
        Metric("operation_seconds", "gauge", "How long the newest role change of a kind took that succeeded at this site since "
               "its start.", ("kind",)),
        Metric("operation_without_writes_seconds", "gauge", "How long no site took writes in that role change, as far as its "
               "steps say it: of a switchover.", ("kind",)),
        *_gauges(
            operation_running="1 while a role change runs at the site.",
            last_good_audit_timestamp_seconds="When an audit last found both sites equal.",
            last_good_audit_age_seconds="The time since an audit last found both sites equal.",
            last_backup_timestamp_seconds="When a call of `twinlog backup` last ended well. Not there before the first one.",
            last_backup_age_seconds="The time since a call of `twinlog backup` last ended well.",
            last_backup_age_max_seconds="The age from which that counts as old (`backups.old_after_s`).",
            barriers_held="Barriers whose snapshot the site keeps.",
        ),
        Metric("audit_differences", "gauge", "The differences that the last audit of a kind found.", ("audit",)),
        Metric("audit_good", "gauge", "1 where the last audit of a kind saw everything and found no difference.", ("audit",)),
        Metric("audit_timestamp_seconds", "gauge", "When the last audit of a kind ended.", ("audit",)),
    ],
    "Storage": [
        *_gauges(
            tables="Tables that are not dropped.",
            engine_disk_bytes="The size of the storage on its disk.",
            engine_memtable_bytes="What the storage holds in memory and has not written.",
            engine_cache_bytes="What the storage keeps in memory of its files, so that it need not read them again.",
            engine_pending_compaction_bytes="What the storage has to merge.",
            engine_kept_bytes="What the storage keeps for barriers alone.",
            disk_free_bytes="Free space on the disk of the data directory, looked at every few seconds.",
        ),
        Metric("table_rows", "gauge",
               "The rows of a table at the site: counted where it is small, else estimated from a sample. Of the 100 oldest "
               "tables, each measured every five minutes.", ("table",)),
        Metric("table_bytes", "gauge", "The size of its keys and values, before any compression.", ("table",)),
        Metric("table_disk_bytes", "gauge", "What it takes in its database with its indexes, where the database says so.",
               ("table",)),
    ],
    "Requests and limits": [
        Metric("http_requests_total", "counter", "Requests whose head was whole, by method.", ("method",)),
        Metric("http_problems_total", "counter", "Answers that were problems, by HTTP status and error code.",
               ("status", "code")),
        Metric("http_connections", "gauge", "Connections that hold a place at a listener.", ("listener",)),
        Metric("limit_refusals_total", "counter", "What a limit refused: connections, bodies, requests of an identity, writes.",
               ("limit",)),
        *_gauges(
            bodies_held_bytes="Bytes of request bodies that are under way.",
            refusals_bytes="What the refusals take in memory that are repeated under their idempotency keys.",
        ),
    ],
    "TLS and the audit trail": [
        Metric("certificate_not_after_timestamp_seconds", "gauge", "When the certificate of a listener ends.", ("listener",)),
        Metric("tls_files_ok", "gauge", "0 while new TLS files cannot be used, and the old ones are.", ("listener",)),
        *_counters(
            tls_handshakes_failed="TLS handshakes that failed.",
            tls_handshakes_held="TLS handshakes that waited for their turn, because their address made many.",
            tls_handshakes_refused="TLS handshakes that were refused, because their address made too many.",
            tls_plain_requests="Plain HTTP that came to a TLS port.",
            peer_certificates_refused="Callers of the other site's listener that were not the other site.",
        ),
        *_gauges(
            trail_ok="0 while the audit trail cannot be written.",
            trail_lines="The lines of the audit trail.",
        ),
    ],
    "Traces": [
        Metric("trace_spans_total", "counter", "Spans that the receiver of traces took, and those that were "
               "dropped: it did not take them, or the queue was full.", ("outcome",)),
    ],
    "Process": [
        *_histograms(
            event_loop_lag="How late the event loop runs what is due; everything at the site waits that long.",
            collector="How long the interpreter collects garbage, and does nothing else.",
        ),
        *_gauges(wall_clock_timestamp_seconds="The clock of the site, to be compared with the time of the scrape."),
    ],
}
CATALOGUE: dict[str, Metric] = {metric.name: metric for metrics in SECTIONS.values() for metric in metrics}
