"""An incident as the text of a plan: each command and fault with the source that says so, quiet spans shortened.

What always holds: the order of the incident is kept, also of ends; what cannot be said in a plan is a comment at its place; the
text is a plan that the harness reads, whatever was found.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from chaos.fault_lines import Fault, fault_text
from chaos.harness.incident.found import Found, Remark
from chaos.harness.incident.lives import lives, until_the_end
from chaos.harness.incident.outages import outages
from chaos.harness.incident.record import Asked, Record

FIRST_S = 3.0  # the clients work for so long before anything happens
AFTER_S = 10.0  # and so long after the last thing
QUIET_S, SHORT_S = 30.0, 5.0  # a longer span without an event becomes so short
_MARK_S = 0.1  # the least time for which a fault lasts
_ACTIVE = ("degrade", "resync")


class Incident(msgspec.Struct, frozen=True):
    """All that is known, in the order of time."""

    faults: list[Found]
    commands: list[Found]
    remarks: list[Remark]


def incident(record: Record) -> Incident:
    record = until_the_end(record)
    ends, remarks = lives(record)
    broken, others = outages(record, ends)
    commands, more = _commands(record.asked)
    remarks = [*remarks, *others, *more, *_by_policy(record)]
    if record.unread:
        first_s = record.events[0].at_s if record.events else record.asked[0].at_s
        remarks.append(Remark(first_s, f"{record.unread} lines of the logs are no events of a gateway"))
    return Incident(
        sorted([*ends, *broken], key=lambda each: each.from_s), commands, sorted(remarks, key=lambda each: each.at_s)
    )


def _commands(asked: Iterable[Asked]) -> tuple[list[Found], list[Remark]]:
    found: list[Found] = []
    remarks: list[Remark] = []
    for each in asked:
        if each.by_itself:
            continue
        kind = {"resumed": "resume", "abort asked": "abort"}.get(each.event, each.kind)
        target = "active" if kind in _ACTIVE else (each.to if kind == each.kind and each.to else each.site)
        ended = "" if each.ended == "succeeded" else f"it ended as {each.ended}"
        found.append(Found(each.at_s, kind, target, tuple(filter(None, (each.source, ended)))))
        if each.loses:
            remarks.append(Remark(each.at_s, "the operator accepted a loss of data here, which no command of the harness does"))
    return found, remarks


def _by_policy(record: Record) -> Iterable[Remark]:
    """Changes of the mode that nobody asked for."""
    for event in record.events:
        if event.name != "role" or event.fields.get("cause") != "downgrade_recorded":
            continue
        if not any(each.kind == "degrade" and -1.0 < event.at_s - each.at_s < 60.0 for each in record.asked):
            yield Remark(event.at_s, f"degraded by its policy, by no command: {event.source}")


# ---- times
def shortened(marks: Sequence[float]) -> tuple[Callable[[float], float], list[Remark]]:
    """Time of the incident -> time of the plan, and the spans that became shorter."""
    ordered = sorted(set(marks))
    cut: list[tuple[float, float]] = []  # (from when on, how much less)
    remarks = []
    for before, after in pairwise(ordered):
        if after - before > QUIET_S:
            cut.append((after, after - before - SHORT_S))
            remarks.append(Remark(before, f"{_span(after - before)} without an event became {SHORT_S:g} s"))

    def plan_s(at_s: float) -> float:
        less = sum(amount for from_s, amount in cut if at_s >= from_s)
        return FIRST_S + at_s - ordered[0] - less

    return plan_s, remarks


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{value} {unit}" for value, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if value]
    return " ".join(parts[:2])


# ---- text
def _same(each: Found) -> Found | None:
    return each


def lines_of(
    found: Incident, kinds: Iterable[str], translated: Callable[[Found], Found | None] = _same
) -> list[str]:
    """The lines of all faults and commands, with their comments. A kind that is none of `kinds`, or that `translated` knows
    nothing for, is a comment."""
    happened = sorted([*found.faults, *found.commands], key=lambda each: each.from_s)
    marks = [at_s for each in happened for at_s in (each.from_s, each.to_s) if at_s is not None]
    if not marks:
        return [f"# {each.text}" for each in found.remarks]
    plan_s, quiet = shortened(marks)
    known = frozenset(kinds)
    entries: list[tuple[float, int, list[str]]] = [
        (each.at_s, 1, [f"# {each.text}"]) for each in (*quiet, *found.remarks)
    ]
    for each in happened:
        entries.append((each.from_s, 0, _lines(each, translated(each), known, plan_s)))
    return [line for _, _, lines in sorted(entries, key=lambda entry: entry[:2]) for line in lines]


def _lines(each: Found, told: Found | None, known: frozenset[str], plan_s: Callable[[float], float]) -> list[str]:
    comments = [f"# {' '.join(source.split())}" for source in each.sources]
    shown = told if told is not None else each
    at_s = round(plan_s(shown.from_s), 1)
    for_s = 0.0 if shown.to_s is None else max(_MARK_S, round(plan_s(shown.to_s) - plan_s(shown.from_s), 1))
    line = fault_text(Fault(at_s, shown.kind, shown.target, for_s, shown.how))
    if told is None or told.kind not in known:
        return [*comments, f"# no line of this plan: {line}"]
    return [*comments, line]


def length_s(found: Incident) -> float:
    """The time of the plan."""
    happened = [*found.faults, *found.commands]
    marks = [at_s for each in happened for at_s in (each.from_s, each.to_s) if at_s is not None]
    return FIRST_S + AFTER_S if not marks else round(shortened(marks)[0](max(marks)) + AFTER_S, 1)
