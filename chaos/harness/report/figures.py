"""The figures of a run: what clients got in each second, the roles of the sites, and how long nobody could write or read.

What always holds: every figure is of the history or of the samples; a second in which nothing ended shows nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from chaos.harness.nemesis import Span
from chaos.harness.pair.files.footprint import Footprint
from chaos.harness.pair.samples import Sample
from chaos.harness.pair.sites import SITES
from chaos.harness.traffic.clients import served
from chaos.history.history import Call, History

WHOLE_LATE_S = 1.0  # a fault shows in the sites' words a moment later


class Second(msgspec.Struct, frozen=True):
    """The calls that ended in one second. `p99_ms`: of what was done; None: nothing was."""

    at_s: int
    done: int
    refused: int
    unknown: int
    p99_ms: float | None


class RoleSpan(msgspec.Struct, frozen=True):
    site: str
    role: str
    from_s: float
    to_s: float


class Cost(msgspec.Struct, frozen=True):
    """The longest time in which nothing was acknowledged, or read, of those that touch the fault; the calls of unknown outcome
    that were under way in it; and from its beginning how long until the pair was whole after it. `whole_after_s`: 0: it always
    was; None: it was not whole again while anybody looked."""

    without_writes_s: float
    without_reads_s: float
    unknown: int
    whole_after_s: float | None


class Latency(msgspec.Struct, frozen=True):
    """The time to an answer that something was done, of calls that overlap a fault (or none). None: there was no call."""

    during_faults: bool
    what: str
    calls: int
    p50_ms: float | None
    p99_ms: float | None


class Resource(msgspec.Struct, frozen=True):
    """A resource of a site's process: when the run began, at most, and at the last look at it."""

    site: str
    name: str
    first: int
    most: int
    last: int


class Totals(msgspec.Struct, frozen=True):
    """`operations`: of all clients. The others are of those that follow the active: `acknowledged` and `unknown` are writes,
    `without_writes_s` is the longest gap of all."""

    operations: int
    acknowledged: int
    unknown: int
    refused: int
    without_writes_s: float
    without_reads_s: float


def seconds(history: History) -> list[Second]:
    by_second: dict[int, list[Call]] = {}
    for call in served(history):
        by_second.setdefault(int(call.returned_s or 0), []).append(call)
    return [_second(at_s, calls) for at_s, calls in sorted(by_second.items())]


def _second(at_s: int, calls: Sequence[Call]) -> Second:
    results = Counter(call.outcome.result for call in calls if call.outcome is not None)
    done = [call for call in calls if call.outcome is not None and call.outcome.result == "ok"]
    took_ms = [1000 * ((call.returned_s or 0) - call.invoked_s) for call in done]
    return Second(at_s, results["ok"], results["not_applied"], results["unknown"], _share(took_ms, 0.99))


def role_spans(samples: Iterable[Sample], site: str) -> Iterator[RoleSpan]:
    """From each look to the next one, equal ones together."""
    begun: Sample | None = None
    last_s = 0.0
    for sample in (each for each in samples if each.site == site):
        last_s = sample.at_s
        if begun is None:
            begun = sample
        elif sample.role != begun.role:
            yield RoleSpan(site, begun.role, begun.at_s, sample.at_s)
            begun = sample
    if begun is not None:
        yield RoleSpan(site, begun.role, begun.at_s, last_s)


def resources(samples: Sequence[Sample]) -> list[Resource]:
    """Memory in MiB, descriptors and threads of each site. A process that was started anew began with less."""
    found = []
    for site in sorted({sample.site for sample in samples}):
        looks = [sample.held for sample in samples if sample.site == site and sample.held is not None]
        for name, of in _HELD.items():
            held = [of(look) for look in looks]
            if held:
                found.append(Resource(site, name, held[0], max(held), held[-1]))
    return found


_HELD: Mapping[str, Callable[[Footprint], int]] = {
    "memory, MiB": lambda held: held.memory_bytes >> 20, "descriptors": lambda held: held.descriptors,
    "threads": lambda held: held.threads,
}


def totals(history: History) -> Totals:
    calls = served(history)
    results = Counter(call.outcome.result for call in calls if call.outcome is not None)
    writes = [call for call in calls if call.outcome is not None and call.outcome.ack is not None]
    return Totals(
        len(history.calls), len(writes), results["unknown"], results["not_applied"], _longest_s(_acknowledged_s(calls), None),
        _longest_s(_read_s(calls), None),
    )


def costs(history: History, spans: Sequence[Span], samples: Sequence[Sample]) -> list[Cost]:
    """Returns the cost of each fault, in order."""
    calls = served(history)
    writes_s, reads_s, wholes = _acknowledged_s(calls), _read_s(calls), list(whole(samples))
    unknown = [call for call in calls if call.outcome is not None and call.outcome.result == "unknown"]
    return [
        Cost(
            _longest_s(writes_s, span), _longest_s(reads_s, span),
            sum(call.invoked_s <= span.to_s and (call.returned_s or 0) >= span.from_s for call in unknown),
            _whole_after_s(wholes, span),
        )
        for span in spans
    ]


def whole(samples: Sequence[Sample]) -> Iterator[tuple[float, bool]]:
    """At each look at a site: by the newest words of both, one serves, the other one follows, and none names a trouble."""
    newest: dict[str, Sample] = {}
    for sample in sorted(samples, key=lambda each: each.told_s):
        newest[sample.site] = sample
        active = [each for each in newest.values() if each.role == "ACTIVE" and each.writes and not each.troubles]
        following = [each for each in newest.values() if each.follows and not each.troubles]
        if len(newest) == len(SITES):
            yield sample.told_s, len(active) == 1 and len(following) == 1


def _whole_after_s(wholes: Sequence[tuple[float, bool]], span: Span) -> float | None:
    touching = [is_whole for at_s, is_whole in wholes if span.from_s <= at_s <= span.to_s + WHOLE_LATE_S]
    if touching and all(touching):
        return 0.0
    broken_s = next((at_s for at_s, is_whole in wholes if at_s >= span.from_s and not is_whole), span.from_s)
    return next((at_s - span.from_s for at_s, is_whole in wholes if at_s >= max(span.to_s, broken_s) and is_whole), None)


def latencies(history: History, spans: Sequence[Span]) -> list[Latency]:
    """The latency of writes and reads that were done, outside of faults and during them. Commands count as faults."""
    happened = _together([span for span in spans if not span.skipped])
    took: dict[tuple[bool, str], list[float]] = {(during, what): [] for what in ("writes", "reads") for during in (False, True)}
    for call in served(history):
        if call.outcome is None or call.outcome.result != "ok" or call.returned_s is None:
            continue
        after = bisect_left(happened, call.invoked_s, key=lambda each: each[1])  # the first that had not ended when it began
        during = after < len(happened) and happened[after][0] <= call.returned_s
        what = "reads" if call.operation.kind in ("read", "scan") else "writes"
        took[during, what].append(1000 * (call.returned_s - call.invoked_s))
    return [
        Latency(during, what, len(each), _share(each, 0.5), _share(each, 0.99)) for (during, what), each in took.items()
    ]


def _together(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The times of the spans, those that touch each other as one, in order."""
    found: list[tuple[float, float]] = []
    for from_s, to_s in sorted((span.from_s, span.to_s) for span in spans):
        if found and from_s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], to_s)
        else:
            found.append((from_s, to_s))
    return found


def _share(took_ms: Sequence[float], share: float) -> float | None:
    return sorted(took_ms)[min(len(took_ms) - 1, int(len(took_ms) * share))] if took_ms else None


def _acknowledged_s(calls: Sequence[Call]) -> list[float]:
    return _between([call for call in calls if call.outcome is not None and call.outcome.ack is not None], calls)


def _read_s(calls: Sequence[Call]) -> list[float]:
    done = [call for call in calls if call.outcome is not None and call.outcome.result == "ok"]
    return _between([call for call in done if call.operation.kind in ("read", "scan")], calls)


def _between(done: Iterable[Call], calls: Sequence[Call]) -> list[float]:
    """The times at which something was done, between the first question and the last answer of all."""
    if not calls:
        return []
    ends = [min(call.invoked_s for call in calls), max(call.returned_s or 0 for call in calls)]
    return sorted([*ends, *(call.returned_s or 0 for call in done)])


def _longest_s(times_s: Sequence[float], span: Span | None) -> float:
    """`times_s` in order. With a span: of the times that touch it."""
    if span is not None:
        times_s = times_s[max(0, bisect_left(times_s, span.from_s) - 1):bisect_right(times_s, span.to_s) + 1]
    return max((b - a for a, b in pairwise(times_s)), default=0.0)
