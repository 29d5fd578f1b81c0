"""A living pair shows its metrics: by Prometheus' conventions, all of it in docs/metrics.md, and all that status shows."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics.catalogue import CATALOGUE, PREFIX
from gateway.service.documents import ClusterDocument
from storage.backup.stream import BackupHead, MessageReader
from tests.gateway.metrics.live_sites import DEADLINE_S, live_sites
from tests.needs import need_program
from tools.watching.metric_list import PAGE

# What a pair without TLS, faults, base data and traces does not know, or has no series of; RocksDB does not say the last one.
NOT_SEEN_HERE = {
    "trouble", "resync_automatic", "resync_records_left", "certificate_not_after_timestamp_seconds", "tls_files_ok",
    "tls_handshakes_failed_total", "tls_handshakes_held_total", "tls_handshakes_refused_total", "tls_plain_requests_total",
    "peer_certificates_refused_total", "trace_spans_total", "table_disk_bytes",
    "operation_without_writes_seconds",
}
OF_AN_ACTIVE = {"mode_sync", "committed_seq", "lease_seconds", "replication_lag_records", "at_risk_records", "remote_log_bytes"}
OF_A_STANDBY = {"standby_staleness_seconds", "active_heard_age_seconds"}
AUDIT = {
    "id": "one", "job": "compare", "started_at": "2026-11-21T10:00:00Z", "finished_at": "2026-11-21T10:01:00Z",
    "outcome": "good", "differences": 0,
}
BACKUP = "/v1/backups/0123456789abcdef"
UNITS = re.compile(r"_(ms|milliseconds|us|minutes|hours|days|kib|mib|kb|mb|gb|percent|s|sec|secs|b)(_|$)")


class Seen(NamedTuple):
    """Pages of metrics by site, and the documents of site a, read before and after its page."""

    pages: dict[str, str]
    before: dict[str, Any]
    after: dict[str, Any]


def moved_by_a_beat(shown: Mapping[str, Any]) -> tuple[object, ...]:
    seqs = (shown[f"{what}_seq"] for what in ("committed", "applied", "durable"))
    return *seqs, shown["replication_lag"]["records"], shown["remote_log"]["bytes"], shown["at_risk"]["records"]


async def _look(folder: Path) -> Seen:
    async with live_sites(folder) as sites:
        assert (await sites.http["a"].post("/v1/audits", json=AUDIT)).is_success
        base = await sites.http["a"].post(f"{BACKUP}:base")
        head, _ = next(MessageReader("the base").take(base.content))
        assert isinstance(head, BackupHead)
        point = {"identity": head.identity, "epoch": head.point.epoch, "seq": head.point.seq}
        assert (await sites.http["a"].post(f"{BACKUP}:complete", json=point)).is_success
        await sites.until("b", lambda page: "twinlog_disk_free_bytes" in page and "twinlog_standby_staleness_seconds" in page)
        for site in "ab":
            await sites.until(site, lambda page: "twinlog_table_rows{" in page)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                before = (await sites.http["a"].get("/v1/cluster")).json()
                pages = {site: await sites.page(site) for site in "ab"}
                after = (await sites.http["a"].get("/v1/cluster")).json()
                if moved_by_a_beat(before) == moved_by_a_beat(after):
                    return Seen(pages, before, after)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(_look(tmp_path_factory.mktemp("metrics")))


def families(page: str) -> dict[str, Metric]:
    """By full name, `_total` included."""
    found = text_string_to_metric_families(page)
    return {f"{each.name}_total" if each.type == "counter" else each.name: each for each in found}


def samples(page: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def own(page: str) -> dict[str, Metric]:
    return {name.removeprefix(PREFIX): each for name, each in families(page).items() if name.startswith(PREFIX)}


@pytest.mark.parametrize("site", ["a", "b"])
def test_each_metric_is_as_the_catalogue_and_the_page_have_it(seen: Seen, site: str) -> None:
    shown = PAGE.read_text(encoding="utf-8")
    for name, each in own(seen.pages[site]).items():
        listed = CATALOGUE[name]
        assert (each.type, each.documentation) == (listed.kind, listed.help)
        labels = {label for sample in each.samples for label in sample.labels if label != "le"}
        assert labels <= set(listed.labels), name
    for name in families(seen.pages[site]):
        assert f"| `{name}` |" in shown, f"{name} is not in docs/metrics.md: python -m tools.watching.metric_list"


def test_each_metric_of_the_catalogue_is_shown_by_a_site(seen: Seen) -> None:
    known = set(own(seen.pages["a"])) | set(own(seen.pages["b"]))
    assert known == set(CATALOGUE) - NOT_SEEN_HERE


def test_no_metric_is_known_that_the_role_does_not_have(seen: Seen) -> None:
    assert set(own(seen.pages["a"])) >= OF_AN_ACTIVE
    assert not OF_AN_ACTIVE & set(own(seen.pages["b"]))
    assert set(own(seen.pages["b"])) >= OF_A_STANDBY
    assert not OF_A_STANDBY & set(own(seen.pages["a"]))


def faults_of(name: str, each: Metric) -> list[str]:
    """The rules of `promtool check metrics`, and of units."""
    found = []
    if not each.documentation.endswith("."):
        found.append("has no sentence as its HELP")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        found.append("is not in lower case with underscores")
    if UNITS.search(name):
        found.append("has a unit that is no base unit")
    if (each.type == "counter") != name.endswith("_total"):
        found.append("ends in _total, or is a counter, and not both")
    if re.search(r"_(gauge|counter|histogram|summary|count|sum|bucket|info_info)$", name):
        found.append("ends in a word of Prometheus' own")
    if each.type == "histogram" and not name.endswith("_seconds"):
        found.append("is a histogram of no seconds")
    return found


@pytest.mark.parametrize("site", ["a", "b"])
def test_names_follow_the_conventions(seen: Seen, site: str) -> None:
    assert {name: found for name, each in own(seen.pages[site]).items() if (found := faults_of(name, each))} == {}
    done = subprocess.run(
        [need_program("promtool", "prometheus"), "check", "metrics"], input=seen.pages[site], capture_output=True, text=True,
        timeout=60, check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("site", ["a", "b"])
def test_a_histogram_grows_to_its_count(seen: Seen, site: str) -> None:
    histograms = [each for each in own(seen.pages[site]).values() if each.type == "histogram"]
    assert histograms
    for each in histograms:
        for labels in {tuple(sorted(sample.labels.items() - {("le", sample.labels.get("le"))})) for sample in each.samples}:
            series = [one for one in each.samples if set(labels) <= one.labels.items()]
            counts = [one.value for one in series if one.name.endswith("_bucket")]
            bounds = [one.labels["le"] for one in series if one.name.endswith("_bucket")]
            assert bounds[-1:] == ["+Inf"], each.name
            assert counts == sorted(counts), each.name
            assert counts[-1:] == [one.value for one in series if one.name.endswith("_count")], each.name


@pytest.mark.parametrize("site", ["a", "b"])
def test_cardinality_is_bounded(seen: Seen, site: str) -> None:
    """One site shows fewer series than this, whatever its clients do: labels have values of this code alone, and those of
    tables have a bound of their own (tests/gateway/table_figures/test_series.py)."""
    assert len(samples(seen.pages[site])) < 400
    assert all(len(each.samples) < 60 for each in own(seen.pages[site]).values())


# ---- what status shows
Expected = Callable[[Mapping[str, Any]], Mapping[str, float | None]]
TEXT = "a text: the metric beside it says that there is one"
STATUS: dict[str, Expected | str] = {
    "pair": "site_info", "site": "site_info", "policy": "site_info", "active": "epoch_open at the other site", "reason": TEXT,
    "now_ms": "wall_clock_timestamp_seconds",
    "role": lambda shown: {f'role{{role="{shown["role"]}"}}': 1.0},
    "waiting_for": lambda shown: {"waits": float(shown["waiting_for"] is not None)},
    "serving": lambda shown: {
        f"{kind}": float(shown["serving"][of])
        for kind, of in (("serves_reads", "reads"), ("serves_writes", "writes"), ("follows", "follows"))
    },
    "troubles": lambda shown: {"troubles": float(len(shown["troubles"]))},
    "dependencies": lambda shown: {

        f'dependency_ok{{dependency="{name.lower().replace(" ", "_")}"}}': float(word["error"] is None)
        for name, word in shown["dependencies"].items()
    },
    "release": "build_info",
    "formats": lambda shown: {
        f'format_version{{format="{what}",of="written"}}': float(one["writes"]) for what, one in shown["formats"].items()
    },
    "epoch": lambda shown: {"epoch": float(shown["epoch"])},
    "mode": lambda shown: {"mode_sync": float(shown["mode"] == "sync")},
    "mode_detail": "mode_sync, and resync_records_left on the way",
    "sites": "each site has its own metrics",
    "committed_seq": lambda shown: {"committed_seq": float(shown["committed_seq"])},
    "applied_seq": lambda shown: {"applied_seq": float(shown["applied_seq"])},
    "durable_seq": lambda shown: {"durable_seq": float(shown["durable_seq"])},
    "replication_lag": lambda shown: {"replication_lag_records": float(shown["replication_lag"]["records"])},
    "remote_log": lambda shown: {
        "remote_log_bytes": float(shown["remote_log"]["bytes"]), "remote_log_segments": float(shown["remote_log"]["segments"]),
    },
    "at_risk": lambda shown: {
        "at_risk_records": float(shown["at_risk"]["records"]), "at_risk_bytes": 0.0, "at_risk_seconds": 0.0,
    },
    "resync": lambda shown: {"resync_automatic": None, "resync_records_left": None},
    "operation": lambda shown: {"operation_running": float(shown["operation"] is not None)},
    "notices": lambda shown: {"notices": float(len(shown["notices"]))},
}


def test_everything_that_status_shows_is_a_metric(seen: Seen) -> None:
    assert set(STATUS) == set(ClusterDocument.__struct_fields__), "a new member of the status needs a metric"
    figures = samples(seen.pages["a"])
    for member, expected in STATUS.items():
        if callable(expected):
            highest = expected(seen.after)
            for name, lowest in expected(seen.before).items():
                seen_values = (lowest, figures.get(PREFIX + name), highest[name])
                low, shown, high = (-1.0 if value is None else value for value in seen_values)
                assert low <= shown <= high, f"{name} is {shown}, and {member} {low} to {high}"


def test_labels_say_who_the_site_is_and_what_runs(seen: Seen) -> None:
    (info,) = own(seen.pages["b"])["site_info"].samples
    assert info.labels == {"pair": "demo", "site": "b", "policy": "protect", "engine": "rocksdb"}
    assert 'twinlog_http_problems_total{code="not-found",status="404"} 1.0' in seen.pages["a"]
    assert 'twinlog_operations_total{kind="bootstrap",outcome="succeeded"} 1.0' in seen.pages["a"]
    assert 'twinlog_audit_good{audit="compare"} 1.0' in seen.pages["a"]
    for name in ("process_resident_memory_bytes", "process_open_fds", "twinlog_event_loop_lag_seconds_count"):
        assert samples(seen.pages["b"])[name] > 0
