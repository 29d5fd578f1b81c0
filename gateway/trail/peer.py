"""The two sites report their trails to each other: role changes that the other has not seen, and how far each has come.

What always holds: a role change of the other site becomes a line here, once, whenever the two next speak, with who asked for
it, also where lines wait for the disk and notes cross; the newest line of its own acts that the other site names becomes a
line here at most each ANCHOR_S, so that an end that was cut off there is found by this trail; lines about the other site are
no reason for more lines there; however often and whatever a caller says, at most LINES_MAX lines come of it in a minute.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import structlog

from gateway.trail.entry import TrailEntry, TrailHead, Who
from gateway.trail.events import OF_PEER, OPENED, PEER_CHANGE, PEER_HEAD, ROLE, ROLE_CHANGE
from gateway.trail.trail import Trail
from remote_log.replication.messages import TRAIL_CHANGES_MAX, TrailChange, TrailNote
from storage.clock import Clock
from twinlog.decoding import or_none
from twinlog.errors import TwinlogError

INTERVAL_S = 5.0
ANCHOR_S = 60.0
LINES_MAX = 60
CHANGES_KEPT = 200  # that the other site has not seen: each note has the oldest of them
MINUTE_S = 60.0
CALL_TIMEOUT_S = 3.0
log = structlog.get_logger("twinlog.trail")
_to_head = partial(msgspec.convert, type=TrailHead)


class PeerTrail:
    """`ask` calls the other site, called `peer`."""

    def __init__(self, trail: Trail, clock: Clock, peer: str, ask: Callable[[TrailNote, float], Awaitable[TrailNote]]) -> None:
        self._trail, self._clock, self.peer, self._ask = trail, clock, peer, ask
        self._own = TrailHead()  # the newest line here that is not about the other site
        self._kept = TrailHead()  # of the other site's trail, as the lines here have it
        self._taken: TrailHead | None = None  # the same with the lines that still wait for the disk; None: nothing in this life
        self._told = 0  # up to where the other site has seen this one
        self._changes: deque[TrailChange] = deque(maxlen=CHANGES_KEPT)
        self._anchored_s: float | None = None
        self._minute_s, self._lines = 0.0, 0
        self._news = asyncio.Event()
        trail.listeners.append(self._written)

    async def run(self) -> None:
        """Speaks to the other site, again and again, and soon after each role change."""
        while True:
            self._news.clear()
            try:
                await self.speak()
            except TwinlogError as error:  # it does not answer, or is of a release that keeps no trail: it hears it later
                log.debug("the other site says nothing of its trail", detail=error.message)
            except Exception:  # a fault of ours must not end the exchange
                log.error("internal error", traceback=traceback.format_exc())
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._news.wait()

    async def speak(self) -> None:
        """One question to the other site, and its answer. Raises TwinlogError."""
        known = self._seen.number
        self._take(await self._ask(self.note(), CALL_TIMEOUT_S), known)

    async def answer(self, note: TrailNote) -> TrailNote:
        """The other site's call."""
        self._take(note)
        return self.note()

    @property
    def _seen(self) -> TrailHead:
        return self._kept if self._taken is None else self._taken

    def note(self) -> TrailNote:
        new = [change for change in self._changes if change.number > self._told]
        sent = new[:TRAIL_CHANGES_MAX]
        return TrailNote(self._trail.site, self._own.number, self._own.sha256, self._seen.number, sent, len(new) > len(sent))

    # ---- this site's lines
    def _written(self, entry: TrailEntry, head: TrailHead) -> None:
        """Each line of this trail, those that a start finds too."""
        if entry.event in OF_PEER:
            self._kept = or_none(_to_head, entry.what) or self._kept
        elif entry.event == OPENED:
            self._kept = or_none(_to_head, entry.what.get("peer")) or self._kept
        else:
            self._own = head
        if entry.event in ROLE_CHANGE and not (entry.event == ROLE and entry.operation):  # of an operation, its own lines do
            self._changes.append(_change(entry, head))
            self._news.set()
        self._trail.carried = {"peer": msgspec.to_builtins(self._kept)} if self._kept.number else {}

    # ---- the other site's
    def _take(self, note: TrailNote, known: int = 0) -> None:
        """`known`: the line that this site knew when it asked. An answer below it proves that the other trail went back; any
        other note below what is known was only on its way for longer."""
        if note.site != self.peer or not self._trail.is_known:  # what was seen stands in lines that are not read yet
            return
        self._told = note.seen
        if note.number < self._seen.number:
            if note.number < known:
                self._went_back(note)
            return
        for change in note.changes:
            if change.number <= self._seen.number:
                continue
            if not self._may_write():
                return
            self._taken = TrailHead(change.number, change.sha256)
            self._put(PEER_CHANGE, msgspec.to_builtins(change), change.operation)
        now_s = self._clock.monotonic_s()
        is_due = not note.has_more and (self._anchored_s is None or now_s - self._anchored_s >= ANCHOR_S)
        if note.number > self._seen.number and is_due and self._may_write():
            self._anchored_s = now_s
            self._taken = TrailHead(note.number, note.sha256)
            self._put(PEER_HEAD, msgspec.to_builtins(self._taken))

    def _went_back(self, note: TrailNote) -> None:
        """Its trail was lost with its disk, or cut: the line that proves it is in this one already."""
        if not self._may_write():
            return
        log.warning("the other site's trail went back", had=self._seen.number, has=note.number, other=self.peer)
        known, self._taken = self._seen, TrailHead(note.number, note.sha256)
        self._put(PEER_HEAD, {**msgspec.to_builtins(self._taken), "went_back_from": known.number, "known_sha256": known.sha256})

    def _put(self, event: str, what: dict[str, Any], operation: str = "") -> None:
        self._trail.put(event, Who(f"site {self.peer}", "site"), "noted", what, operation=operation)

    def _may_write(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s - self._minute_s >= MINUTE_S:
            self._minute_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= LINES_MAX


def _change(entry: TrailEntry, head: TrailHead) -> TrailChange:
    who, what = entry.who, entry.what
    return TrailChange(
        head.number, head.sha256, entry.time_ms, entry.event, entry.outcome, entry.operation, str(what.get("kind", "")),
        str(what.get("to", "")), who.name[:128], who.kind[:128], who.address[:128], who.says[:128],
    )
