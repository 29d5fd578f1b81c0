"""P8: an acknowledgement's mode is true. None says async before the register does; none says sync long after it said async.

What always holds: the epoch that answered counts, where it is known: an answer that is repeated under its key later says what
is true then, or still says async of what was logged so. Else it is the epoch of the acknowledgement. While a site asks the
register in vain (Unheard) it cannot know what that says.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "honest"


def check(history: History) -> list[Violation]:
    modes: dict[int, list[tuple[float, str]]] = {}
    for each in sorted(history.modes, key=lambda each: each.at_s):
        modes.setdefault(each.epoch, []).append((each.at_s, each.mode))
    first_async = {epoch: min((at_s for at_s, mode in told if mode == "async"), default=inf) for epoch, told in modes.items()}
    forgotten = [(moment.at_s, "") for moment in history.moments if moment.name == "forgotten"]  # it says nothing from then on
    said = {epoch: sorted([*told, *forgotten]) for epoch, told in modes.items()}
    slack_s = history.limits.mode_slack_s
    unheard = {
        opened.epoch: sorted((each.from_s, each.to_s) for each in history.unheard if each.site == opened.site)
        for opened in history.opened
    }
    found: list[Violation] = []
    for call in history.calls:
        if call.outcome is None or call.returned_s is None or (ack := call.outcome.ack) is None:
            continue
        epoch = ack.epoch if call.outcome.epoch is None else call.outcome.epoch
        since_s = first_async.get(epoch, inf)
        if ack.mode == "async":
            since_s = min(since_s, first_async.get(ack.epoch, inf))
            if call.returned_s < since_s:
                when = "at all" if since_s == inf else f"before {since_s:.3f} s"
                sentence = (
                    f"Call {call.id} was acknowledged as async in epoch {epoch} at {call.returned_s:.3f} s,"
                    f" but no downgrade of that epoch was recorded {when}."
                )
                found.append(Violation("P8", NAME, sentence, (call.id,), (call.invoked_s, call.returned_s)))
            continue
        from_s = _told_s(unheard.get(epoch, []), call.invoked_s, slack_s)
        if since_s < from_s and _async_throughout(said.get(epoch, []), from_s, call.returned_s):
            sentence = f"Call {call.id} was acknowledged as sync while the register said that epoch {epoch} is async."
            found.append(Violation("P8", NAME, sentence, (call.id,), (since_s, call.invoked_s, call.returned_s)))
    return found


def _told_s(unheard: list[tuple[float, float]], at_s: float, slack_s: float) -> float:
    """Returns the register's time that binds a site at `at_s`: `slack_s` before, not counting when it asked in vain."""
    for from_s, to_s in reversed(unheard):
        if from_s >= at_s or to_s <= at_s - slack_s:
            continue
        slack_s -= max(0.0, at_s - to_s)
        at_s = min(at_s, from_s)
    return at_s - slack_s


def _async_throughout(told: list[tuple[float, str]], from_s: float, to_s: float) -> bool:
    at = bisect_right(told, (from_s, "~")) - 1
    return at >= 0 and all(mode == "async" for at_s, mode in told[at:] if at_s <= to_s)
