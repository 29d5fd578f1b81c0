"""Counts the seeds that the simulator needs to find each planted bug, one after the other, until it was found often enough.

What always holds: seeds are counted in their order, however many workers there are, so the answer is the same on every
machine; a seed counts as a find when one of the checkers that the bug names noticed, not any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from chaos.simulate.bugs import BUGS, planted
from chaos.simulate.draw import draw
from chaos.simulate.run import Run, collect

Mapped = Callable[[Callable[[int], bool], Iterable[int]], Iterable[bool]]  # in the order of the seeds, and lazily


@dataclass(frozen=True, slots=True)
class Rate:
    """`first`: how many seeds it took to find it. None: it was not found in `seeds` seeds. `finds` of `seeds` found it."""

    bug: str
    first: int | None
    finds: int
    seeds: int


def is_found(name: str, seed: int) -> bool:
    with planted(name):
        noticed = {violation.checker for violation in Run(draw(seed)).execute().violations}
    collect()
    return not noticed.isdisjoint(BUGS[name].checkers)


def rates(names: Iterable[str], seeds: range, finds: int, each: Mapped) -> Iterator[Rate]:
    """Yields the rate of each bug as soon as it is known: after `finds` finds, or all of `seeds`."""
    for name in names:
        first, found, done = None, 0, 0
        for done, hit in enumerate(each(partial(is_found, name), seeds), 1):
            if hit:
                found += 1
                first = first or done
            if found == finds:
                break
        yield Rate(name, first, found, done)
