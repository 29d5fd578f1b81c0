"""A mistake in the commit rule: its check ends the epoch before a client is answered, and the run reports it."""

from __future__ import annotations

import pytest

from chaos.simulate.draw import draw
from chaos.simulate.run import Run, collect
from gateway.epoch import commit_rule
from tests.planting import planted


def test_what_one_log_alone_holds_ends_the_epoch_unacknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = planted(commit_rule, "limit = min(self.local, self.remote) if", "limit = self.local if")
    monkeypatch.setattr(commit_rule.CommitCore, "_advance", wrong.CommitCore._advance)
    result = Run(draw(1)).execute()
    collect()
    assert any("what is committed synchronously is in both logs (P1)" in one.sentence for one in result.violations)
    assert {one.promise for one in result.violations}.isdisjoint({"P1", "P2", "P3", "P5"}), "no client saw it"
