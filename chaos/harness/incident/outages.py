"""Links that were lost, DFSs and disks that failed or hung, as the sites' logs show them.

What always holds: what the end or the stop of a process explains is no outage of a link; an error that says nothing of its
cause becomes a remark. A DFS is broken for both sites, so what both say of it is one fault.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from chaos.harness.incident.found import Found, Remark, together
from chaos.harness.incident.lives import NEWS, SILENCE_S, STALE_S
from chaos.harness.incident.record import Event, Record

PROBE_S = 5.5  # by then a site has asked again, and knows better (gateway/site/supervisor.py)
_OTHER = {"a": "b", "b": "a"}
_LINKS = (
    ("refused", "down"), ("in time", "black-hole"), ("timeout", "black-hole"), ("timed out", "black-hole"), ("reset", "reset"),
    ("ended before", "reset"),
)
_DISKS = (
    ("no answer", "disk-hangs", ""), ("No space left", "disk-full", "0"), ("Read-only file system", "disk-fails", "EROFS"),
    ("Input/output error", "disk-fails", "EIO"),
)
_WITHIN = re.compile(r"within (\d+(?:\.\d+)?) s")
_BEGINS_AGAIN = ("started", "the storage was opened anew")


class _Trouble(msgspec.Struct, frozen=True):
    """From the first word of it to the word that it is over, or to the end of that process, or of the log (`open`)."""

    about: str
    from_s: float
    to_s: float
    first: Event
    open: bool

    @property
    def error(self) -> str:
        return str(self.first.fields.get("error") or self.first.fields.get("detail") or "")


def outages(record: Record, ends: Sequence[Found]) -> tuple[list[Found], list[Remark]]:
    """Faults of links and disks. `ends`: those of processes."""
    links: list[Found] = []
    disks: list[Found] = []
    remarks: list[Remark] = []
    for site in _OTHER:
        events = [each for each in record.events if each.site == site]
        for trouble in (*_troubles(events), *_storage(events)):
            if trouble.about in ("peer", "way", "active"):
                links += _link(site, trouble, events, record, ends)
            elif trouble.about in ("own DFS", "peer DFS", "storage", "local log"):
                fault = _disk(site, trouble)
                if fault is None:
                    remarks.append(Remark(trouble.from_s, f"no kind of fault is known for {trouble.first.source}"))
                else:
                    disks.append(fault)
            elif trouble.about == "coordinator":
                lasted = f"for {trouble.to_s - trouble.from_s:.1f} s"
                remarks.append(Remark(trouble.from_s, f"the coordinator was out of reach {lasted}: {trouble.first.source}"))
            if trouble.open:
                remarks.append(Remark(trouble.to_s, f"the log ends, and this was not over: {trouble.first.source}"))
    disks = together(disks)
    return [*_without_doubles(together(links)), *disks], [*remarks, *_unexplained(record, [*ends, *disks])]


def _unexplained(record: Record, known: Sequence[Found]) -> Iterator[Remark]:
    """Times in which an active served nobody, and nothing that was found says why."""
    for at, event in enumerate(record.events):
        why = str(event.fields.get("why") or "")
        if event.name != "serves" or not ("answers nobody" in why or "writes wait" in why):
            continue
        later = (each for each in record.events[at + 1:] if each.site == event.site and each.name in ("serves", "started"))
        to_s = next((each.at_s for each in later), event.at_s)
        if not any(each.overlaps(event.at_s - PROBE_S, to_s) for each in known):
            yield Remark(event.at_s, f"for {to_s - event.at_s:.1f} s, and what was broken is not said: {event.source}")


def _troubles(events: Sequence[Event]) -> Iterator[_Trouble]:
    begun: dict[str, Event] = {}
    for event in events:
        about = str(event.fields.get("about", ""))
        if event.name == "trouble":
            begun.setdefault(about, event)
        elif event.name == "trouble is over" and about in begun:
            yield _of(about, begun.pop(about), event.at_s)
        elif event.name in ("started", "stopping"):
            for each, first in begun.items():
                yield _of(each, first, event.at_s)
            begun.clear()
    for about, first in begun.items():
        yield _of(about, first, max(events[-1].at_s, first.at_s + 1.0), is_open=True)


def _storage(events: Sequence[Event]) -> Iterator[_Trouble]:
    """A storage that failed, until it was opened anew."""
    first: Event | None = None
    for event in events:
        if event.fields.get("code") == "engine-failed" and first is None:
            first = event
        elif event.name in _BEGINS_AGAIN and first is not None:
            yield _of("storage", first, event.at_s)
            first = None
    if first is not None:
        yield _of("storage", first, max(events[-1].at_s, first.at_s + 1.0), is_open=True)


def _of(about: str, first: Event, to_s: float, *, is_open: bool = False) -> _Trouble:
    waited = _WITHIN.search(str(first.fields.get("error") or ""))
    from_s = first.at_s - (float(waited[1]) if waited else SILENCE_S if about == "active" else 0.0)
    return _Trouble(about, from_s, to_s, first, is_open)


# ---- links
def _link(site: str, trouble: _Trouble, events: Sequence[Event], record: Record, ends: Sequence[Found]) -> Iterator[Found]:
    other = _OTHER[site]
    if any(each.target == other and each.overlaps(trouble.from_s - STALE_S, trouble.to_s) for each in ends):
        return
    if _is_stale(trouble, events):
        return
    if trouble.about == "active":
        if not _served(other, trouble.from_s, trouble.to_s, record):
            return
        yield Found(trouble.from_s, "black-hole", f"{other}>{site}", (trouble.first.source,), trouble.to_s)
        return
    kind = next((kind for word, kind in _LINKS if word in trouble.error.lower()), None)
    if kind is not None and ("does not answer" in trouble.error or "cannot be reached" in trouble.error):
        yield Found(trouble.from_s, kind, f"{site}>{other}", (trouble.first.source,), trouble.to_s)


def _is_stale(trouble: _Trouble, events: Sequence[Event]) -> bool:
    """It shows what was so before this site became a standby, or before it heard the other one again."""
    before = [
        each for each in events
        if each.name in NEWS and each.at_s <= trouble.first.at_s and each is not trouble.first
    ]
    if trouble.about == "active":
        return any(each.name in ("role", "started") and each.at_s > trouble.from_s for each in before)
    recent = bool(before) and trouble.first.at_s - before[-1].at_s < STALE_S
    return recent and trouble.to_s - trouble.first.at_s < PROBE_S


def _served(site: str, from_s: float, to_s: float, record: Record) -> bool:
    """Returns whether a site answered clients all through a span, by its own word."""
    said = [each for each in record.events if each.site == site and each.name == "serves" and each.at_s <= to_s]
    before = [each for each in said if each.at_s <= from_s][-1:]
    return bool(before) and all(each.fields.get("reads") for each in (*before, *(one for one in said if one.at_s > from_s)))


def _without_doubles(links: Sequence[Found]) -> list[Found]:
    """One fault of a link at a time: what the standby misses, the active has said already."""
    kept: list[Found] = []
    for each in links:
        same = next((one for one in kept if one.target == each.target and one.overlaps(each.from_s, each.to_s or 0)), None)
        if same is None:
            kept.append(each)
    return kept


# ---- disks
def _disk(site: str, trouble: _Trouble) -> Found | None:
    owner = _OTHER[site] if trouble.about == "peer DFS" else site
    place = {"own DFS": "dfs", "peer DFS": "dfs", "storage": "engine", "local log": "wal"}[trouble.about]
    for word, kind, figure in _DISKS:
        if word in trouble.error:
            how = f"{place}/{figure}" if figure else place
            return Found(trouble.from_s, kind, owner, (trouble.first.source,), trouble.to_s, how)
    return None


