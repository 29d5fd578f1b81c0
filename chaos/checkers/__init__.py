"""The checkers compare a recorded history with the promises: one file for each, all of them pure functions of the history."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from chaos.checkers import (
    at_risk,
    barriers,
    bounded,
    convergence,
    deadline,
    honest,
    one_active,
    prefix,
    proved,
    receipts,
    stale,
    two_copies,
)
from chaos.checkers.rows import acknowledged, allowed, batches, linearizable, phantom, scans, tokens
from chaos.checkers.violation import Violation
from chaos.history.history import History

Checker = Callable[[History], list[Violation]]
_MODULES = (
    linearizable, acknowledged, phantom, one_active, prefix, convergence, bounded, honest, deadline, batches, scans,
    two_copies, barriers, stale, receipts, proved, at_risk, allowed, tokens,
)
CHECKERS: MappingProxyType[str, Checker] = MappingProxyType({module.NAME: module.check for module in _MODULES})


def check_all(history: History) -> list[Violation]:
    """Every violation that any checker finds, in the order of CHECKERS."""
    return [violation for check in CHECKERS.values() for violation in check(history)]
