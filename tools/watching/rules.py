"""The alert rules of a pair: what each looks for, for how long, how urgent it is, what to type, and where the handbook has it.

What always holds: an expression names `pair`, and `site` where a site is meant, which the configuration of Prometheus gives
each target; a figure that is not known fires nothing, unless the rule says so.
This module is pure.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MIB = 1 << 20
GIB = 1 << 30
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
HANDBOOK = "docs/operations.md"


class Alert(NamedTuple):
    """`for_s`: how long the expression must hold. `summary`: what is so and what to type, with labels as `{site}`. `anchor`:
    the heading of the handbook."""

    name: str
    expr: str
    for_s: int
    severity: Literal["critical", "warning"]
    summary: str
    anchor: str


ALERTS = (
    Alert(
        "TwinlogNoActive", 'max by (pair) (twinlog_serves_writes or up{job="twinlog"} * 0) == 0', 30, "critical",
        "Nobody takes writes in pair {pair}. Type `twinlog advise`: it shows who sees what, and the command that helps.",
        "failover-at-three-in-the-morning",
    ),
    Alert(
        "TwinlogTwoActives", "count by (pair) (twinlog_serves_writes == 1) > 1", 30, "critical",
        "Both sites of pair {pair} take writes, which must be impossible. Stop the clients, then type `twinlog status` and "
        "`twinlog history`.",
        "two-sites-take-writes",
    ),
    Alert(
        "TwinlogSiteDown", 'up{job="twinlog"} == 0', MINUTE_S, "critical",
        "Site {site} of pair {pair} does not answer Prometheus. Type `twinlog status`, then start its gateway.",
        "a-site-that-does-not-answer",
    ),
    Alert(
        "TwinlogOneCopy", 'twinlog_mode_sync == 0 unless on (pair, site) twinlog_site_info{policy="performance"}',
        2 * MINUTE_S, "warning",
        "Site {site} of pair {pair} acknowledges writes with one copy. Type `twinlog status`: it shows what the pair "
        "waits for.",
        "writes-with-one-copy",
    ),
    Alert(
        "TwinlogAtRiskGrows", "twinlog_at_risk_seconds > 60 and deriv(twinlog_at_risk_records[5m]) > 0", 5 * MINUTE_S,
        "warning",
        "More and more acknowledged records of pair {pair} are at site {site} alone. Type `twinlog status`; bring the "
        "other site "
        "back.",
        "writes-with-one-copy",
    ),
    Alert(
        "TwinlogRemoteLogGrows", f"min_over_time(twinlog_remote_log_bytes[10m]) > {256 * MIB}", 5 * MINUTE_S, "warning",
        "The remote log of site {site} of pair {pair} is not trimmed: shipping stalls. Type `twinlog status`.",
        "a-standby-that-lags",
    ),
    Alert(
        "TwinlogLag", "twinlog_replication_lag_seconds > 30", 2 * MINUTE_S, "warning",
        "The standby of site {site} of pair {pair} lags by more than 30 s. Type `twinlog status`.", "a-standby-that-lags",
    ),
    Alert(
        "TwinlogStandbyUnreachable",
        'twinlog_dependency_ok{dependency="peer"} == 0 and on (pair, site) twinlog_epoch_open == 1', MINUTE_S, "warning",
        "Site {site}, the active of pair {pair}, does not reach the other site. Type `twinlog status`; start that gateway, or "
        "repair the network.",
        "a-standby-that-lags",
    ),
    Alert(
        "TwinlogLeaseNearEnd", "avg_over_time(twinlog_lease_proof_age_seconds[1m]) > 0.6 * twinlog_lease_seconds", MINUTE_S,
        "warning",
        "The read lease of site {site} of pair {pair} is renewed late: it is about to serve nobody. Type `twinlog status`.",
        "a-lease-that-is-renewed-late",
    ),
    Alert(
        "TwinlogWaitsForOperator", "twinlog_waits_for_operator == 1", MINUTE_S, "critical",
        "Site {site} of pair {pair} waits for a person. Type `twinlog status`, then `twinlog resume OPERATION` or what "
        "it says.",
        "when-a-role-change-stops-half-way",
    ),
    Alert(
        "TwinlogFenceRejections", "increase(twinlog_fence_rejections_total[5m]) > 0", 0, "warning",
        "Site {site} of pair {pair} rejected writes of an old active, which was locked out. Type `twinlog status`; the "
        "old active "
        "rejoins, or type `twinlog rejoin`.",
        "an-old-active-that-writes",
    ),
    Alert(
        "TwinlogDiskNearlyFull", f"twinlog_disk_free_bytes < {5 * GIB}", 5 * MINUTE_S, "warning",
        "The disk of site {site} of pair {pair} has less than 5 GiB free. Type `twinlog status`, and make room.", "a-full-disk",
    ),
    Alert(
        "TwinlogDiskFull", f"twinlog_disk_free_bytes < {GIB}", 0, "critical",
        "The disk of site {site} of pair {pair} has less than 1 GiB free. Make room now, outside of `data_dir`.", "a-full-disk",
    ),
    Alert(
        "TwinlogCertificateEnds", f"twinlog_certificate_not_after_timestamp_seconds - time() < {14 * DAY_S}", HOUR_S, "warning",
        "The certificate of [{listener}] of site {site} of pair {pair} ends within two weeks. Put a new one in its "
        "place: the site "
        "takes it by itself.",
        "certificates-and-open-listeners",
    ),
    Alert(
        "TwinlogTlsFilesNotInUse", "twinlog_tls_files_ok == 0", 5 * MINUTE_S, "warning",
        "Site {site} of pair {pair} cannot use the new TLS files of [{listener}]. Type `twinlog status`: it names the file.",
        "certificates-and-open-listeners",
    ),
    Alert(
        "TwinlogInsecure", "twinlog_insecure == 1", HOUR_S, "warning",
        "Whoever reaches site {site} of pair {pair} may do everything: it says insecure = true. Set up TLS and [access].",
        "certificates-and-open-listeners",
    ),
    Alert(
        "TwinlogTrailUnwritten", "twinlog_trail_ok == 0", MINUTE_S, "critical",
        "The audit trail of site {site} of pair {pair} cannot be written. Type `twinlog status`, and see to its disk.",
        "the-audit-trail",
    ),
    Alert(
        "TwinlogClockOffset",
        "max by (pair) (twinlog_wall_clock_timestamp_seconds - timestamp(twinlog_wall_clock_timestamp_seconds)) - "
        "min by (pair) (twinlog_wall_clock_timestamp_seconds - timestamp(twinlog_wall_clock_timestamp_seconds)) > 1",
        2 * MINUTE_S, "warning",
        "The clocks of the sites of pair {pair} differ by more than a second. Type `twinlog validate`, and see to NTP.",
        "clocks-that-differ",
    ),
    Alert(
        "TwinlogAuditDiffers", "max by (pair, audit) (twinlog_audit_differences) > 0", 0, "critical",
        "An audit ({audit}) of pair {pair} found differences. Read its report; type `twinlog audit run compare`.",
        "an-audit-that-found-something",
    ),
    Alert(
        "TwinlogAuditOld",
        f"min by (pair) (twinlog_last_good_audit_age_seconds) > {8 * DAY_S} or "
        '(count by (pair) (up{job="twinlog"}) unless min by (pair) (twinlog_last_good_audit_age_seconds))', HOUR_S, "warning",
        "No audit has found the sites of pair {pair} equal for eight days. Type `twinlog audit run compare`.",
        "an-audit-that-found-something",
    ),
    Alert(
        "TwinlogBackupOld",
        "min by (pair) (twinlog_last_backup_age_seconds) > min by (pair) (twinlog_last_backup_age_max_seconds)",
        5 * MINUTE_S, "warning",
        "No backup of pair {pair} has ended well for as long as backups.old_after_s says. Type `twinlog backup --to PLACE`.",
        "a-backup-that-is-old",
    ),
    Alert(
        "TwinlogVersionsDiffer", "count by (pair) (count by (pair, version) (twinlog_build_info)) > 1", HOUR_S, "warning",
        "The sites of pair {pair} run different releases. Finish the upgrade; `twinlog validate` names both.",
        "releases-that-differ",
    ),
    Alert(
        "TwinlogReleasesDoNotFit", "twinlog_releases_fit == 0", MINUTE_S, "critical",
        "Site {site} of pair {pair} and the other one run releases that do not work together: nothing is replicated. Install "
        "the release that `twinlog status` names.",
        "releases-that-differ",
    ),
    Alert(
        "TwinlogTrouble", "twinlog_trouble == 1", 5 * MINUTE_S, "warning",
        "Site {site} of pair {pair} is not whole: {about}. Type `twinlog status`: it says what helps.",
        "reading-twinlog-status",
    ),
)
