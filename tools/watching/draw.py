"""Draws docs/prometheus/ and docs/grafana/ from their tables: `python -m tools.watching.draw`.

What always holds: the files are functions of the tables alone; a test compares them. Texts are written as JSON strings, which
YAML reads as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tools.sources import ROOT
from tools.watching.cases import CASES, INTERVAL_S, Case
from tools.watching.dashboards import DASHBOARDS, dashboard
from tools.watching.rules import ALERTS, DAY_S, HANDBOOK, HOUR_S, MINUTE_S, Alert

_DRAWN = "# Drawn by `python -m tools.watching.draw` from tools/watching/{table}.py; change the table, never this file.\n"
_UNITS = (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S), ("s", 1))


def duration(seconds: float) -> str:
    """Returns Prometheus' words for whole milliseconds at least."""
    if seconds != int(seconds):
        return f"{max(1, round(seconds * 1000))}ms"
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0)
    return f"{int(seconds) // size}{unit}"


def rules_yaml(alerts: Sequence[Alert] = ALERTS, scale: float = 1.0) -> str:
    """`scale`: of the times for which an expression must hold; a test shortens them."""
    lines = [_DRAWN.format(table="rules"), "groups:", "  - name: twinlog", "    rules:"]
    for alert in alerts:
        summary = re.sub(r"\{(\w+)\}", r"{{ $labels.\1 }}", alert.summary)
        lines += [
            f"      - alert: {alert.name}", f"        expr: {json.dumps(alert.expr)}",
            f"        for: {duration(alert.for_s * scale)}", "        labels:", f"          severity: {alert.severity}",
            "        annotations:", f"          summary: {json.dumps(summary)}",
            f"          runbook_url: {json.dumps(f'{HANDBOOK}#{alert.anchor}')}",
        ]
    return "\n".join([*lines, ""])


def cases_yaml(cases: Sequence[Case] = CASES) -> str:
    lines = [_DRAWN.format(table="cases"), "rule_files:", "  - alerts.yml", "evaluation_interval: 15s", "tests:"]
    for case in cases:
        lines += [f"  - interval: {INTERVAL_S}s", "    input_series:" if case.series else "    input_series: []"]
        for name, values in case.series.items():
            lines += [f"      - series: {json.dumps(name)}", f"        values: {json.dumps(values)}"]
        lines += ["    alert_rule_test:", f"      - eval_time: {duration(case.at_s)}", f"        alertname: {case.alert}"]
        lines += ["        exp_alerts:" if case.fires else "        exp_alerts: []", *_expected(case)]
    return "\n".join([*lines, ""])


def _expected(case: Case) -> Iterator[str]:
    alert = next(alert for alert in ALERTS if alert.name == case.alert)
    for labels in case.fires:
        yield "          - exp_labels:"
        for label, value in {**labels, "severity": alert.severity}.items():
            yield f"              {label}: {json.dumps(value)}"
        yield "            exp_annotations:"
        yield f"              summary: {json.dumps(alert.summary.format(**labels))}"
        yield f"              runbook_url: {json.dumps(f'{HANDBOOK}#{alert.anchor}')}"


def _dashboard_json(name: str) -> str:
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


FILES: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs" / "prometheus" / "alerts.yml": rules_yaml,
    ROOT / "docs" / "prometheus" / "alerts_test.yml": cases_yaml,
    **{ROOT / "docs" / "grafana" / f"{name}.json": partial(_dashboard_json, name) for name in DASHBOARDS},
}


def main() -> None:
    for path, drawn in FILES.items():
        path.write_text(drawn(), encoding="utf-8")


if __name__ == "__main__":
    main()
