"""P1, P9: what is committed could be had again from the active alone and, in synchronous mode, from the other site alone.

What always holds: it is judged while the pair runs, so that what nobody had to fall back on is judged as well: a log that was
trimmed too early, a sync that was not waited for, a mode that was called sync too soon.
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "two_copies"


def check(history: History) -> list[Violation]:
    """The first look at each epoch that found a copy too short."""
    found: list[Violation] = []
    told: set[int] = set()
    for look in history.copies:
        copies = {"the active's storage and WAL": look.held, "the other site's storage and remote log": look.held_there}
        where = [f"{what} lead to {held} only" for what, held in copies.items() if held is not None and held < look.committed]
        if where and look.epoch not in told:
            told.add(look.epoch)
            sentence = (
                f"Site {look.site} had committed {look.committed} of epoch {look.epoch}, but what is durable in"
                f" {' and '.join(where)}."
            )
            found.append(Violation("P1", NAME, sentence, (), (look.at_s,)))
    return found
