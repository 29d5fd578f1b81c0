"""P3: a page token continues its own scan and no other one: with another question it is refused, whoever asks and wherever.

Source: gateway/api/scans.py; docs/api.md (page_token).
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "tokens"


def check(history: History) -> list[Violation]:
    return [
        Violation(
            "P3", NAME, f"Site {each.site} continued a scan with the page token of another one: {each.question} was other.",
            (), (each.at_s,),
        )
        for each in history.misled if each.status < 300
    ]
