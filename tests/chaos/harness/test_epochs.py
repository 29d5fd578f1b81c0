"""The epoch of an answer is the last one that its site had opened by then."""

from __future__ import annotations

from chaos.checkers import honest, one_active
from chaos.harness.epochs import with_epochs
from chaos.history.history import Ack, Call, History, ModeRecorded, Mutation, Opened, Operation, Outcome, history_of

WRITE = Operation("write", "t", mutations=(Mutation("upsert", "k", {"value": "x"}),))
OPENED = (
    Opened("a", 1, 1.0, "sync"), ModeRecorded(1, "sync", 1.0), Opened("b", 2, 5.0, "async"), ModeRecorded(2, "async", 5.0),
)


def answered(site: str, at_s: float, ack_epoch: int, mode: str = "async") -> History:
    ack = Ack(site, ack_epoch, 7, 7, mode)  # type: ignore[arg-type]
    return history_of([*OPENED, Call(1, "c", WRITE, 2.0, 12.0, at_s, Outcome("ok", ack=ack, site=site))])


def test_an_answer_that_is_repeated_is_of_the_epoch_in_which_it_was() -> None:
    history = with_epochs(answered("b", 6.0, 1))
    assert history.calls[0].outcome is not None
    assert history.calls[0].outcome.epoch == 2
    assert not honest.check(history)
    assert honest.check(answered("b", 6.0, 1)), "without it, the answer looks like a lie"


def test_an_opening_that_was_seen_late_counts_from_when_its_mode_may_have_been_recorded() -> None:
    late = [Opened("b", 2, 9.0, "async"), ModeRecorded(2, "async", 5.0)]
    call = answered("b", 6.0, 1).calls[0]
    outcome = with_epochs(history_of([*late, call])).calls[0].outcome
    assert outcome is not None
    assert outcome.epoch == 2


def test_a_site_that_was_fenced_answers_in_its_old_epoch() -> None:
    history = with_epochs(answered("a", 6.0, 1, "sync"))
    assert "acknowledged a write in epoch 1" in one_active.check(history)[0].sentence


def test_an_answer_before_its_site_opened_anything_stays_as_it_is() -> None:
    history = with_epochs(answered("b", 3.0, 1))
    assert history.calls[0].outcome is not None
    assert history.calls[0].outcome.epoch is None
