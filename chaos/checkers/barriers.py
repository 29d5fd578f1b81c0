"""Barriers: what both sites keep under a name is the same content at the same point of the log, the one that was reported.

What always holds: a snapshot that one site does not hold is no violation, for it may have been filled in, wiped or forgotten;
one that is held and differs is. Source: protocol.md section 9.
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import History
from chaos.history.lines import Kept

NAME = "barriers"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    first: dict[str, Kept] = {}
    for kept in history.kept:
        before = first.setdefault(kept.name, kept)
        if (before.epoch, before.seq) != (kept.epoch, kept.seq):
            found.append(_told(kept, f"Site {kept.site} keeps {_name(kept)}, site {before.site} keeps {_name(before)}."))
        elif before.digest != kept.digest:
            found.append(_told(kept, f"What sites {before.site} and {kept.site} keep at {_name(kept)} is not the same."))
    for taken in history.barriers:
        kept_there = first.get(taken.name)
        if kept_there is not None and (kept_there.epoch, kept_there.seq) != (taken.epoch, taken.seq):
            sentence = f"Barrier {taken.name} was reported at {taken.epoch}:{taken.seq}, and {_name(kept_there)} is kept."
            found.append(Violation("P4", NAME, sentence, (), (taken.at_s,)))
    return found


def _name(kept: Kept) -> str:
    return f"barrier {kept.name} of {kept.epoch}:{kept.seq}"


def _told(kept: Kept, sentence: str) -> Violation:
    return Violation("P4", NAME, sentence, (), (kept.at_s,))
