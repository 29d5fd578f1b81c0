"""The Grafana dashboards: of one pair, and of a fleet of pairs. Each panel is a row of a table.

What always holds: panels do not overlap, and each has a number of its own; a query asks for metrics of the catalogue alone. The
model is that of Grafana's JSON (schema version 39), for a data source that the operator chooses.
This module is pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF_PAIR = '{pair="$pair"}'


class Panel(NamedTuple):
    """`queries`: expression and legend. `unit`: in Grafana's words. `empty_while`: when the panel has no data, which is its
    description in Grafana; empty: it has data whenever a pair runs."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    empty_while: str = ""


def _quantiles(metric: str, legend: str, by: str = "site") -> tuple[tuple[str, str], ...]:
    rate = f"sum by (le, {by}) (rate({metric}_bucket{OF_PAIR}[$__rate_interval]))"
    return tuple((f"histogram_quantile({share}, {rate})", f"{legend} p{share * 100:g} {{{{{by}}}}}") for share in (0.5, 0.99))


def _rate(metric: str, by: str, more: str = "") -> str:
    return f'sum by ({by}) (rate({metric}{{pair="$pair"{more}}}[$__rate_interval]))'


PAIR_PANELS = (
    Panel("Role", ((f"twinlog_role{OF_PAIR} == 1", "{{site}}: {{role}}"),), kind="stat", width=6, height=4),
    Panel("Takes writes", ((f"sum(twinlog_serves_writes{OF_PAIR})", "sites"),), kind="stat", width=3, height=4),
    Panel("Synchronous", ((f"max(twinlog_mode_sync{OF_PAIR})", "sync"),), kind="stat", width=3, height=4),
    Panel("Epoch", ((f"max(twinlog_epoch{OF_PAIR})", "epoch"),), kind="stat", width=3, height=4),
    Panel("At risk", ((f"max(twinlog_at_risk_records{OF_PAIR})", "records"),), kind="stat", width=3, height=4),
    Panel("Faults", ((f"sum by (site) (twinlog_troubles{OF_PAIR})", "{{site}}"),), kind="stat", width=3, height=4),
    Panel("Release", ((f"twinlog_build_info{OF_PAIR}", "{{site}}: {{version}}"),), kind="stat", width=3, height=4),
    Panel("Acknowledged writes", ((_rate("twinlog_ack_seconds_count", "mode"), "{{mode}}"),), "wps"),
    Panel("Time to the acknowledgement", _quantiles("twinlog_ack_seconds", "ack", "mode"), "s",
          empty_while="there are no writes"),
    Panel("Where writes wait", (
        *_quantiles("twinlog_local_append_seconds", "local log"), *_quantiles("twinlog_remote_append_seconds", "remote log"),
        *_quantiles("twinlog_apply_seconds", "storage"),
    ), "s", empty_while="there are no writes"),
    Panel("Replication lag, seconds", (
        (f"twinlog_replication_lag_seconds{OF_PAIR}", "at most, by {{site}}"),
        (f"twinlog_standby_staleness_seconds{OF_PAIR}", "staleness at {{site}}"),
    ), "s", empty_while="no site follows"),
    Panel("Replication lag and risk, records", (
        (f"twinlog_replication_lag_records{OF_PAIR}", "lag"), (f"twinlog_at_risk_records{OF_PAIR}", "at risk"),
    )),
    Panel("Logs", (
        (f"twinlog_remote_log_bytes{OF_PAIR}", "remote log of {{site}}"), (f"twinlog_wal_bytes{OF_PAIR}", "WAL of {{site}}"),
    ), "bytes"),
    Panel("Shipped", ((_rate("twinlog_shipped_bytes_total", "site"), "from {{site}}"),), "Bps"),
    Panel("Lease", (
        (f"twinlog_lease_remaining_seconds{OF_PAIR}", "left at {{site}}"), (f"twinlog_lease_seconds{OF_PAIR}", "lease"),
    ), "s"),
    Panel("Rejected by a fence", ((_rate("twinlog_fence_rejections_total", "site"), "at {{site}}"),)),
    Panel("Write queue", ((f"twinlog_admission_queue_bytes{OF_PAIR}", "{{site}}"),), "bytes"),
    Panel("Requests", ((_rate("twinlog_http_requests_total", "site, method"), "{{site}} {{method}}"),), "reqps"),
    Panel("Problems", ((_rate("twinlog_http_problems_total", "site, status, code"), "{{site}} {{status}} {{code}}"),), "reqps",
          empty_while="no request is answered with a problem"),
    Panel("Refused by limits", ((_rate("twinlog_limit_refusals_total", "site, limit"), "{{site}} {{limit}}"),), "reqps"),
    Panel("Dependencies", ((f"min by (site, dependency) (twinlog_dependency_ok{OF_PAIR})", "{{site}} {{dependency}}"),)),
    Panel("Role changes", (
        (f"sum by (site, kind, outcome) (twinlog_operations_total{OF_PAIR})", "{{site}} {{kind}} {{outcome}}"),
    )),
    Panel("Time of role changes", (
        (f"twinlog_operation_seconds{OF_PAIR}", "{{site}} {{kind}}"),
        (f"twinlog_operation_without_writes_seconds{OF_PAIR}", "{{site}} {{kind}}, without writes"),
    ), "s", empty_while="no role change has succeeded since the sites were started"),
    Panel("Storage and disk", (
        (f"twinlog_engine_disk_bytes{OF_PAIR}", "storage of {{site}}"),
        (f"twinlog_disk_free_bytes{OF_PAIR}", "free at {{site}}"),
    ), "bytes"),
    Panel("Rows of the largest tables", ((f"topk by (site) (10, twinlog_table_rows{OF_PAIR})", "{{table}} at {{site}}"),)),
    Panel("Size of the largest tables", ((f"topk by (site) (10, twinlog_table_bytes{OF_PAIR})", "{{table}} at {{site}}"),),
          "bytes"),
    Panel("Memory", ((f"process_resident_memory_bytes{OF_PAIR}", "{{site}}"),), "bytes"),
    Panel("Open files", ((f"process_open_fds{OF_PAIR}", "{{site}}"),)),
    Panel("CPU", ((_rate("process_cpu_seconds_total", "site"), "{{site}}"),), "percentunit"),
    Panel("How late the event loop is", _quantiles("twinlog_event_loop_lag_seconds", "loop"), "s",
          empty_while="a site has run for less than a minute"),
    Panel("Since the last good audit", ((f"min(twinlog_last_good_audit_age_seconds{OF_PAIR})", "age"),), "s",
          empty_while="no audit was good since the sites were started"),
)

FLEET_PANELS = (
    Panel("Pairs that take writes", (("sum by (pair) (twinlog_serves_writes)", "{{pair}}"),), kind="stat", width=24, height=5),
    Panel("Alerts that fire", (('sum by (pair, alertname) (ALERTS{alertstate="firing", pair!=""})', "{{pair}} {{alertname}}"),),
          kind="table", width=24, empty_while="no alert fires"),
    Panel("Active site", (("max by (pair, site) (twinlog_epoch_open) == 1", "{{pair}}: {{site}}"),), kind="stat", width=12),
    Panel("Synchronous", (("max by (pair) (twinlog_mode_sync)", "{{pair}}"),), kind="stat", width=12),
    Panel("At risk", (("max by (pair) (twinlog_at_risk_records)", "{{pair}}"),)),
    Panel("Replication lag", (("max by (pair) (twinlog_replication_lag_records)", "{{pair}}"),)),
    Panel("Acknowledged writes", (("sum by (pair) (rate(twinlog_ack_seconds_count[$__rate_interval]))", "{{pair}}"),), "wps"),
    Panel("Time to the acknowledgement, p99", ((
        "histogram_quantile(0.99, sum by (le, pair) (rate(twinlog_ack_seconds_bucket[$__rate_interval])))", "{{pair}}",
    ),), "s", empty_while="there are no writes"),
    Panel("Faults", (("sum by (pair) (twinlog_troubles)", "{{pair}}"),)),
    Panel("Answers with 5xx", ((
        'sum by (pair) (rate(twinlog_http_problems_total{status=~"5.."}[$__rate_interval]))', "{{pair}}",
    ),), "reqps", empty_while="no request is answered with a 5xx"),
    Panel("Free disk", (("min by (pair) (twinlog_disk_free_bytes)", "{{pair}}"),), "bytes"),
    Panel("Remote logs", (("max by (pair) (twinlog_remote_log_bytes)", "{{pair}}"),), "bytes"),
    Panel("Since the last good audit", (("min by (pair) (twinlog_last_good_audit_age_seconds)", "{{pair}}"),), "s",
          empty_while="no audit was good since the sites were started"),
    Panel("Releases", (("count by (pair, version) (twinlog_build_info)", "{{pair}} {{version}}"),), kind="stat"),
)
DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "pair": ("twinlog: a pair", PAIR_PANELS), "fleet": ("twinlog: all pairs", FLEET_PANELS),
}


def dashboard(name: str) -> dict[str, Any]:
    """Returns the JSON model of one dashboard."""
    title, panels = DASHBOARDS[name]
    variables: list[dict[str, Any]] = [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
    if name == "pair":
        query = "label_values(twinlog_site_info, pair)"
        variables.append({
            "name": "pair", "label": "Pair", "type": "query", "datasource": SOURCE, "definition": query, "refresh": 2,
            "query": {"query": query, "refId": "pair"},
        })
    return {
        "title": title, "uid": f"twinlog-{name}", "schemaVersion": 39, "version": 1, "editable": True, "tags": ["twinlog"],
        "timezone": "browser", "refresh": "15s", "time": {"from": "now-1h", "to": "now"}, "annotations": {"list": []},
        "templating": {"list": variables}, "links": [], "panels": _placed(panels),
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Row by row, from the left; a row is as high as its highest panel."""
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append(_model(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height}))
        x, height = x + panel.width, max(height, panel.height)
    return placed


def _model(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expr, "legendFormat": legend,
         "instant": panel.kind != "timeseries", "range": panel.kind == "timeseries"}
        for index, (expr, legend) in enumerate(panel.queries)
    ]
    by_name = {"stat": {"textMode": "value_and_name", "reduceOptions": {"calcs": ["lastNotNull"]}}}
    described = {"description": f"Empty while {panel.empty_while}."} if panel.empty_while else {}
    return {
        "id": number, "title": panel.title, **described, "type": panel.kind, "datasource": SOURCE, "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []}, "options": by_name.get(panel.kind, {}),
    }
