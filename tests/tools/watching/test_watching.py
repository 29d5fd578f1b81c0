"""Alert rules and dashboards: drawn from their tables, valid for Prometheus, about metrics that exist, with a way out."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from gateway.metrics.catalogue import CATALOGUE, PREFIX
from gateway.metrics.process import process_collector
from tests.tools.watching.prometheus_rig import promtool
from tools.sources import ROOT
from tools.watching.cases import CASES
from tools.watching.dashboards import DASHBOARDS
from tools.watching.draw import FILES, cases_yaml, duration, rules_yaml
from tools.watching.rules import ALERTS, HANDBOOK, Alert
from twinlog.cli.main import all_verbs

RULES = ROOT / "docs" / "prometheus"
GRAFANA = ROOT / "docs" / "grafana"
EXPRESSIONS = [(alert.name, alert.expr) for alert in ALERTS] + [
    (f"{name}: {panel.title}", expr)
    for name, (_, panels) in DASHBOARDS.items() for panel in panels for expr, _ in panel.queries
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_each_file_is_drawn_from_its_table(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path](), "run: python -m tools.watching.draw"


def known_metrics() -> set[str]:
    names = set()
    for metric in CATALOGUE.values():
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{PREFIX}{metric.name}{suffix}" for suffix in suffixes}
    return names | {f"{each.name}_total" if each.type == "counter" else each.name for each in process_collector().collect()}


@pytest.mark.parametrize(("whose", "expr"), EXPRESSIONS, ids=[whose for whose, _ in EXPRESSIONS])
def test_a_query_asks_for_metrics_that_exist(whose: str, expr: str) -> None:
    named = set(re.findall(r"\b(?:twinlog|process)_\w+", re.sub(r'"[^"]*"', "", expr)))
    assert named or "ALERTS" in expr or 'up{job="twinlog"}' in expr
    assert named <= known_metrics(), f"{whose} asks for what no site shows"


# ---- rules
def headings(page: str) -> set[str]:
    """The anchors that a page has, as a forge makes them."""
    found = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_leads_to_the_handbook_and_says_what_to_type(alert: Alert) -> None:
    assert alert.anchor in headings((ROOT / HANDBOOK).read_text(encoding="utf-8"))
    typed = re.findall(r"`twinlog ([a-z-]+)", alert.summary)
    assert set(typed) <= set(all_verbs())
    assert typed or "Make room" in alert.summary or "Put a new one" in alert.summary or "Set up TLS" in alert.summary
    assert "{pair}" in alert.summary


def test_prometheus_takes_rules_and_configuration() -> None:
    for words in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")):
        done = promtool(*words, folder=RULES)
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yml", folder=RULES).stdout


@pytest.mark.long
def test_each_rule_fires_on_what_it_is_for_and_on_nothing_else() -> None:
    for alert in ALERTS:
        of_it = [case for case in CASES if case.alert == alert.name]
        assert any(case.fires for case in of_it), alert.name
        assert any(not case.fires for case in of_it), alert.name
    done = promtool("test", "rules", "alerts_test.yml", folder=RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_cases_notice_a_rule_with_the_wrong_sign(alert: Alert, tmp_path: Path) -> None:
    """Each comparison turned round, one at a time."""
    turned = {"==": "!=", ">": "<", "<": ">"}
    signs = list(re.finditer(r" (==|>|<) ", alert.expr))
    assert signs
    (tmp_path / "alerts_test.yml").write_text(cases_yaml([case for case in CASES if case.alert == alert.name]))
    for sign in signs:
        expr = f"{alert.expr[: sign.start(1)]}{turned[sign[1]]}{alert.expr[sign.end(1) :]}"
        (tmp_path / "alerts.yml").write_text(rules_yaml([alert._replace(expr=expr)]))
        assert promtool("test", "rules", "alerts_test.yml", folder=tmp_path).returncode != 0, expr


@pytest.mark.parametrize(("seconds", "words"), [
    (0, "0d"), (30, "30s"), (120, "2m"), (86_400, "1d"), (90, "90s"), (0.5, "500ms"),
])
def test_durations_are_in_prometheus_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# ---- dashboards
def overlaps(one: dict[str, int], other: dict[str, int]) -> bool:
    return (one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
            and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_the_shape_that_grafana_reads(name: str) -> None:
    model: dict[str, Any] = json.loads((GRAFANA / f"{name}.json").read_text(encoding="utf-8"))
    panels = model["panels"]
    assert model["schemaVersion"] >= 36
    assert model["uid"] == f"twinlog-{name}"
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert len({panel["title"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] >= 0 and place["w"] > 0 and place["h"] > 0 and place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if overlaps(one, other)]
    variables = {variable["name"] for variable in model["templating"]["list"]}
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat", "table")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        used = set(re.findall(r"\$\{?(\w+)", json.dumps([panel["datasource"], panel["targets"]])))
        assert used <= variables | {"__rate_interval"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_dashboards_rows_are_full_or_end(name: str) -> None:
    """A row that ends early looks broken; the last may."""
    panels = json.loads((GRAFANA / f"{name}.json").read_text(encoding="utf-8"))["panels"]
    widths: dict[int, int] = {}
    for panel in panels:
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert all(width == 24 for width in list(widths.values())[:-1])
