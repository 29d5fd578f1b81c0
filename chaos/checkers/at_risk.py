"""The figures of loss: an active never shows fewer records at risk, nor a smaller lag, than is so, for longer than its slack.

What always holds: "unknown" is never too few; what the other site has lost may still count until the active has noticed, or has
not heard of it for too long. A look that knew nothing certain is not in the history, and the time counts anew behind the gap.
Source: docs/operations.md ("Reading `twinlog status`"), switchover-lessons.md (21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaos.checkers.violation import Violation
from chaos.history.history import History
from chaos.history.lines import RiskLook

NAME = "at_risk"
GAP_S = 1.5  # looks are a second apart


def check(history: History) -> list[Violation]:
    """The first time in each epoch, for each of the two figures."""
    return [
        *_too_few(history, "at risk", lambda look: (look.records, look.lacking)),
        *_too_few(history, "lag", lambda look: (look.lag, look.behind)),
    ]


def _too_few(history: History, figure: str, of: Callable[[RiskLook], tuple[int | None, int]]) -> Iterator[Violation]:
    limits = history.limits
    told: set[int] = set()
    streak: list[RiskLook] = []
    for look in history.risk_looks:
        before = streak[-1] if streak else look
        if (look.site, look.epoch) != (before.site, before.epoch) or look.at_s - before.at_s > GAP_S:
            streak = []
        shown, so = of(look)
        streak = [*streak, look] if shown is not None and shown < so else []
        if not streak or look.epoch in told:
            continue
        from_s = streak[0].at_s
        slack_s = limits.heard_slack_s if all(each.heard for each in streak) else limits.risk_slack_s
        if look.at_s - from_s > slack_s:
            told.add(look.epoch)
            sentence = (
                f"Site {look.site} has shown too few records ({figure}) since {from_s:.3f} s: at {look.at_s:.3f} s {shown}, and"
                f" {so} are so."
            )
            yield Violation("P8", NAME, sentence, (), (from_s, look.at_s))
