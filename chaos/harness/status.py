"""P8: what a site says of itself is true: it never says that it serves in an epoch after a later one has opened.

What always holds: a look counts from when it was asked for, and an opening from when it was seen, so that a site is held only
to what was so before it answered. What it says of its lag and its risk cannot be judged from outside.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chaos.checkers.violation import Violation
from chaos.history.history import Opened

NAME = "status"


class Said(msgspec.Struct, frozen=True):
    """The word of a site, asked for at `at_s`: it serves as the active of `epoch`."""

    site: str
    at_s: float
    epoch: int


def check(said: Iterable[Said], opened: Sequence[Opened]) -> Iterator[Violation]:
    """The first false word of each site in each epoch."""
    told: set[tuple[str, int]] = set()
    for each in said:
        later = [one for one in opened if one.epoch > each.epoch and one.at_s < each.at_s]
        if later and (each.site, each.epoch) not in told:
            told.add((each.site, each.epoch))
            sentence = (
                f"Site {each.site} says at {each.at_s:.3f} s that it serves in epoch {each.epoch}, and site {later[0].site} had"
                f" opened epoch {later[0].epoch} before."
            )
            yield Violation("P8", NAME, sentence, (), (later[0].at_s, each.at_s))
