"""The lives of both gateways: ends, starts, and times in which a process did not run although it had not ended.

What always holds: a start behind a `stopping` is that of a gateway that was terminated, any other start one of a gateway that
ended by itself or was killed; its end lies between its last line and that start, and the earliest that others say of it counts.
A log that is silent although its site had much to say is that of a stopped process only if it speaks when it wakes.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from chaos.harness.incident.found import Found, Remark
from chaos.harness.incident.record import Asked, Event, Record

SILENCE_S = 5.0  # a standby speaks of a silent active after so long (gateway/site/serving_judgement.py)
BEFORE_S = 2.0  # of what somebody typed because of it, when nothing else says when it began
STALE_S = 1.0  # an error that shows so soon after news is of before
NEWS = ("role", "started", "trouble is over")
TOGETHER_S = 60.0  # both sites stop within it, and nobody starts them: the pair was stopped
AWAKE_S = 1.5  # behind the opening of another one, which waits for its lease: by then an active that runs has said so
_OTHER = {"a": "b", "b": "a"}


def until_the_end(record: Record) -> Record:
    """The record up to the moment at which the pair is stopped, if it ends so: what one site then says of the other is no
    news."""
    stops = [_last_stop([each for each in record.events if each.site == site]) for site in _OTHER]
    times = sorted(stop.at_s for stop in stops if stop is not None)
    if len(times) < 2 or times[1] - times[0] > TOGETHER_S or any(each.at_s > times[0] for each in record.asked):
        return record
    return replace(record, events=[each for each in record.events if each.at_s <= times[0]])


def lives(record: Record) -> tuple[list[Found], list[Remark]]:
    """Ends of processes, and stops."""
    found: list[Found] = []
    remarks: list[Remark] = []
    for site in _OTHER:
        events = [each for each in record.events if each.site == site]
        found += _ends(site, events, record)
        remarks += _last(site, events, record, found)
    return [*found, *_stopped(record, found)], remarks


def _ends(site: str, events: Sequence[Event], record: Record) -> list[Found]:
    found = []
    for at, start in enumerate(events):
        if start.name != "started" or not at:
            continue
        begun = max((place for place in range(at) if events[place].name == "started"), default=0)
        stop = next((each for each in events[begun:at] if each.name == "stopping"), None)
        if stop is not None:
            found.append(Found(stop.at_s, "terminate", site, (stop.source, start.source), start.at_s))
            continue
        last = events[at - 1]
        from_s, why = _ended_s(site, last, start, record)
        found.append(Found(from_s, "crash", site, (f"its log ends: {last.source}", why, start.source), start.at_s))
    return found


def _ended_s(site: str, last: Event, start: Event, record: Record) -> tuple[float, str]:
    """Returns when it ended, and who says so."""
    within = [each for each in _said_of(site, record) if last.at_s < each[0] < start.at_s]
    if within:
        return min(within)
    return max(last.at_s, start.at_s - BEFORE_S), "nobody says when it ended: shortly before its start, by assumption"


def _said_of(site: str, record: Record) -> list[tuple[float, str]]:
    """The moments by which others knew that this site did not answer, and what says so."""
    said = [
        (each.at_s - SILENCE_S * (each.fields["about"] == "active"), f"by then: {each.source}") for each in record.events
        if each.site != site and each.name == "trouble" and each.fields.get("about") in ("peer", "way", "active")
        and not _is_of_before(each, record)
    ]
    return said + [(each.at_s - BEFORE_S, f"before {each.source}") for each in record.asked if _because_of(site, each)]


def _is_of_before(trouble: Event, record: Record) -> bool:
    """A standby shows an old error of its way when it has just become one, or has just heard the active again."""
    return trouble.fields.get("about") == "way" and any(
        each.site == trouble.site and each.name in NEWS and each is not trouble and 0 <= trouble.at_s - each.at_s < STALE_S
        for each in record.events
    )


def _because_of(site: str, asked: Asked) -> bool:
    return asked.kind == "failover" and asked.event == "started" and asked.to == _OTHER[site]


def _last(site: str, events: Sequence[Event], record: Record, found: list[Found]) -> list[Remark]:
    """The end of the last process of a site, if it has one: a fault, unless nothing comes after it."""
    stop = _last_stop(events)
    if stop is None:
        return []
    later = any(each.at_s > stop.at_s for each in record.events if each.site != site)
    if later or any(each.at_s > stop.at_s for each in record.asked):
        found.append(Found(stop.at_s, "terminate", site, (stop.source, "and it was not started again")))
        return []
    return [Remark(stop.at_s, f"the pair is stopped, and no more is known: {stop.source}")]


def _last_stop(events: Sequence[Event]) -> Event | None:
    """Returns where the last process of a site began to stop, if it did."""
    begun = max((at for at, each in enumerate(events) if each.name == "started"), default=0)
    return next((each for each in events[begun:] if each.name == "stopping"), None)


def _stopped(record: Record, ends: Sequence[Found]) -> list[Found]:
    """Stops of an active while the other site opens: had it run, it had noticed within seconds."""
    found = []
    for opening in record.events:
        if opening.name != "role" or not str(opening.fields.get("cause", "")).startswith("opened"):
            continue
        site = _OTHER[opening.site]
        events = [each for each in record.events if each.site == site]
        for before, after in pairwise(events):
            if not before.at_s < opening.at_s < after.at_s:
                continue
            ended = any(each.target == site and each.overlaps(before.at_s, after.at_s) for each in ends)
            if ended or after.at_s - opening.at_s < AWAKE_S or not _was_active(site, opening.at_s, record):
                continue
            said = [each for each in _said_of(site, record) if before.at_s < each[0] < opening.at_s]
            from_s, why = min(said, default=(max(before.at_s, opening.at_s - BEFORE_S), "nobody says when it began"))
            sources = (
                f"it is silent from {before.source}", why, f"while the other site opens: {opening.source}", f"to {after.source}"
            )
            found.append(Found(from_s, "pause", site, sources, after.at_s))
    return found


def _was_active(site: str, at_s: float, record: Record) -> bool:
    own = [each for each in record.events if each.site == site and each.name == "role" and each.at_s < at_s]
    roles = [each.fields.get("role") for each in own]
    return bool(roles) and roles[-1] in ("ACTIVE", "DOWNGRADE_ACTIVE")
