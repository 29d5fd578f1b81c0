"""The page of the guards is drawn from their files, and a guard that breaks something says how."""

from __future__ import annotations

from tests.guards.ledger import PAGE, guards, misfits, page
from tools.sources import ROOT


def test_the_page_is_drawn() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(guards()), "python -m tests.guards.ledger"


def test_each_guard_is_whole() -> None:
    for guard in guards():
        assert guard.says, guard
        assert guard.how, guard
        assert len(guard.old) == len(guard.new), guard
        assert bool(guard.old) == bool(guard.file), guard
        assert guard.tests or not guard.old, guard


def test_each_mistake_fits_the_code() -> None:
    """A mistake that no longer fits proves nothing: give it the words of today, and see its tests fail once more."""
    assert [wrong for guard in guards() for wrong in misfits(guard)] == []
