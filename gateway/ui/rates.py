"""SiteRates and latencies between two looks at a site, from its counters and histograms.

What always holds: a counter that went back began anew, with its process or epoch, and gives no rate; what nobody measured is
None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.service.histogram import BOUNDS_S
from gateway.ui.looks import Counts, SiteLook


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds: of half of the calls, and of 99 in 100, as the upper bounds of the histogram. None: there were no calls."""

    count: int
    p50_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class SiteRates:
    """A site's figures over the last `over_s` seconds; per second where nothing else is said."""

    over_s: float
    writes: float | None = None
    reads: float | None = None
    failed: float | None = None  # answers that were errors of the site
    refused: float | None = None  # answers that were errors of the request
    shipped_bytes: float | None = None
    acks: Latency = Latency(0)
    local: Latency = Latency(0)
    remote: Latency = Latency(0)
    applies: Latency = Latency(0)


ACKS = ("ack_seconds_sync", "ack_seconds_async")


def rates(before: SiteLook, now: SiteLook, over_s: float) -> SiteRates:
    """`over_s` lies between the two looks."""
    def latency(*names: str) -> Latency:
        return latency_of(_fallen(before.durations, now.durations, names))

    acks, reads = latency(*ACKS), latency("read_seconds")
    return SiteRates(
        over_s, acks.count / over_s, reads.count / over_s, _rate(before, now, "http_problems_failed", over_s),
        _rate(before, now, "http_problems_refused", over_s), _rate(before, now, "shipped_bytes_total", over_s),
        acks, latency("local_append_seconds"), latency("remote_append_seconds"), latency("apply_seconds"),
    )


def _rate(before: SiteLook, now: SiteLook, name: str, over_s: float) -> float | None:
    first, last = before.figures.get(name), now.figures.get(name)
    return None if first is None or last is None or last < first else (last - first) / over_s


def _fallen(before: Mapping[str, Counts], now: Mapping[str, Counts], names: Sequence[str]) -> list[int]:
    """Returns how many fell into each place of the histograms `names` together."""
    fallen = [0] * (len(BOUNDS_S) + 1)
    for name in names:
        last = now.get(name)
        if last is None:
            continue
        first = before.get(name)
        grown = [new - old for new, old in zip(last.counts, first.counts, strict=True)] if first is not None else [-1]
        for place, count in enumerate(last.counts if min(grown) < 0 else grown):
            fallen[place] += count
    return fallen


def latency_of(fallen: Sequence[int]) -> Latency:
    count = sum(fallen)
    return Latency(count, quantile_s(fallen, 0.5), quantile_s(fallen, 0.99)) if count else Latency(0)


def quantile_s(fallen: Sequence[int], share: float) -> float:
    """Returns the quantile, drawn out evenly within its place; of what is longer than the last bound that bound."""
    wanted, seen, lower = share * sum(fallen), 0, 0.0
    for count, upper in zip(fallen, BOUNDS_S, strict=False):
        if count and seen + count >= wanted:
            return lower + (upper - lower) * (wanted - seen) / count
        seen, lower = seen + count, upper
    return float(BOUNDS_S[-1])
