"""SiteRates between two looks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.service.histogram import BOUNDS_S, Histogram
from gateway.ui.looks import SiteLook, counted
from gateway.ui.rates import latency_of, quantile_s, rates
from tests.gateway.ui.ui_rig import look


def _looked(times_s: list[float], **figures: float) -> SiteLook:
    histogram = Histogram()
    for one in times_s:
        histogram.observe(one)
    return replace(look(), durations={"ack_seconds_sync": counted(histogram)}, figures=figures)


def test_what_fell_between_two_looks() -> None:
    before = _looked([0.002] * 10, http_problems_failed=1.0, shipped_bytes_total=100.0)
    found = rates(before, _looked([0.002] * 10 + [0.008] * 20, http_problems_failed=3.0, shipped_bytes_total=50.0), 2.0)
    assert (found.writes, found.failed) == (10.0, 1.0)
    assert found.shipped_bytes is None  # it began anew
    assert found.acks.count == 20
    assert found.acks.p50_s == pytest.approx(0.0075)
    assert found.local.p50_s is None


def test_a_histogram_that_began_anew_counts_from_nothing() -> None:
    assert rates(_looked([0.002] * 10), _looked([0.008] * 4), 1.0).writes == 4.0


def test_quantiles() -> None:
    fallen = [0] * (len(BOUNDS_S) + 1)
    assert latency_of(fallen).p50_s is None
    fallen[-1] = 3
    assert quantile_s(fallen, 0.5) == BOUNDS_S[-1]
    fallen[0] = 300
    assert quantile_s(fallen, 0.5) < BOUNDS_S[0]
