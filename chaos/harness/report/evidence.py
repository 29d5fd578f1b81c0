"""The smallest history around a violation: the calls that show it, with those on their rows that overlap them; or, where it is
of a site, what the sites said around it.

What always holds: of more than can be read, those nearest to the violation are shown, and how many there are is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from chaos.checkers.violation import Violation
from chaos.harness.pair.samples import Sample
from chaos.history.history import Call, History

SHOWN_MAX, EACH_MAX = 20, 4
CALLS_MAX = 16
LOOKS_MAX = 12
AROUND_S = 2.0


class Evidence(msgspec.Struct, frozen=True):
    """`left_out`: calls and looks that belong to it, and are not in it."""

    violation: Violation
    calls: list[Call]
    looks: list[Sample]
    left_out: int


def first_of_each(violations: Sequence[Violation], most: int = SHOWN_MAX) -> list[Violation]:
    """The first ones of each checker, so that one that finds many does not hide the others."""
    seen: Counter[str] = Counter()
    chosen = []
    for each in violations:
        seen[each.checker] += 1
        if seen[each.checker] <= EACH_MAX:
            chosen.append(each)
    return chosen[:most]


def evidence(history: History, samples: Sequence[Sample], violation: Violation) -> Evidence:
    calls, left_out = around(history, violation)
    looks: list[Sample] = []
    if not violation.calls and violation.times_s:
        looks, more = _nearest(samples, violation.times_s)
        left_out += more
    return Evidence(violation, calls, looks, left_out)


def around(history: History, violation: Violation, most: int = CALLS_MAX) -> tuple[list[Call], int]:
    """The calls, by their begin, and how many more there would be."""
    named = [call for call in history.calls if call.id in violation.calls]
    if not named:
        return [], 0
    at_s = violation.times_s[-1] if violation.times_s else named[-1].invoked_s
    if len(named) > most:
        chosen = sorted(named, key=lambda call: _far_s(call, at_s))[:most]
        return sorted(chosen, key=lambda call: call.invoked_s), len(named) - most
    rows = {(call.operation.table, key) for call in named for key in _keys(call)}
    from_s, to_s = min(call.invoked_s for call in named), max(call.returned_s or call.invoked_s for call in named)
    others = [
        call for call in history.calls
        if call.id not in violation.calls and call.invoked_s <= to_s and (call.returned_s or to_s) >= from_s
        and any((call.operation.table, key) in rows for key in _keys(call))
    ]
    others.sort(key=lambda call: _far_s(call, at_s))
    room = most - len(named)
    return sorted([*named, *others[:room]], key=lambda call: call.invoked_s), max(0, len(others) - room)


def _far_s(call: Call, at_s: float) -> float:
    returned_s = call.returned_s if call.returned_s is not None else call.invoked_s
    return max(call.invoked_s - at_s, at_s - returned_s, 0.0)


def _nearest(samples: Sequence[Sample], times_s: Sequence[float]) -> tuple[list[Sample], int]:
    """Looks at both sites from a little before the first moment to a little after the last one: of each site some, evenly."""
    inside = [each for each in samples if times_s[0] - AROUND_S <= each.at_s <= times_s[-1] + AROUND_S]
    chosen: list[Sample] = []
    for site in sorted({each.site for each in inside}):
        looks = sorted((each for each in inside if each.site == site), key=lambda each: each.at_s)
        chosen += looks[:: max(1, -(-len(looks) // (LOOKS_MAX // 2)))]
    return sorted(chosen, key=lambda each: each.at_s), len(inside) - len(chosen)


def _keys(call: Call) -> list[str]:
    return [key for key in (call.operation.key, *(each.key for each in call.operation.mutations)) if key]
