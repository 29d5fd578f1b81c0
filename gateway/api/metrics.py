"""The door measures acknowledgements, reads and problems itself; Prometheus reads that and everything the site reports.

What always holds: a site's figure whose name ends in `_total` is a counter, any other number a gauge; times are in seconds, as
a client of this process sees them, waiting included. Source: product.md section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.service.histogram import Histogram
from gateway.service.port import Cluster
from switchover.monitor.views import Answers

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _SiteFigures(Collector):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        for name, value in sorted(self._cluster.figures().items()):
            if isinstance(value, Histogram):
                yield HistogramMetricFamily(f"twinlog_{name}", name.replace("_", " "), value.buckets(), value.sum_s)
                continue
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"twinlog_{name}", name.replace("_", " "), value=value)


class DoorMetrics(Collector):
    """Counts what one door answers. It has a registry of its own, so that several sites may live in one process."""

    def __init__(self, cluster: Cluster) -> None:
        self._registry = CollectorRegistry()
        self._acks = {mode: Histogram() for mode in ("sync", "async")}
        self.ack_s = {mode: acks.observe for mode, acks in self._acks.items()}
        self._reads = Histogram()
        self.read_s = self._reads.observe
        self._problems: Counter[int] = Counter()  # by HTTP status
        self._registry.register(_SiteFigures(cluster))
        self._registry.register(self)

    def problem(self, status: int) -> None:
        self._problems[status] += 1

    def answers(self) -> Answers:
        """Counts what was answered since this process began, for the availability monitor."""
        acks = self._acks.values()
        failed = sum(count for status, count in self._problems.items() if status >= 500)
        return Answers(sum(each.count for each in acks), failed, sum(each.sum_s for each in acks))

    def durations(self) -> dict[str, Histogram]:
        """The acknowledgements of each mode and the reads, for the operator's page."""
        return {**{f"ack_seconds_{mode}": each for mode, each in self._acks.items()}, "read_seconds": self._reads}

    def problems(self) -> dict[str, float]:
        """Answers that were problems: by a fault of the request or of the caller, and by one of the site."""
        failed = sum(count for status, count in self._problems.items() if status >= 500)
        return {"http_problems_failed": float(failed), "http_problems_refused": float(self._problems.total() - failed)}

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        acks = HistogramMetricFamily(
            "twinlog_ack_seconds", "acknowledged writes, from the whole request to the acknowledgement", labels=["mode"]
        )
        for mode, each in self._acks.items():
            acks.add_metric([mode], each.buckets(), each.sum_s)
        yield acks
        yield HistogramMetricFamily("twinlog_read_seconds", "reads of one row", self._reads.buckets(), self._reads.sum_s)
        problems = CounterMetricFamily("twinlog_http_problems", "answers that were problems, by HTTP status", labels=["status"])
        for status, count in self._problems.items():
            problems.add_metric([str(status)], count)
        yield problems

    def page(self) -> bytes:
        """Returns the text that `GET /metrics` answers."""
        return generate_latest(self._registry)
