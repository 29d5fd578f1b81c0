"""The figures of a run: what clients got in each second, the roles of the sites, and how long nobody could write or read.

What always holds: every figure is of the history or of the samples; a second in which nothing ended shows nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from chaos.harness.nemesis import Span
from chaos.harness.pair.footprint import Footprint
from chaos.harness.pair.samples import Sample
from chaos.harness.traffic.clients import served
from chaos.history.history import Call, History


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
    """The longest time in which nothing was acknowledged, or read, of those that touch the fault."""

    without_writes_s: float
    without_reads_s: float


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
    took = sorted((call.returned_s or 0) - call.invoked_s for call in calls if call.outcome and call.outcome.result == "ok")
    p99_ms = 1000 * took[min(len(took) - 1, int(len(took) * 0.99))] if took else None
    return Second(at_s, results["ok"], results["not_applied"], results["unknown"], p99_ms)


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


def costs(history: History, spans: Sequence[Span]) -> list[Cost]:
    """Returns the cost of each fault, in order."""
    calls = served(history)
    writes_s, reads_s = _acknowledged_s(calls), _read_s(calls)
    return [Cost(_longest_s(writes_s, span), _longest_s(reads_s, span)) for span in spans]


def _acknowledged_s(calls: Iterable[Call]) -> list[float]:
    return sorted(call.returned_s or 0 for call in calls if call.outcome is not None and call.outcome.ack is not None)


def _read_s(calls: Iterable[Call]) -> list[float]:
    return sorted(
        call.returned_s or 0 for call in calls
        if call.operation.kind in ("read", "scan") and call.outcome is not None and call.outcome.result == "ok"
    )


def _longest_s(times_s: Sequence[float], span: Span | None) -> float:
    gaps = (b - a for a, b in pairwise(times_s) if span is None or (b >= span.from_s and a <= span.to_s))
    return max(gaps, default=0.0)


def around(history: History, calls: Sequence[int], most: int = 16) -> list[Call]:
    """The smallest history that shows a violation: the calls that it names, and others on their rows that overlap these."""
    named = [call for call in history.calls if call.id in calls]
    if not named:
        return []
    keys = {(call.operation.table, key) for call in named for key in _keys(call)}
    from_s = min(call.invoked_s for call in named)
    to_s = max(call.returned_s or call.invoked_s for call in named)
    others = [
        call for call in history.calls
        if call.id not in calls and call.invoked_s <= to_s and (call.returned_s or to_s) >= from_s
        and any((call.operation.table, key) in keys for key in _keys(call))
    ]
    return sorted([*named[:most], *others[: max(0, most - len(named))]], key=lambda call: call.invoked_s)


def _keys(call: Call) -> list[str]:
    return [key for key in (call.operation.key, *(each.key for each in call.operation.mutations)) if key]
