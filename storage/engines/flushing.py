"""Decides when the storage of a site is flushed: when a crash would leave too much to replay, and not at every tick of a clock.

Each flush of RocksDB makes a file, and files are merged with what lies below them: many small flushes write the same rows
again and again. What is not flushed is in the log, so a flush may wait as long as a replay stays short, and the logs may
grow that much. What always holds: with a look every `l` seconds, a flush of what was applied is due `age_s + 2 l` later at
the latest, and at the first look at which `RECORDS_MAX` records or `BYTES_MAX` bytes of the log wait; what is durable asks
for nothing.
This module is pure.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.settings import MIB

RECORDS_MAX = 60_000  # a start reads and applies them in about a second (docs/performance.md)
BYTES_MAX = 32 * MIB  # of frames: both logs keep as much, and a start reads it


class Look(NamedTuple):
    """A look at an engine. `log_bytes`: of all frames that were applied since the process began."""

    at_s: float
    applied_seq: int
    durable_seq: int
    log_bytes: int


class FlushNeed:
    """Says at each look whether a flush is due. `age_s`: how long an applied change may wait; it may change between looks."""

    def __init__(self, age_s: float) -> None:
        self.age_s = age_s
        self._last: Look | None = None
        self._begin: Look | None = None  # the newest look before anything that waits now was applied

    def is_due(self, look: Look) -> bool:
        """True: flush now. Also when a flush that was asked for elsewhere went before, or failed, or the storage went back."""
        last, self._last = self._last or look, look
        begin = self._begin
        if begin is None or look.durable_seq != last.durable_seq or last.applied_seq == last.durable_seq:
            begin = self._begin = last  # what a flush left was applied behind the last look
        waiting = look.applied_seq - look.durable_seq
        return waiting > 0 and (
            waiting >= RECORDS_MAX or look.log_bytes - begin.log_bytes >= BYTES_MAX or look.at_s - begin.at_s >= self.age_s
        )
