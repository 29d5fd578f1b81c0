"""Openings and modes come from looks at the sites, and nothing that was right looks wrong because a look came late."""

from __future__ import annotations

from typing import Any

from chaos.checkers import honest, one_active
from chaos.harness.attach.watch import ClusterWatch
from chaos.harness.epochs import with_epochs
from chaos.history.history import Ack, Call, GivenUp, History, Mode, Mutation, Operation, Outcome, history_of
from chaos.history.lines import Line

WRITE = Operation("write", "t", mutations=(Mutation("upsert", "k", {"value": "x"}),))
READ = Operation("read", "t", key="k")


class Seen:
    """A watch, and the lines that it noted."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        nobody: Any = None
        self.watch = ClusterWatch(nobody, lambda: 0.0, self.lines.append)

    def look(self, site: str, epoch: int, mode: str, asked_s: float, answered_s: float, *, active: str | None = None) -> None:
        active = active or site
        role = "STANDBY" if active != site else "ACTIVE" if mode == "sync" else "DOWNGRADE_ACTIVE"
        document = {"site": site, "role": role, "epoch": epoch, "mode": mode, "active": {"site": active, "epoch": epoch}}
        self.watch.take_in(site, document, asked_s, answered_s)

    def answer(self, site: str, at_s: float, epoch: int | None = None, mode: Mode = "sync") -> None:
        """A read, or with an epoch an acknowledgement."""
        ack = None if epoch is None else Ack(site, epoch, 7, 7, mode)
        operation = READ if ack is None else WRITE
        self.lines.append(Call(1, "c", operation, at_s - 0.5, 99.0, at_s, Outcome("ok", ack=ack, site=site)))

    def history(self) -> History:
        return with_epochs(history_of(self.lines), self.watch.since)


def test_a_read_right_after_an_opening_is_not_of_the_epoch_before() -> None:
    seen = Seen()
    seen.look("a", 1, "sync", 0.0, 0.1)
    seen.look("b", 2, "sync", 5.0, 5.1)
    seen.look("a", 2, "sync", 6.0, 6.1, active="b")
    seen.look("a", 3, "sync", 9.0, 9.1)
    seen.answer("a", 6.5)  # it had opened epoch 3 by then, which is seen only at 9
    assert not one_active.check(seen.history())


def test_a_site_that_answers_in_an_epoch_that_is_over_is_found() -> None:
    seen = Seen()
    seen.look("a", 1, "sync", 0.0, 0.1)
    seen.look("b", 2, "sync", 5.0, 5.1)
    seen.answer("a", 7.0)
    assert "served a read in epoch 1" in one_active.check(seen.history())[0].sentence


def test_an_acknowledgement_of_an_epoch_that_no_look_saw_is_of_that_epoch() -> None:
    seen = Seen()
    seen.look("a", 1, "sync", 0.0, 0.1)
    seen.look("b", 2, "sync", 5.0, 5.1)
    seen.answer("a", 7.0, epoch=3)
    assert not one_active.check(seen.history())


def test_a_mode_counts_from_the_look_before_it_was_seen() -> None:
    seen = Seen()
    for at_s in (0.0, 0.3, 0.6):
        seen.look("a", 1, "sync", at_s, at_s + 0.01)
    seen.look("a", 1, "async", 0.9, 0.91)
    seen.answer("a", 0.7, epoch=1, mode="async")
    assert not honest.check(seen.history())


def test_an_asynchronous_acknowledgement_while_the_site_shows_sync_is_found() -> None:
    seen = Seen()
    for at_s in (0.0, 0.3, 0.6, 0.9):
        seen.look("a", 1, "sync", at_s, at_s + 0.01)
    seen.answer("a", 0.7, epoch=1, mode="async")
    assert "acknowledged as async" in honest.check(seen.history())[0].sentence


def test_a_mode_may_have_changed_and_changed_back_while_nobody_could_look() -> None:
    seen = Seen()
    seen.look("a", 1, "sync", 0.0, 0.1)
    seen.look("a", 1, "sync", 30.0, 30.1)
    seen.answer("a", 10.0, epoch=1, mode="async")
    seen.answer("a", 20.0, epoch=1, mode="sync")
    assert not honest.check(seen.history())


def test_a_takeover_from_an_asynchronous_active_may_give_something_up() -> None:
    seen = Seen()
    seen.look("a", 1, "async", 0.0, 0.1)
    seen.look("a", 2, "async", 1.0, 1.1)
    assert not seen.history().given_up, "a restart of the same site loses nothing"
    seen.look("b", 3, "sync", 5.0, 5.1)
    assert seen.history().given_up == (GivenUp(2, 5.1),)
