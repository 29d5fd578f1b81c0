"""The door measures acknowledgements, reads and problems itself; Prometheus reads that and everything the site reports.

What always holds: a site's figure whose name ends in `_total` is a counter, any other number a gauge; times are in seconds, as
a client of this process sees them, waiting included. Source: product.md section 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.service import histogram
from gateway.service.port import Cluster
from switchover.monitor.views import Answers

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class _SiteFigures(Collector):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        for name, value in sorted(self._cluster.figures().items()):
            if isinstance(value, histogram.Histogram):
                yield HistogramMetricFamily(f"twinlog_{name}", name.replace("_", " "), value.buckets(), value.sum_s)
                continue
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"twinlog_{name}", name.replace("_", " "), value=value)


class DoorMetrics:
    """One registry for each door, so that several sites may live in one process."""

    def __init__(self, cluster: Cluster) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_SiteFigures(cluster))
        self._acks = acks = Histogram(
            "twinlog_ack_seconds", "acknowledged writes, from the whole request to the acknowledgement", ["mode"],
            registry=self._registry, buckets=_BUCKETS_S,
        )
        self.ack_s = {mode: acks.labels(mode).observe for mode in ("sync", "async")}
        self.read_s = Histogram(
            "twinlog_read_seconds", "reads of one row", registry=self._registry, buckets=_BUCKETS_S
        ).observe
        self._problems = Counter(
            "twinlog_http_problems", "answers that were problems, by HTTP status", ["status"], registry=self._registry
        )

    def problem(self, status: int) -> None:
        self._problems.labels(str(status)).inc()

    def answers(self) -> Answers:
        """Counts what was answered since this process began, for the availability monitor."""
        families = [*self._acks.collect(), *self._problems.collect()]
        samples = [sample for family in families for sample in family.samples]
        failed = (one.value for one in samples if one.name.endswith("_total") and one.labels["status"] >= "500")
        return Answers(
            round(sum(one.value for one in samples if one.name.endswith("_count"))), round(sum(failed)),
            sum(one.value for one in samples if one.name.endswith("_sum")),
        )

    def page(self) -> bytes:
        """Returns the text that `GET /metrics` answers."""
        return generate_latest(self._registry)
