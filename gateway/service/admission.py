"""Admission: what may still enter the write path, and when to say no.

What always holds: the bytes and requests admitted and not yet settled stay at or below the limits; a refusal happens before
anything is logged. Source: protocol.md section 4 ("everything is bounded").
This module is pure.
"""

from __future__ import annotations

from gateway.epoch.commit_rule import CommitSettings
from storage.invariants import InvariantBroken
from twinlog.errors import Overloaded


class Admission:
    """Counts what is in the write path."""

    def __init__(self, limits: CommitSettings) -> None:
        self._limits = limits
        self._before = 0, 0  # requests and bytes that were let in under former limits
        self.queued_bytes = 0
        self.requests = 0
        self.refused = 0

    def enter(self, size_bytes: int) -> None:
        """Raises Overloaded, and counts nothing, when the write path is full. One request always fits an idle path."""
        full = self.queued_bytes + size_bytes > self._limits.queue_bytes_max or self.requests >= self._limits.requests_max
        if full and self.requests:
            self.refused += 1
            raise Overloaded(
                f"the write queue is full ({self.queued_bytes} bytes, {self.requests} requests): nothing was logged, try again",
                retry_after_s=1,
            )
        self.queued_bytes += size_bytes
        self.requests += 1
        self.check()

    def leave(self, size_bytes: int) -> None:
        self.queued_bytes -= size_bytes
        self.requests -= 1
        self._before = min(self._before[0], self.requests), min(self._before[1], self.queued_bytes)
        self.check()

    def apply(self, limits: CommitSettings) -> None:
        """Other limits from now on: what was let in before may stay."""
        self._limits, self._before = limits, (self.requests, self.queued_bytes)

    def check(self) -> None:
        """Raises InvariantBroken: no request leaves twice, and nothing but a single request exceeds a limit."""
        limits, requests, queued = self._limits, self.requests, self.queued_bytes
        if requests < 0 or queued < 0 or (requests == 0 and queued != 0):
            raise InvariantBroken(f"admission: {requests} requests hold {queued} bytes: one left twice, or with another size")
        requests_max = max(limits.requests_max, self._before[0])
        if requests > 1 and (requests > requests_max or queued > max(limits.queue_bytes_max, self._before[1])):
            raise InvariantBroken(
                f"admission: {requests} requests with {queued} bytes were let in, above {limits.requests_max} requests or "
                f"{limits.queue_bytes_max} bytes"
            )
