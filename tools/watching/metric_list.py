"""Draws docs/metrics.md from the catalogue, so that every metric is on a page: `python -m tools.watching.metric_list`.

What always holds: the page is a function of the catalogue alone, and of the texts that prometheus_client has for the figures of
a process; a test compares the file with it.
"""

from __future__ import annotations

from gateway.metrics.catalogue import PREFIX, SECTIONS
from gateway.metrics.process import process_collector
from tools.sources import ROOT

PAGE = ROOT / "docs" / "metrics.md"

_INTRODUCTION = """# Metrics

Every metric on `GET /metrics` of a site, with the text that Prometheus shows. The page is drawn
from `gateway/metrics/catalogue.py` by `python -m tools.watching.metric_list`; change the catalogue, never this page. How to
watch a pair is in
[operations](operations.md#watching); `docs/prometheus/` has alert rules and a configuration, `docs/grafana/` has dashboards.

- A figure that a site does not know is left out, and never shown as 0. So a rule that looks for a value below a bound does not
  fire on it; where the absence matters, the rules ask for it (`absent`, `unless`).
- Figures of an open epoch are those of the active alone, and its counters begin at 0 with each epoch.
- Times are in seconds and sizes in bytes. The labels `pair` and `site` come from the configuration of Prometheus.
"""


def page() -> str:
    lines = [_INTRODUCTION]
    for section, metrics in SECTIONS.items():
        lines += [f"## {section}\n", "| metric | type | labels | what it says |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    lines += [
        "## Of every process\n", "Prometheus' own names, as its client library measures them.\n",
        "| metric | type | what it says |", "|---|---|---|",
    ]
    for family in process_collector().collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"| `{name}` | {family.type} | {family.documentation} |")
    return "\n".join([*lines, ""])


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
