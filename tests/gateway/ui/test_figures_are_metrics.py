"""Every figure of the page is a metric: each label of a figure in each template and view has the metrics that say the same, or
the reason why it can have none, and no label is forgotten.

What can have none is a figure of one thing of which there may be any number: one operation, one audit, one segment, one row.
"""

from __future__ import annotations

import re

import pytest

from gateway.metrics.catalogue import CATALOGUE
from gateway.ui.rendering import environment
from gateway.ui.views.now import now_page
from tests.gateway.ui.ui_rig import pair_seen
from tools.sources import ROOT

TEMPLATES = ROOT / "gateway" / "ui" / "templates"
OF_ONE_OPERATION = "of one operation of any number: in the journal, and of the newest as twinlog_operation_seconds"
OF_ONE_AUDIT = "of one audit of any number: of the last of a kind there are twinlog_audit_differences and its time"
OF_ONE_SEGMENT = "of one file of any number: their sum is twinlog_wal_bytes and twinlog_remote_log_bytes"
OF_ONE_BARRIER = "of one barrier of any number: twinlog_barriers_held counts them"
NOT_ONE = "no figure: a name, a word, or a moment at which somebody looked"
METRICS: dict[str, dict[str, tuple[str, ...] | str]] = {
    "tiles": {
        "writes a second": ("ack_seconds",), "errors a second": ("http_problems_total",), "acknowledged in": ("ack_seconds",),
        "local log": ("local_append_seconds",), "remote log": ("remote_append_seconds",),
        "standby lags by": ("replication_lag_records", "replication_lag_seconds", "shipped_bytes_total"),
        "remote log holds": ("remote_log_bytes", "remote_log_segments", "remote_unsynced_frames"),
        "at risk now": ("at_risk_records",),
    },
    "facts": {
        "epoch": ("epoch",), "committed": ("committed_seq", "applied_seq"), "applied": ("applied_seq",),
        "storage flushed to": ("durable_seq",), "WAL holds": ("wal_bytes",), "storage on disk": ("engine_disk_bytes",),
        "disk free": ("disk_free_bytes",), "lease proved": ("lease_proof_age_seconds",), "release": ("build_info",),
    },
    "nodes": {
        "clients": ("ack_seconds",), "gateway a": ("epoch", "role"), "WAL": ("local_append_seconds",),
        "remote log": ("remote_append_seconds", "remote_log_bytes"), "storage": ("apply_seconds", "applied_seq"),
        "shipping": ("replication_lag_records",), "register": ("dependency_ok",),
    },
    "now.html": {
        "active": ("epoch_open",), "epoch": ("epoch",), "mode in effect": ("mode_sync",), "mode configured": ("site_info",),
        "without writes": ("serves_writes", "operation_without_writes_seconds"),
        "seen at (UTC)": ("wall_clock_timestamp_seconds",), "writes a second, last": ("ack_seconds",),
    },
    "change.html": {
        "without writes": ("operation_without_writes_seconds",), "steps done": OF_ONE_OPERATION, "way back": NOT_ONE,
        "runs at": NOT_ONE, "began (UTC)": OF_ONE_OPERATION, "asked by": NOT_ONE, "operation": NOT_ONE, "running for / took": (
            "operation_seconds", "operation_running"), "took": ("operation_seconds",),
    },
    "history.html": {
        "epoch": ("epoch",), "for": "of one epoch of any number", "sequences": "of one epoch of any number",
        "records": "of one epoch of any number", "took": ("operation_seconds",),
    },
    "tables.html": {
        "rows": ("table_rows",), "keys and values": ("table_bytes",),
        "revision": "of one schema: it changes when somebody changes it", "Tables": ("tables",),
    },
    "table.html": {
        "at site": ("table_rows", "table_bytes", "table_disk_bytes"), "at other": ("table_rows", "table_bytes"),
        "schema": NOT_ONE,
        "both sites compared (UTC)": ("last_good_audit_timestamp_seconds",),
    },
    "audits.html": {
        "differences": ("audit_differences",), "took": OF_ONE_AUDIT, "epoch": OF_ONE_BARRIER, "sequence": OF_ONE_BARRIER,
    },
    "audit.html": {
        "job": NOT_ONE, "began (UTC)": OF_ONE_AUDIT, "ended (UTC)": ("audit_timestamp_seconds",), "took": OF_ONE_AUDIT,
        "barrier": NOT_ONE, "by": NOT_ONE, "source, the active then": NOT_ONE, "peer, the standby then": NOT_ONE,
        "tables": NOT_ONE, "rows compared": OF_ONE_AUDIT, "equal": OF_ONE_AUDIT, "version at the source": "of one row",
        "version at the peer": "of one row",
    },
    "log.html": {
        "epoch": OF_ONE_SEGMENT, "sequences": OF_ONE_SEGMENT, "written": OF_ONE_SEGMENT,
        "claim of epoch": "of one claim: the newest is twinlog_epoch",
    },
    "parts.html": {"rows": OF_ONE_AUDIT},
}
# A label of a figure stands in a <dt>, at the head of a column of numbers, or before the curve.
LABEL = re.compile(r'<dt>([^<]*?(?:\{[^<]*)?)</dt>|<th class="r">([^<]*)</th>|<span class="name">([^<{]+)\{\{ page\.curve')
DRAWN = {  # labels that are drawn from values, by the text of their template
    "{{ name }}": None, "{{ kind.name }}": None, "{{ kind }}": None,  # of `facts`, which are below; of an audit's kinds
    "{{ 'running for' if plan.state in ('running', 'aborting') else 'took' }}": "running for / took",
    "at site {{ figures.site }}": "at site", "at {{ seen_at(other) }}": "at other",
}


def labels_of(template: str) -> set[str]:
    found = set[str]()
    for groups in LABEL.findall((TEMPLATES / template).read_text(encoding="utf-8")):
        text = next(one for one in groups if one).strip()
        label = DRAWN.get(text, text)
        if label is not None:
            found.add(label)
    return found


@pytest.mark.parametrize("template", [name for name in environment().list_templates() if name.endswith(".html")])
def test_each_figure_of_a_template_has_its_metric(template: str) -> None:
    told = set(METRICS.get(template, {}))
    assert labels_of(template) <= told, "say in METRICS which metric each new figure is"
    assert told <= labels_of(template) | {"Tables"}, "there is no such figure any more"


def test_each_figure_of_now_has_its_metric() -> None:
    page = now_page(pair_seen(), is_advised=True)
    assert {tile.title for tile in page.tiles} == set(METRICS["tiles"])
    assert {name for column in page.columns for name, _ in column.facts} == set(METRICS["facts"])
    assert {one.node.title for one in page.wide.nodes} == set(METRICS["nodes"])


def test_each_metric_that_is_named_exists() -> None:
    named = {name for of in METRICS.values() for told in of.values() if isinstance(told, tuple) for name in told}
    assert named <= set(CATALOGUE)
    assert len(named) > 30
