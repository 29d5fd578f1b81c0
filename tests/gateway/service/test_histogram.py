"""A histogram counts durations under the bounds that Prometheus is told, and a door shows them as a histogram."""

from __future__ import annotations

from gateway.api.metrics import DoorMetrics
from gateway.service.histogram import BOUNDS_S, Histogram
from tests.gateway.dict_service import DictService


def test_each_duration_is_counted_once_and_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram()
    for duration_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1], BOUNDS_S[-1] + 1):
        histogram.observe(duration_s)
    buckets = dict(histogram.buckets())
    assert buckets[str(BOUNDS_S[0])] == 2
    assert buckets[str(BOUNDS_S[1])] == 3
    assert buckets[str(BOUNDS_S[-1])] == 4
    assert buckets["+Inf"] == 5


def test_prometheus_reads_a_histogram() -> None:
    histogram = Histogram()
    histogram.observe(0.0012)

    class Measured(DictService):
        def figures(self) -> dict[str, Histogram]:  # type: ignore[override]
            return {"remote_append_seconds": histogram}

    page = DoorMetrics(Measured()).page("")[1].decode()
    assert "# TYPE twinlog_remote_append_seconds histogram" in page
    assert 'twinlog_remote_append_seconds_bucket{le="0.001"} 0.0' in page
    assert 'twinlog_remote_append_seconds_bucket{le="0.0015"} 1.0' in page
    assert "twinlog_remote_append_seconds_count 1.0" in page
