"""Estimates how many keys an ordered set has, from a few thousand looks at it at most.

What always holds: the looks are bounded, so a large set costs no more than one of medium size; an estimate has two digits, so
that nobody takes it for a count. A sample answers well where keys spread, as numbers, times and random texts do. Where most of
them stand behind one rare beginning it says far too few: so an estimate that contradicts what is known for certain
(`between`) is not taken.
The method: keys are the leaves of a tree that splits where two of them first differ in a bit. It is followed to STRATA branches
everywhere, and below each of them ROUNDS times down to a leaf, left or right by chance. A way of n turns stands for 2^n keys.
Source: D. E. Knuth, Estimating the Efficiency of Backtrack Programs (1975).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log10, sqrt
from typing import Protocol

COUNTED_ROWS = 20_000  # a table with at most so many rows is counted
STRATA = 128
ROUNDS = 3
TURNS_MAX = 400  # of one way: longer ones end early, and say too few


class OrderedKeys(Protocol):
    """An ordered set of keys that does not change meanwhile."""

    def first_from(self, key: bytes) -> bytes | None: ...
    def last_below(self, key: bytes) -> bytes | None: ...


def about(count: float) -> int:
    """Rounds to two digits."""
    if count < 100:
        return round(count)
    step: int = 10 ** (int(log10(count)) - 1)
    return round(count / step) * step


def between(sample: float | None, at_least: int, at_most: int) -> int:
    """An estimate from a sample and from what is known. Without a sample that can be true: the middle, by its ratio."""
    at_most = max(at_least, at_most)
    if sample is None or sample < at_least:
        return about(sqrt(at_least * at_most))
    return about(min(sample, at_most))


def sampled(
    keys: OrderedKeys, first: bytes, last: bytes, flip: Callable[[], object], is_over: Callable[[], bool]
) -> float | None:
    """Estimates how many keys there are from `first` to `last`; both are there. `flip`: a coin. None: the time was over
    before there was an answer."""
    branches, single = [(first, last)], 0
    while branches and len(branches) < STRATA:
        following = []
        for low, high in branches:
            if is_over():
                return None
            if low == high:
                single += 1
            else:
                at = _turn(low, high)
                following += [(low, _below(keys, at, low)), (_from(keys, at, high), high)]
        branches = following
    total = 0
    for done in range(ROUNDS):
        found = 0
        for low, high in branches:
            if is_over():
                return single + total / done if done else None
            found += _way(keys, low, high, flip)
        total += found
    return single + total / ROUNDS


def _way(keys: OrderedKeys, low: bytes, high: bytes, flip: Callable[[], object]) -> int:
    turns = 0
    while low != high and turns < TURNS_MAX:
        turns += 1
        at = _turn(low, high)
        if flip():
            low = _from(keys, at, high)
        else:
            high = _below(keys, at, low)
    return 1 << turns


def _turn(low: bytes, high: bytes) -> bytes:
    """The lowest text of the upper branch: keys below it share a bit that those from it on do not have."""
    if high.startswith(low):
        return low + b"\0"
    place = next(place for place, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    bit = (low[place] ^ high[place]).bit_length() - 1
    return high[:place] + bytes((high[place] >> bit << bit,))


def _from(keys: OrderedKeys, at: bytes, high: bytes) -> bytes:
    found = keys.first_from(at)
    return high if found is None else min(found, high)


def _below(keys: OrderedKeys, at: bytes, low: bytes) -> bytes:
    found = keys.last_below(at)
    return low if found is None else max(found, low)
