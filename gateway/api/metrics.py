"""The door measures acknowledgements, reads, requests and problems itself, and writes out everything that the site reports.

What always holds: a metric's type, labels and text are those of the catalogue, and one that is not in it is an error; times are
in seconds, as a client of this process sees them, waiting included; where traces are on, and the scraper asks for
OpenMetrics, buckets have exemplars. Source: product.md section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from gateway.metrics.catalogue import CATALOGUE, PREFIX, Figure, Figures, Labelled, Metric
from gateway.service.histogram import Histogram
from gateway.service.port import Cluster
from storage.tracing import Span
from switchover.monitor.views import Answers

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")
OTHER_METHOD = "other"  # a client may write what it likes
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Source = Callable[[], Figures]


def merged(figures: Iterable[Figures]) -> dict[str, Figure | Labelled]:
    """Returns the figures of all sources by name. Several may have series of one metric, each with other labels."""
    found: dict[str, Figure | Labelled] = {}
    for each in figures:
        for name, value in each.items():
            before = found.get(name)
            if isinstance(value, float | int | Histogram) or before is None:
                found[name] = value
            elif not isinstance(before, float | int | Histogram):
                found[name] = {**before, **value}
    return found


def family(metric: Metric, value: Figure | Labelled) -> Family:
    series: Labelled = {(): value} if isinstance(value, float | int | Histogram) else value
    name = PREFIX + metric.name
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, each in series.items():
            assert isinstance(each, Histogram), name
            histogram.add_metric(labels, _with_exemplars(each), each.sum_s)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(name, metric.help, labels=metric.labels)
    for labels, each in series.items():
        assert not isinstance(each, Histogram), name
        made.add_metric(labels, each)
    return made


def _with_exemplars(histogram: Histogram) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    found: list[tuple[str, float] | tuple[str, float, Exemplar]] = list(histogram.buckets())
    for index, each in enumerate(histogram.exemplars):
        if each is None:
            continue
        bound, count = found[index][:2]
        found[index] = bound, count, Exemplar({"trace_id": each.trace_id}, each.duration_s)
    return found


class _Written(Collector):
    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Family]:
        for name, value in sorted(merged(source() for source in self._sources).items()):
            made = family(CATALOGUE[name], value)
            if made.samples:
                yield made


class DoorMetrics:
    """Counts what the doors of one site answer. It has a registry of its own, so that several sites may live in one process."""

    def __init__(self, cluster: Cluster, *, has_exemplars: bool = False) -> None:
        self._registry, self._has_exemplars = CollectorRegistry(), has_exemplars
        self._acks = {mode: Histogram() for mode in ("sync", "async")}
        self.ack_s = {mode: acks.observe for mode, acks in self._acks.items()}
        self._reads = Histogram()
        self.read_s = self._reads.observe
        self._requests = dict.fromkeys((*METHODS, OTHER_METHOD), 0)
        self._problems: Counter[tuple[int, str]] = Counter()  # by HTTP status and error code
        self._sources: list[Source] = [cluster.figures, self._figures]
        self._registry.register(_Written(self._sources))
        self.disk: Callable[[], Mapping[str, float]] = dict  # the figures of the data directory's disk, for the operator's page

    def add(self, source: Source) -> None:
        """Shows the figures of `source`, too."""
        self._sources.append(source)

    def add_collector(self, collector: Collector) -> None:
        """Shows metrics that are not the site's own."""
        self._registry.register(collector)

    def request(self, method: str) -> None:
        self._requests[method if method in self._requests else OTHER_METHOD] += 1

    def exemplify_ack(self, mode: str, duration_s: float, span: Span) -> None:
        """Notes the trace of an acknowledgement that is counted; `exemplify_read` that of a read."""
        self._acks[mode].exemplify(duration_s, span.trace_id)

    def exemplify_read(self, duration_s: float, span: Span) -> None:
        self._reads.exemplify(duration_s, span.trace_id)

    def problem(self, status: int, code: str) -> None:
        self._problems[status, code] += 1

    def answers(self) -> Answers:
        """Counts what was answered since this process began, for the availability monitor."""
        acks = self._acks.values()
        failed = sum(count for (status, _), count in self._problems.items() if status >= 500)
        return Answers(sum(each.count for each in acks), failed, sum(each.sum_s for each in acks))

    def _figures(self) -> Figures:
        return {
            "ack_seconds": {(mode,): acks for mode, acks in self._acks.items()},
            "read_seconds": self._reads,
            "http_requests_total": {(method,): float(count) for method, count in self._requests.items()},
            "http_problems_total": {(str(status), code): float(count) for (status, code), count in self._problems.items()},
        }

    def durations(self) -> dict[str, Histogram]:
        """The acknowledgements of each mode and the reads, for the operator's page."""
        return {**{f"ack_seconds_{mode}": each for mode, each in self._acks.items()}, "read_seconds": self._reads}

    def problems(self) -> dict[str, float]:
        """Answers that were problems: by a fault of the request or of the caller, and by one of the site."""
        failed = sum(count for (status, _), count in self._problems.items() if status >= 500)
        return {"http_problems_failed": float(failed), "http_problems_refused": float(self._problems.total() - failed)}

    def page(self, accept: str) -> tuple[str, bytes]:
        """Returns (content type, text) of what `GET /metrics` answers to a scraper that accepts `accept`."""
        if not self._has_exemplars:
            return CONTENT_TYPE_LATEST, generate_latest(self._registry)
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)
