"""The look at what one life of a site still holds, in every object of the product: what is counted, locked, awaited.

What always holds: rooms are found, not named, so that a new one is looked into by itself. What is full in a pair at rest is in
KEPT and LASTING, with nothing else: a new container that stays full is put there, or it is a leak. A look changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from chaos.simulate.twins.dfs import SimDfsWriter
from chaos.simulate.twins.disk import SimLogFile
from chaos.simulate.twins.engine import SimSnapshot
from chaos.simulate.world import Life

PRODUCT = ("gateway.", "remote_log.", "storage.", "switchover.")
COUNTED: Mapping[str, tuple[str, ...]] = MappingProxyType({  # numbers of what has not been given back
    "Admission": ("requests", "queued_bytes"),
    "BodyBudget": ("held_bytes",),
    "BodyHold": ("_bytes",),
    "ScanSnapshots": ("_opening",),
    "_HeldSnapshot": ("uses",),
    "Modes": ("degrades_waiting",),
})
KEPT = frozenset((  # a pair at rest has these, by design
    "ActiveEpoch._tasks", "Catalog._by_name", "Catalog._schemas", "Catalog.writable", "CommitLog._tasks",
    "CursorRegistry._holders", "CursorRegistry._positions", "DoorMetrics._acks", "DoorMetrics._problems", "DoorMetrics.ack_s",
    "DoorMetrics._requests", "DoorMetrics._sources", "Executor.ended", "Executor.lasted", "Happenings._kept",
    "Histogram._counts", "LagMarks._marks", "PeerApi._methods", "Refusals._refused", "RemoteLogMark._ends",
    "RemoteSegments.known", "RowCodecs._codecs", "RowCodecs._limits", "ScanSnapshots._held", "Site.epochs_ended",
    "SiteOperations._gone_on", "Trimmer._failures", "Trimmer._last_seqs", "Verifier._known", "Wal._segments",
    "WalSegment._mark_offsets", "WalSegment._mark_seqs", "WalSegment.runs", "Words._words",
))
# data: nothing is held by it
PASSED_BY = frozenset((
    "Frame", "MemoryTail", "MemoryState", "RocksSnapshot", "RowCodec", "Says", "SqlSnapshot", "TableSchema", "TableSet",
    "Written",
))
LASTING: Mapping[str, int] = MappingProxyType({  # tasks that live as long as their process, or its epoch, and how many of each
    "ActiveEpoch._kept": 5, "CommitLog._guarded": 2, "Supervisor._every": 4, "Supervisor._watch": 1,
})


Handle = SimLogFile | SimDfsWriter | SimSnapshot
SORTS: Mapping[str, Any] = MappingProxyType({  # the first that fits
    "future": asyncio.Future, "lock": (asyncio.Lock, asyncio.Semaphore), "container": (dict, set, list, deque),
    "handle": Handle,
})


def held(life: Life, handles: Iterable[Handle]) -> dict[Hold, str]:
    """Returns each thing that this life holds now, with words for people. Work that is under way holds, too, so only what is
    there at one look after the other has leaked: the same task, the same frame, the same key. `handles`: what its process has
    open; one that no room names will never be closed."""
    name = life.process.name
    named: set[int] = set()
    found = [*_in_rooms(life, named), *_running(life)]
    found += [Hold(f"{handle.path}, open and in no room,", handle) for handle in handles if id(handle) not in named]
    return {hold: f"{hold.where} of {name}" for hold in found}


class Hold:
    """A thing that is held at `where`. It keeps the thing, so that no other one gets its identity."""

    __slots__ = ("_mark", "_thing", "where")

    def __init__(self, where: str, thing: object = None) -> None:
        self.where, self._thing = where, thing
        self._mark = where, thing if isinstance(thing, str | tuple | int) else id(thing)

    def __hash__(self) -> int:
        return hash(self._mark)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hold) and self._mark == other._mark


def _running(life: Life) -> Iterator[Hold]:
    seen: Counter[str] = Counter()
    for task in life.process.tasks:
        if not task.done():
            name = task.get_coro().__qualname__  # type: ignore[union-attr]
            seen[name] += 1
            if seen[name] > LASTING.get(name, 0):
                yield Hold(f"task {name}", task)


def _in_rooms(root: object, named: set[int]) -> Iterator[Hold]:
    """Yields what the rooms below `root` hold; `named` gets the identities of the handles that they have."""
    seen: set[int] = set()
    ahead: list[Any] = [root]
    while ahead:
        room = ahead.pop()
        if id(room) in seen:
            continue
        seen.add(id(room))
        kind = type(room).__name__
        counted = COUNTED.get(kind, ())
        for name, value in _attributes(room):
            sort = _sort(value.__class__)
            if name in counted:
                if value:
                    yield Hold(f"{kind}.{name}")
            elif sort == "future":
                if not value.done() and not isinstance(value, asyncio.Task):  # tasks: of the process, above
                    yield Hold(f"{kind}.{name}", value)
            elif sort == "lock":
                if value.locked():
                    yield Hold(f"{kind}.{name}")
            elif sort == "container":
                where = f"{kind}.{name}"
                if value and where not in KEPT:
                    yield from (Hold(where, each) for each in value)
                members = value.values() if isinstance(value, dict) else value
                ahead += [each for each in members if _sort(each.__class__) == "room"]
            elif sort == "handle":
                named.add(id(value))
            elif sort == "room":
                ahead.append(value)


@cache  # it is asked of every attribute of every room
def _sort(kind: type) -> str:
    """Says what a value of this class is to the look; "data": nothing is held by it."""
    for sort, kinds in SORTS.items():
        if issubclass(kind, kinds):
            return sort
    return "room" if kind.__module__.startswith(PRODUCT) and kind.__name__ not in PASSED_BY else "data"


def _attributes(room: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(room, "__dict__", {}).items()
    for name in _slots(room.__class__):
        if hasattr(room, name):
            yield name, getattr(room, name)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
