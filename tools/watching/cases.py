"""Cases for the alert rules: series on which each fires, and series on which it does not, as `promtool test rules` takes them.

What always holds: every alert has both kinds (a test looks); the series are of pair `p`, one sample each INTERVAL_S.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tools.watching.rules import DAY_S, GIB, MIB

INTERVAL_S = 15
A = {"pair": "p", "site": "a"}


class Case(NamedTuple):
    """`series`: its values in Prometheus' notation, by name with labels. `fires`: the labels of each alert that fires at
    `at_s`, without its severity; empty: none does."""

    alert: str
    series: Mapping[str, str]
    at_s: int
    fires: tuple[Mapping[str, str], ...] = ()


def of(name: str, site: str = "a", **labels: str) -> str:
    """Returns the name of one series of a site, with the labels that a scrape gives it."""
    known = {"instance": site, "job": "twinlog", "pair": "p", "site": site, **labels}
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(known.items())) + "}"


def _target(labels: Mapping[str, str], **more: str) -> dict[str, str]:
    return {"instance": labels["site"], "job": "twinlog", **labels, **more}


def _steady(name: str, value: float, **labels: str) -> dict[str, str]:
    return {of(name, **labels): f"{value:.12g}x400"}


def _gauge(alert: str, name: str, bad: float, good: float, at_s: int, **labels: str) -> list[Case]:
    """A gauge of one site that is bad, one that is good, and none."""
    return [
        Case(alert, _steady(name, bad, **labels), at_s, (_target(A, **labels),)),
        Case(alert, _steady(name, good, **labels), at_s), Case(alert, {}, at_s),
    ]


def _both(name: str, of_a: str, of_b: str, **labels: str) -> dict[str, str]:
    return {of(name, "a", **labels): of_a, of(name, "b", **labels): of_b}


UP = _both("up", "1x400", "1x400")
INFO = {of("twinlog_site_info", policy="protect", exported_pair="p", exported_site="a"): "1x400"}
BY_CHOICE = {of("twinlog_site_info", policy="performance", exported_pair="p", exported_site="a"): "1x400"}
PAIR = ({"pair": "p"},)
LEASE = _steady("twinlog_lease_seconds", 1)
RECORDS, AT_RISK = of("twinlog_at_risk_records"), of("twinlog_at_risk_seconds")

CASES = (
    Case("TwinlogNoActive", {**UP, **_both("twinlog_serves_writes", "1x8 0x400", "0x400")}, 300, PAIR),
    Case("TwinlogNoActive", {**_both("up", "0x400", "0x400")}, 300, PAIR),
    Case("TwinlogNoActive", {**_both("up", "0x400", "1x400"), **_steady("twinlog_serves_writes", 0, site="b")}, 300, PAIR),
    Case("TwinlogNoActive", {**UP, **_both("twinlog_serves_writes", "1x8 0x400", "0x8 1x400")}, 300),
    Case("TwinlogNoActive", {**_both("up", "0x400", "1x400"), **_steady("twinlog_serves_writes", 1, site="b")}, 300),
    Case("TwinlogTwoActives", _both("twinlog_serves_writes", "1x400", "0x8 1x400"), 300, PAIR),
    Case("TwinlogTwoActives", _both("twinlog_serves_writes", "1x9 0x400", "0x8 1x400"), 150),
    Case("TwinlogTwoActives", _both("twinlog_serves_writes", "1x400", "0x400"), 300),
    *_gauge("TwinlogSiteDown", "up", 0, 1, 120),
    Case("TwinlogOneCopy", {**_steady("twinlog_mode_sync", 0), **INFO}, 300, (_target(A),)),
    Case("TwinlogOneCopy", {**_steady("twinlog_mode_sync", 0), **BY_CHOICE}, 300),
    Case("TwinlogOneCopy", {**_steady("twinlog_mode_sync", 1), **INFO}, 300),
    Case("TwinlogOneCopy", INFO, 300),
    Case("TwinlogAtRiskGrows", {RECORDS: "0+20x400", AT_RISK: "0+15x400"}, 900, (_target(A),)),
    Case("TwinlogAtRiskGrows", {RECORDS: "500x400", AT_RISK: "0+15x400"}, 900),
    Case("TwinlogAtRiskGrows", {RECORDS: "0+20x400", AT_RISK: "2x400"}, 900),
    Case("TwinlogRemoteLogGrows", _steady("twinlog_remote_log_bytes", 300 * MIB), 1200, (_target(A),)),
    Case("TwinlogRemoteLogGrows", {of("twinlog_remote_log_bytes"): f"{300 * MIB}x10 {20 * MIB}x10 {300 * MIB}x10"}, 450),
    *_gauge("TwinlogLag", "twinlog_replication_lag_seconds", 31, 2, 300),
    Case("TwinlogStandbyUnreachable", {
        **_steady("twinlog_dependency_ok", 0, dependency="peer"), **_steady("twinlog_epoch_open", 1),
    }, 120, (_target(A, dependency="peer"),)),
    Case("TwinlogStandbyUnreachable", {
        **_steady("twinlog_dependency_ok", 0, dependency="peer"), **_steady("twinlog_epoch_open", 0),
    }, 120),
    Case("TwinlogStandbyUnreachable", {
        **_steady("twinlog_dependency_ok", 1, dependency="peer"), **_steady("twinlog_epoch_open", 1),
    }, 120),
    Case("TwinlogLeaseNearEnd", {**_steady("twinlog_lease_proof_age_seconds", 0.8), **LEASE}, 180, (_target(A),)),
    Case("TwinlogLeaseNearEnd", {**_steady("twinlog_lease_proof_age_seconds", 0.3), **LEASE}, 180),
    *_gauge("TwinlogWaitsForOperator", "twinlog_waits_for_operator", 1, 0, 120),
    Case("TwinlogFenceRejections", {of("twinlog_fence_rejections_total"): "0x8 3x400"}, 180, (_target(A),)),
    Case("TwinlogFenceRejections", {of("twinlog_fence_rejections_total"): "0x8 3x400"}, 900),
    Case("TwinlogFenceRejections", {of("twinlog_fence_rejections_total"): "7x400"}, 180),
    *_gauge("TwinlogDiskNearlyFull", "twinlog_disk_free_bytes", 4 * GIB, 9 * GIB, 600),
    *_gauge("TwinlogDiskFull", "twinlog_disk_free_bytes", GIB // 2, 4 * GIB, 60),
    *_gauge("TwinlogCertificateEnds", "twinlog_certificate_not_after_timestamp_seconds", 13 * DAY_S, 16 * DAY_S, 5000,
            listener="http"),
    *_gauge("TwinlogTlsFilesNotInUse", "twinlog_tls_files_ok", 0, 1, 600, listener="peer_http"),
    *_gauge("TwinlogInsecure", "twinlog_insecure", 1, 0, 5000),
    *_gauge("TwinlogTrailUnwritten", "twinlog_trail_ok", 0, 1, 120),
    Case("TwinlogClockOffset", _both("twinlog_wall_clock_timestamp_seconds", "0+15x400", "2+15x400"), 300, PAIR),
    Case("TwinlogClockOffset", _both("twinlog_wall_clock_timestamp_seconds", "0+15x400", "0.2+15x400"), 300),
    Case("TwinlogClockOffset", _steady("twinlog_wall_clock_timestamp_seconds", 0), 300),
    Case("TwinlogAuditDiffers", _both("twinlog_audit_differences", "3x400", "3x400", audit="compare"), 60,
         ({"pair": "p", "audit": "compare"},)),
    Case("TwinlogAuditDiffers", _both("twinlog_audit_differences", "0x400", "0x400", audit="compare"), 60),
    Case("TwinlogAuditOld", {**UP, **_steady("twinlog_last_good_audit_age_seconds", 9 * DAY_S)}, 5000, PAIR),
    Case("TwinlogAuditOld", UP, 5000, PAIR),
    Case("TwinlogAuditOld", {
        **UP, **_both("twinlog_last_good_audit_age_seconds", f"{DAY_S}x400", f"{9 * DAY_S}x400"),
    }, 5000),
    Case("TwinlogBackupOld", {
        **_steady("twinlog_last_backup_age_seconds", 2 * DAY_S), **_steady("twinlog_last_backup_age_max_seconds", DAY_S),
    }, 600, PAIR),
    Case("TwinlogBackupOld", {
        **_both("twinlog_last_backup_age_seconds", "60x400", f"{2 * DAY_S}x400"),
        **_steady("twinlog_last_backup_age_max_seconds", DAY_S),
    }, 600),
    Case("TwinlogBackupOld", _steady("twinlog_last_backup_age_seconds", 9 * DAY_S), 600),
    Case("TwinlogVersionsDiffer", {
        of("twinlog_build_info", "a", version="1.0"): "1x400", of("twinlog_build_info", "b", version="1.1"): "1x400",
    }, 5000, PAIR),
    Case("TwinlogVersionsDiffer", _both("twinlog_build_info", "1x400", "1x400", version="1.0"), 5000),
    *_gauge("TwinlogReleasesDoNotFit", "twinlog_releases_fit", 0, 1, 100),
    *_gauge("TwinlogTrouble", "twinlog_trouble", 1, 0, 600, about="audit_trail"),
)
