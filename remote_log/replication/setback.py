"""Setbacks of a follower: it holds less than it had stored, as its storage was put back, replaced or emptied.

What always holds: what is durable at a follower counts as stored only while it follows, and stays so for one epoch: less than
that is a setback until everything up to there is stored again.
This module is pure.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Setback(msgspec.Struct, frozen=True, gc=False):
    """The follower had stored everything up to `had_seq`, and then held no more than `held_seq`. `at_s`: when that was seen
    (monotonic); `is_over`: it has stored everything up to there again."""

    had_seq: int
    held_seq: int
    at_s: float
    is_over: bool = False


class Setbacks:
    """Those of one follower in one epoch. `newest`: None when there was none; `count`: how many there were."""

    def __init__(self) -> None:
        self._had_seq = 0
        self.newest: Setback | None = None
        self.count = 0

    def weigh(self, state: str, durable_seq: int, now_s: float) -> None:
        """`state`: that of the follower's position (messages.py)."""
        newest = self.newest
        if state == "following" and durable_seq >= self._had_seq:
            self._had_seq = durable_seq
            if newest is not None and not newest.is_over:
                self.newest = replace(newest, is_over=True)
            return
        lacks = state in ("following", "loading") and durable_seq < self._had_seq
        if lacks and (newest is None or newest.is_over):
            self.count += 1
            self.newest = Setback(self._had_seq, durable_seq, now_s)
