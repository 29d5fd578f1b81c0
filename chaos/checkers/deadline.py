"""I8: every request ends by its deadline, every role change ends, and recovery is done within the stated time.

Time in which the clients' own event loop stood behind a deadline is not the pair's, and does not count.
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "deadline"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    slack_s = history.limits.answer_slack_s
    for call in history.calls:
        deadline_s = call.deadline_s
        if deadline_s is None:
            continue
        if call.returned_s is None:
            sentence = f"Call {call.id} ({call.operation.kind} of {call.operation.table}) never ended."
            found.append(Violation("I8", NAME, sentence, (call.id,), (call.invoked_s, deadline_s)))
        elif (late_s := call.returned_s - deadline_s - _stood_s(history, deadline_s, call.returned_s)) > slack_s:
            sentence = (
                f"Call {call.id} ({call.operation.kind} of {call.operation.table}) ended {late_s:.3f} s after its deadline."
            )
            found.append(Violation("I8", NAME, sentence, (call.id,), (call.invoked_s, deadline_s, call.returned_s)))
    for change in history.role_changes:
        if change.ended_s is None:
            sentence = f"Role change {change.id} ({change.kind}) never ended."
            found.append(Violation("P10", NAME, sentence, (), (change.started_s,)))
    return found + _recovery(history)


def _stood_s(history: History, from_s: float, until_s: float) -> float:
    return sum(max(0.0, min(each.until_s, until_s) - max(each.from_s, from_s)) for each in history.stands)


def _recovery(history: History) -> list[Violation]:
    """After each healing, a recovery in time."""
    limit_s = history.limits.recovery_s
    if limit_s is None:
        return []
    found: list[Violation] = []
    recovered = [each.at_s for each in history.moments if each.name == "recovered"]
    for healed_s in (each.at_s for each in history.moments if each.name == "healed"):
        after = min((at_s for at_s in recovered if at_s >= healed_s), default=None)
        if after is None:
            found.append(Violation("I8", NAME, "The pair did not recover after all faults had been healed.", (), (healed_s,)))
        elif after > healed_s + limit_s:
            sentence = f"Recovery took {after - healed_s:.3f} s; {limit_s} s is what was promised."
            found.append(Violation("I8", NAME, sentence, (), (healed_s, after)))
    return found
