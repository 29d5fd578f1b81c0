"""Estimates of many keys from a few looks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.engines.sizes.sampling import ROUNDS, STRATA, TURNS_MAX, about, between, sampled

MANY = 100_000


def coin() -> Callable[[], object]:
    return partial(Random(7).getrandbits, 1)


class SortedKeys:
    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = sorted(set(keys))
        self.looks = 0

    def first_from(self, key: bytes) -> bytes | None:
        self.looks += 1
        return next(iter(self.keys[(at := bisect_left(self.keys, key)) : at + 1]), None)

    def last_below(self, key: bytes) -> bytes | None:
        self.looks += 1
        at = bisect_left(self.keys, key)
        return self.keys[at - 1] if at else None

    def estimate(self) -> float | None:
        return sampled(self, self.keys[0], self.keys[-1], coin(), lambda: False)


def _drawn() -> Iterable[bytes]:
    random = Random(5)
    return (b"%032x" % random.getrandbits(128) for _ in range(MANY))


@pytest.mark.parametrize(("kind", "keys", "factor"), [
    ("numbers", (number.to_bytes(8, "big") for number in range(MANY)), 1.1),
    ("padded", (b"order-%09d" % number for number in range(MANY)), 1.5),
    ("random", _drawn(), 1.5),
    ("times", (b"%d/%d" % (1_700_000_000_000 + number * 977, number % 7) for number in range(MANY)), 1.5),
    ("decimals", (b"%d" % number for number in range(MANY)), 2.5),
    ("two parts", (b"%d\0%d" % (number % 16, number) for number in range(MANY)), 2.5),
])
def test_keys_that_spread_are_estimated_within_a_factor(kind: str, keys: Iterable[bytes], factor: float) -> None:
    found = SortedKeys(keys)
    estimate = found.estimate()
    assert estimate is not None
    assert len(found.keys) / factor <= estimate <= len(found.keys) * factor, (kind, estimate)
    assert found.looks <= 2 * STRATA + ROUNDS * 2 * STRATA * 40


@given(st.sets(st.binary(max_size=6), min_size=1, max_size=60))
def test_a_set_with_fewer_keys_than_branches_is_counted_to_the_key(keys: set[bytes]) -> None:
    """Down to the last key, as every split has a key on either side."""
    assert SortedKeys(keys | {b"\xff" * 7}).estimate() == len(keys | {b"\xff" * 7})


def test_the_looks_are_bounded_and_end_when_the_time_is_over() -> None:
    deep = SortedKeys(b"\0" * number for number in range(2000))
    deep.estimate()
    assert deep.looks <= 2 * STRATA + ROUNDS * STRATA * TURNS_MAX
    assert sampled(deep, deep.keys[0], deep.keys[-1], coin(), lambda: True) is None
    left = iter(range(10_000))
    keys = SortedKeys(_drawn())
    partly = sampled(keys, keys.keys[0], keys.keys[-1], coin(), lambda: next(left) > 2 * STRATA)
    assert partly is not None


def test_an_estimate_has_two_digits_and_lies_between_what_is_known() -> None:
    assert [about(one) for one in (0, 7.4, 99, 101, 123_456, 995_000)] == [0, 7, 99, 100, 120_000, 1_000_000]
    assert between(5000.0, 1000, 9000) == 5000
    assert between(50_000.0, 1000, 9000) == 9000
    assert between(500.0, 1000, 100_000) == 10_000  # it cannot be true
    assert between(None, 1000, 100_000) == 10_000
    assert between(None, 1000, 0) == 1000
