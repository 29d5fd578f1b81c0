"""An entry of a site's journal that must not be is reported as it is written."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.simulate.looks.decisions import Decisions, Given
from chaos.simulate.looks.plans import Plans
from chaos.simulate.twins.process import Process
from chaos.simulate.world import Life, World
from switchover.operations.document import HistoryEntry, Operation, StepRecord
from tests.chaos.simulate.looks.a_world import a_world, an_entry, an_operation

DAY_MS = 24 * 3600 * 1000
CHECK, BEGIN, OPEN = StepRecord("preflight", "", True), StepRecord("begin", "", True), StepRecord("open", "", False)
STARTED = an_entry("started")


class A:
    """A look at a pair, and what it said."""

    def __init__(self, *, running: str | None = None) -> None:
        self.world: World = a_world()
        self.said: list[str] = []
        self.decisions = Decisions(self.world, self.said.append)
        Plans(self.world, self.decisions, self.said.append)
        self.operations: Any = SimpleNamespace(running_id=running)
        site: Any = SimpleNamespace(active_epoch=None)
        self.world.lives["b"] = Life(Process("b.1"), site, self.operations)

    def create(self, operation: Operation, entry: HistoryEntry = STARTED) -> None:
        asyncio.run(self.world.machines["b"].journal.create(operation, entry))

    def save(self, operation: Operation, entry: HistoryEntry) -> list[str]:
        """Returns what is said of this entry alone, less whose it is."""
        self.said.clear()
        asyncio.run(self.world.machines["b"].journal.save(operation, entry))
        return [sentence.partition(" at site b ")[2] for sentence in self.said]


def journaled(*, operation: Operation, entry: HistoryEntry, running: str | None = "b7") -> list[str]:
    """Returns what is said of an entry of an operation that the journal has."""
    look = A()
    look.create(operation)
    look.operations.running_id = running
    return look.save(operation, entry)


def test_an_operation_begins_once_its_journal_has_it() -> None:
    look = A()
    look.create(an_operation())
    assert look.said == []
    early = ["Operation b7 (failover) at site b began before its journal had it."]
    look = A(running="b7")
    look.create(an_operation())
    assert look.said == early
    look = A()
    assert look.save(an_operation(), an_entry("step started", "begin")) == ["began before its journal had it."]


def test_one_operation_runs_at_a_time() -> None:
    assert journaled(operation=an_operation(), entry=an_entry("resumed", actor="site")) == []
    found = journaled(operation=an_operation(), entry=an_entry("resumed", actor="site"), running="b9")
    assert found == ["runs beside b9."]


def test_behind_the_point_of_no_return_nothing_is_given_up() -> None:
    entry = an_entry("abort asked")
    assert journaled(operation=an_operation("failover", CHECK, OPEN, aborting=True), entry=entry) == []
    begun = an_operation("failover", CHECK, replace(OPEN, state="failed"), aborting=True)
    assert journaled(operation=begun, entry=entry) == ["is given up behind open, behind which it is only completed."]


def test_what_has_begun_is_not_shown_as_what_never_did(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = an_operation("failover", CHECK, replace(BEGIN, state="done", started_ms=5), state="failed")
    assert journaled(operation=begun, entry=an_entry("failed")) == []
    monkeypatch.setattr("switchover.operations.document.never_began", lambda operation: True)
    assert journaled(operation=begun, entry=an_entry("failed")) == ["is shown as one that never began."]


@pytest.mark.parametrize(("left_s", "actor", "is_wrong"), [
    (120, "operator", False), (90, "operator", True), (90, "site", False),
])
def test_a_command_to_resume_has_a_time_of_its_own(left_s: int, actor: str, is_wrong: bool) -> None:
    look = A()
    now_ms = look.world.machines["b"].clock.wall_ms()
    operation = an_operation(expires_ms=now_ms + left_s * 1000)
    look.create(operation)
    assert look.save(operation, an_entry("resumed", actor=actor)) == (
        ["was resumed by a command of now, and expires in 90 s."] if is_wrong else []
    )


@pytest.mark.parametrize(("after_ms", "is_wrong"), [(5, True), (DAY_MS, False)])
def test_the_dry_runs_of_today_are_kept(after_ms: int, is_wrong: bool) -> None:
    look = A()
    for number in range(12):
        look.create(replace(an_operation(dry_run=True), id=f"b{number}", created_ms=number))
    assert look.said == [], "ten are enough"
    journal = look.world.machines["b"].journal
    del journal._operations["b11"]
    look.create(replace(an_operation(), id="b20", created_ms=11 + after_ms))
    forgotten = ["Operation b20 (failover) at site b found that the dry run b11 of today was forgotten."]
    assert look.said == (forgotten if is_wrong else [])


def test_a_plan_begins_with_an_epoch_of_its_own() -> None:
    look = A()
    look.create(an_operation())
    entry = an_entry("step done", "begin", detail={"epoch": 8})
    assert look.save(an_operation(), entry) == ["has begun with epoch 8, which the register never gave to its site."]
    look.decisions.given[8, "b"] = Given("b7", 1.0)
    assert look.save(an_operation(), entry) == []


@pytest.mark.parametrize(("kind", "step", "error", "sentences"), [
    ("failover", "begin", {"code": "refused", "fields": {"plan_id": "p", "site": "a"}}, []),
    ("failover", "begin", {"code": "refused", "fields": {"plan_id": "p", "site": "b"}},
     ["was refused for an unfinished plan of its own site."]),
    ("failover", "begin", {"code": "refused", "fields": {"async_since_seq": 4}}, []),
    ("switchover", "begin", {"code": "refused", "fields": {"async_since_seq": 4}},
     ["was refused for a loss, and a switchover has none."]),
    ("failover", "verify", {"code": "unavailable", "message": "this site accepts no shipped frames now"},
     ["found that an older epoch is not rejected as one."]),
    ("failover", "open", {"code": "refused", "message": "a loss of None"}, ["speaks of None to people: a loss of None."]),
    ("failover", "open", {"code": "refused", "message": "None of them"}, []),
])
def test_a_plan_fails_for_a_reason(kind: str, step: str, error: dict[str, Any], sentences: list[str]) -> None:
    assert journaled(operation=an_operation(kind), entry=an_entry("step failed", step, detail=error)) == sentences


@pytest.mark.parametrize(("took_ms", "is_wrong"), [(30_000, False), (28_000, False), (20_000, True)])
def test_what_gives_up_after_a_time_has_waited_for_it(took_ms: int, is_wrong: bool) -> None:
    step = StepRecord("catch_up", "", True, "failed", 1000, 1000 + took_ms)
    error = {"message": "site b applied 4 of 9 in 30 s: find out why"}
    found = journaled(operation=an_operation("switchover", step), entry=an_entry("step failed", "catch_up", detail=error))
    assert found == ["says that it waited for 30 s, and gave up after 20.0 s."] * is_wrong


@pytest.mark.parametrize(("missed_s", "is_wrong"), [(None, True), (5.0, True), (95.0, False)])
def test_a_dfs_is_not_called_silent_that_answers(missed_s: float | None, is_wrong: bool) -> None:
    look = A()
    look.world.loop.now_s = 100.0
    look.world.network.missed_s["b", "w"] = 99.0
    look.decisions.given[8, "b"] = Given("b7", 1.0)
    if missed_s is not None:
        look.world.machines["a"].dfs.missed_s["b"] = missed_s
    look.create(an_operation())
    detail = {"epoch": 8, "cannot_verify": ["site a's DFS does not answer: what was claimed"]}
    assert look.save(an_operation(), an_entry("step done", "begin", detail=detail)) == (
        ["says that site a's DFS does not answer, and every call was answered."] if is_wrong else []
    )


@pytest.mark.parametrize(("kind", "status", "fix", "said"), [
    ("switchover", "failed", "repair the DFS of site a: the remote log goes there", ""),
    ("failover", "warning", "writes stay asynchronous until the DFS of site a is back", ""),
    ("rejoin", "warning", "writes stay asynchronous until the DFS of site b is back", ""),
    ("rejoin", "warning", "writes stay asynchronous until the DFS of site a is back", "says of its remote log: "),
    ("failover", "failed", "repair the DFS of site a: the remote log goes there", "finds that its remote log cannot be"),
    ("switchover", "warning", "writes stay asynchronous until it is back", "finds that its remote log cannot be"),
])
def test_a_remote_log_that_cannot_be_written_stops_a_switchover_alone(kind: str, status: str, fix: str, said: str) -> None:
    detail = {"not_ok": [{"id": "remote-log.writable", "status": status, "seen": "it is down", "fix": fix}]}
    found = journaled(operation=an_operation(kind), entry=an_entry("step done", "preflight", detail=detail))
    assert (found[0][: len(said)] if found else "") == said


@pytest.mark.parametrize(("count", "holds", "beats", "said"), [
    (10, 50, 0, ""), (None, 50, 2, ""), (11, 50, 0, "counts 11 records as lost, and both sites hold up to 50 of 60."),
    (10, 50, 2, "counts 10 records as lost, and the active continues to acknowledge."),
    (5, 55, 0, "counts up to 55 as held, in epoch 0 and not 7."),
])
def test_a_loss_is_counted_by_what_is_here_and_by_what_is_told(count: int | None, holds: int, beats: int, said: str) -> None:
    look = A()
    look.create(an_operation())
    shown = {
        "epoch": 7, "asynchronous_since_seq": 50, "this_site_holds_seq": holds, "records_at_risk": count,
        "active_committed_seq": 60,
    }
    entry = an_entry("step failed", "preflight", detail={"message": "", "fields": {"manifest": shown}})
    look.world.loop.now_s = 30.0
    look.decisions.renewed_s = [30.0] * beats
    assert look.save(an_operation(), entry) == ([said] if said else [])
    look.world.network.miss("b", "w")
    assert beats == 0 or look.save(an_operation(), entry) == [], "it may have heard of no renewal"
