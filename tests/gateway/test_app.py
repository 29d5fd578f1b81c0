"""The composition root counts what the garbage collector takes."""

from __future__ import annotations

from gateway.app import collection_timer
from gateway.service.histogram import Histogram


def test_a_collection_is_counted_when_it_ends() -> None:
    counted = Histogram()
    note = collection_timer(counted)
    note("start", {})
    assert counted.buckets()[-1] == ("+Inf", 0)
    note("stop", {})
    assert counted.buckets()[-1] == ("+Inf", 1)
    assert counted.sum_s > 0
