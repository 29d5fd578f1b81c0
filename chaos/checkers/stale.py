"""A stale read states an age that is never too small: what was acknowledged before that is in it.

What always holds: an acknowledgement counts from the moment at which its answer left the site, which is later than the write.
"""

from __future__ import annotations

from itertools import accumulate

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "stale"


Acknowledged = tuple[float, tuple[int, int], int]  # when, (epoch, sequence), the call


def _later(one: Acknowledged, other: Acknowledged) -> Acknowledged:
    return max(one, other, key=lambda each: each[1])


def check(history: History) -> list[Violation]:
    acknowledged: list[Acknowledged] = sorted(
        (call.outcome.served_s, (call.outcome.ack.epoch, call.outcome.ack.seq), call.id) for call in history.calls
        if call.outcome is not None and call.outcome.ack is not None and call.outcome.served_s is not None
    )
    highest = list(accumulate(acknowledged, _later))
    found: list[Violation] = []
    looks, place = sorted(history.stale_looks, key=lambda look: look.at_s - look.age_s), 0
    for look in looks:
        while place < len(acknowledged) and acknowledged[place][0] <= look.at_s - look.age_s:
            place += 1
        if not place:
            continue
        _, (epoch, seq), call = highest[place - 1]
        if (epoch, seq) > (look.epoch, look.seq):
            sentence = (
                f"Site {look.site} would say at {look.at_s:.3f} s that it is {look.age_s:.3f} s old, and it stands at"
                f" {look.seq} of epoch {look.epoch}: call {call} was acknowledged before as {seq} of epoch {epoch}."
            )
            found.append(Violation("P4", NAME, sentence, (call,), (look.at_s - look.age_s, look.at_s)))
    return found
