"""A write that was lost with its epoch may be there all the same: an earlier attempt lay in the old active's log."""

from __future__ import annotations

from chaos.checkers.rows import linearizable
from chaos.history.history import (
    Ack,
    Call,
    Condition,
    GivenUp,
    Moment,
    Mutation,
    Operation,
    Outcome,
    Quarantine,
    QuarantinedRow,
    Row,
    TableUse,
    history_of,
)

TABLE = TableUse("t", {}, unique=False, checks=("linearizable",))


def _add(number: int, before: int, invoked_s: float, ack: Ack) -> Call:
    guard = (Condition("value", "=", before),) if before else (Condition(exists=False),)
    asked = Operation("conditional", "t", "k", (Mutation("upsert", "k", {"value": before + 1}),), guard)
    return Call(number, "p", asked, invoked_s, None, invoked_s + 0.1, Outcome("ok", ack))


def _quarantined(*versions: int) -> Quarantine:
    return Quarantine("b", 3, 1, 9, 9.0, True, tuple(QuarantinedRow("t", "k", at, at) for at in versions))


def test_seed_2026() -> None:
    """2 was acknowledged in the lost epoch, and then found where its first attempt had been logged."""
    calls = [
        _add(1, 0, 1.0, Ack("a", 2, 1, 1, "sync")), _add(2, 1, 2.0, Ack("b", 3, 2, 2, "async")),
        _add(3, 2, 3.0, Ack("b", 3, 3, 3, "async")), _add(4, 2, 4.0, Ack("a", 4, 2, 4, "async")),
    ]
    lines = [TABLE, *calls, Moment("recovered", 5.0)]
    assert linearizable.check(history_of([*lines, _quarantined(2, 3)])) == []
    assert linearizable.check(history_of([*lines, _quarantined(3)])) == []
    assert linearizable.check(history_of(lines)) != []
    assert linearizable.check(history_of([*lines, _quarantined(2)])) != []


def test_an_earlier_attempt_has_a_version_of_its_own() -> None:
    """Seed 5061151: 2 was acknowledged as version 2 and lost; its first attempt stands as 9, and a write on 9 fits."""
    unique = TableUse("t", {}, unique=True, checks=("linearizable",))
    on_9 = Operation("conditional", "t", "k", (Mutation("upsert", "k", {"value": 3}),), (Condition(version=9),))
    calls = [
        _add(1, 0, 1.0, Ack("a", 2, 1, 1, "sync")), _add(2, 1, 2.0, Ack("b", 3, 2, 2, "async")),
        Call(3, "p", on_9, 3.0, None, 3.1, Outcome("ok", Ack("a", 4, 2, 10, "async"))),
    ]
    lines = [unique, *calls, Moment("recovered", 5.0)]
    assert linearizable.check(history_of([*lines, _quarantined(2)])) == []
    assert linearizable.check(history_of(lines)) != []


def test_what_was_told_in_an_epoch_that_was_given_up_by_force_binds_nobody() -> None:
    """2 was written in epoch 3, epoch 4 was forced over it and read 1, epoch 5 was forced over that: 2 is there again."""
    write, back = _add(2, 1, 2.0, Ack("b", 3, 2, 2, "async")), _add(4, 2, 4.0, Ack("b", 5, 3, 4, "async"))
    read = Call(3, "p", Operation("read", "t", "k"), 3.0, None, 3.1, Outcome("ok", rows=(Row("k", {"value": 1}, 1),), epoch=4))
    lines = [TABLE, _add(1, 0, 1.0, Ack("a", 2, 1, 1, "sync")), write, read, back, Moment("recovered", 5.0)]
    assert linearizable.check(history_of(lines)) != []
    assert linearizable.check(history_of([*lines, GivenUp(3, 2.5), GivenUp(4, 3.5)])) == []
    assert linearizable.check(history_of([*lines, GivenUp(3, 2.5)])) != []
