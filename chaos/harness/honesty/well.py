"""P8: no status says that all is well while the clients of the pair wait in vain.

What always holds: a site is held to it only where it has said so in every look for WELL_S, in which clients asked, could reach
it by their links, and none of them had an answer. A site that says nothing, or names a trouble, says nothing false.
Source: docs/operations.md ("Watching": an active does not serve whose writes wait in vain for three seconds).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from chaos.checkers.rows.facts import TELLING
from chaos.checkers.violation import Violation
from chaos.harness.nemesis import Span
from chaos.harness.pair.parts import LINKS, SEVERAL, TOXIPROXY
from chaos.harness.pair.samples import SAMPLE_S, Sample
from chaos.harness.traffic.client import ROAMING
from chaos.harness.traffic.clients import served
from chaos.history.history import Call, History
from gateway.site.serving_judgement import STALLED_S

NAME = "all_well"
SLACK_S = 1.5  # a look's own time, and this machine's
_FOUND_S = ROAMING.attempt_timeout_s + ROAMING.retry_max_s  # until a client has left an address that does not answer
WELL_S = STALLED_S + _FOUND_S + SLACK_S
_GAP_S = 2 * SAMPLE_S + 1.0  # a longer one between two looks: nobody knows what it would have said


class Wait(NamedTuple):
    """Nothing of this kind was done from `from_s` to `to_s`, and from `since_s` on clients asked, and could reach the sites."""

    what: str
    from_s: float
    to_s: float
    since_s: float


def waits(spans: Iterable[Span], history: History) -> list[Wait]:
    """Those that lasted for longer than WELL_S."""
    calls = served(history)
    cut = [span for span in spans if any(link.startswith("c>") for link in _links(span.target))]
    return [
        *_waits(cut, [call for call in calls if call.operation.kind not in ("read", "scan", "schema")], "writes"),
        *_waits(cut, [call for call in calls if call.operation.kind in ("read", "scan")], "reads"),
    ]


def _links(target: str) -> tuple[str, ...]:
    return LINKS if target == TOXIPROXY else SEVERAL.get(target, (target,))


def _waits(cut: Sequence[Span], calls: Sequence[Call], what: str) -> Iterator[Wait]:
    done_s = sorted(
        call.returned_s or 0.0 for call in calls
        if call.outcome is not None and (call.outcome.result == "ok" or call.outcome.error in TELLING)
    )
    asked = [(call.invoked_s, call.returned_s or call.invoked_s) for call in calls]
    ends = [0.0, *done_s, max((to_s for _, to_s in asked), default=0.0)]
    for from_s, to_s in pairwise(ends):
        if to_s - from_s <= WELL_S:
            continue  # whoever asked, asked for less long
        begun_s = [max(from_s, begin) for begin, end in asked if end > from_s and begin < to_s]
        reached_s = [span.to_s + _FOUND_S for span in cut if span.from_s < to_s]
        since_s = max(min(begun_s, default=to_s), *reached_s, 0.0)
        if to_s - since_s > WELL_S:
            yield Wait(what, from_s, to_s, since_s)


def check(samples: Sequence[Sample], found: Iterable[Wait]) -> list[Violation]:
    """The first lie of each site and kind. `found`: by `waits`."""
    lies: dict[tuple[str, str], Violation] = {}
    for wait in found:
        for site, since_s, until_s in _well(samples, wait.since_s, wait.to_s, wait.what):
            sentence = (
                f"From {since_s:.3f} to {until_s:.3f} s site {site} said that it takes {wait.what} and that nothing is wrong;"
                f" from {wait.from_s:.3f} to {wait.to_s:.3f} s no client had one done, although they asked."
            )
            lies.setdefault((site, wait.what), Violation("P8", NAME, sentence, (), (since_s, until_s)))
    return list(lies.values())


def _well(samples: Sequence[Sample], from_s: float, to_s: float, what: str) -> Iterator[tuple[str, float, float]]:
    """Site, begin and end of each time of WELL_S in which every look found all well."""
    for site in sorted({sample.site for sample in samples}):
        since: Sample | None = None
        last: Sample | None = None
        for sample in (each for each in samples if each.site == site and from_s <= each.at_s and each.told_s <= to_s):
            is_well = bool(getattr(sample, what)) and not sample.troubles and not sample.why
            if not is_well or (last is not None and sample.at_s - last.told_s > _GAP_S):
                since = None
            last = sample
            if not is_well:
                continue
            since = since or sample
            if sample.told_s - since.at_s >= WELL_S:
                yield site, since.at_s, sample.told_s
                break
