"""The answer of a checker, and the few words that all of them share."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """One broken promise. `promise`: P1-P10 or I1-I9, as in docs/protocol.md and the invariants. `sentence`: for people.

    `calls`: ids of the calls that show it; `times_s`: the moments that matter, ascending.
    """

    promise: str
    checker: str
    sentence: str
    calls: tuple[int, ...] = ()
    times_s: tuple[float, ...] = ()
