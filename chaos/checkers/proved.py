"""P2: an active answers about rows only while a proof that nobody has fenced it is younger than its read lease, in true time.

What always holds: a proof counts from when it was asked for: an append to the remote log that has succeeded from when it was
handed over, a renewal at the register from the call. The clock of the site may drift; `Limits.lease_s` has that in it.
Source: remote_log/fencing/read_lease.py, protocol.md section 5 ("Read lease").
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import History

NAME = "proved"
ROUNDING_S = 1e-6


def check(history: History) -> list[Violation]:
    lease_s = history.limits.lease_s
    if lease_s is None:
        return []
    return [
        Violation(
            "P2", NAME,
            f"Site {each.site} answered in epoch {each.epoch} at {each.at_s:.3f} s, {each.at_s - each.proved_s:.3f} s after its"
            f" newest proof was asked for; its lease lasts {lease_s:.3f} s.", (), (each.proved_s, each.at_s),
        )
        for each in history.served if each.at_s - each.proved_s > lease_s + ROUNDING_S
    ]
