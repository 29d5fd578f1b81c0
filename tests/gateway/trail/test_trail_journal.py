"""Role changes in the trail: in front of the journal, by whoever asked, and also where the trail cannot be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from gateway.trail import trail as room
from gateway.trail.entry import TrailEntry
from gateway.trail.journal import TrailJournal
from gateway.trail.who import ASKED_BY
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from switchover.operations.document import HistoryEntry, Json, Operation
from switchover.operations.executor import Executor
from switchover.operations.plan import Plan, Step
from tests.gateway.trail.trail_rig import ANNA, entries, opened, stored
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import Refused, Unavailable


@dataclass
class Rig:
    files: MemoryFiles = field(default_factory=MemoryFiles)
    done: list[str] = field(default_factory=list)
    fails: str = ""

    def plan(self, kind: str, to: str | None, options: Json) -> Plan:
        def step(name: str, *, abortable: bool) -> Step:
            async def run() -> Json | None:
                if name == self.fails:
                    raise Refused(f"{name} says no")
                self.done.append(name)
                return None

            async def undo() -> None:
                self.done.append(f"undo {name}")

            return Step(name, run, name, abortable=abortable, undo=undo if abortable else None, dry=name == "check")

        return Plan(kind, [step("check", abortable=True), step("claim", abortable=True), step("open", abortable=False)])

    def lines(self) -> list[TrailEntry]:
        return [entry for entry in entries(stored(self.files)) if entry.event.startswith("operation.")]

    def shape(self) -> list[tuple[str, str, Any]]:
        return [(line.event, line.outcome, line.what.get("step")) for line in self.lines()]


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def run(rig: Rig, *, dry_run: bool = False, journal: Any = None) -> None:
    async with opened(rig.files) as trail:
        executor = Executor(TrailJournal(journal or MemoryJournal(), trail), SystemClock(), rig.plan, Failpoints())
        token = ASKED_BY.set(ANNA)
        started = await executor.start("o-1", "failover", "a", {"accept_data_loss": 12}, "anna", dry_run)
        ASKED_BY.reset(token)
        await executor.wait(started.id)
        await executor.close()


async def test_a_role_change_has_its_beginning_each_step_and_its_end_by_who_asked(rig: Rig) -> None:
    await run(rig)
    assert rig.shape() == [
        ("operation.begun", "begun", None), ("operation.step", "done", "check"), ("operation.step", "done", "claim"),
        ("operation.step", "done", "open"), ("operation.ended", "done", None),
    ]
    lines = rig.lines()
    assert {line.who for line in lines} == {ANNA}
    assert {line.operation for line in lines} == {"o-1"}
    assert {line.of for line in lines[1:]} == {lines[0].number}
    assert lines[0].what == {"kind": "failover", "to": "a", "options": {"accept_data_loss": 12}}


async def test_a_step_that_fails_and_what_is_undone_are_lines_with_the_reason(rig: Rig) -> None:
    rig.fails = "claim"
    await run(rig)
    assert rig.shape() == [
        ("operation.begun", "begun", None), ("operation.step", "done", "check"), ("operation.step", "failed", "claim"),
        ("operation.step", "undone", "claim"), ("operation.step", "undone", "check"), ("operation.ended", "failed", None),
    ]
    assert rig.lines()[-1].what["why"] == "claim says no"


async def test_one_that_ends_in_its_preflight_was_refused(rig: Rig) -> None:
    rig.fails = "check"
    await run(rig)
    assert rig.shape()[-1][:2] == ("operation.ended", "refused")


async def test_a_dry_run_leaves_no_line(rig: Rig) -> None:
    await run(rig, dry_run=True)
    assert rig.shape() == []


async def test_nothing_is_journaled_before_its_line_is_on_the_disk(rig: Rig) -> None:
    seen: list[tuple[str, str]] = []

    class Looking(MemoryJournal):
        async def create(self, operation: Operation, entry: HistoryEntry) -> None:
            seen.append((entry.event, rig.lines()[-1].event))
            await super().create(operation, entry)

        async def save(self, operation: Operation, entry: HistoryEntry) -> None:
            if entry.event not in ("step started", "started"):
                seen.append((entry.event, rig.lines()[-1].event))
            await super().save(operation, entry)

    await run(rig, journal=Looking())
    assert seen == [("started", "operation.begun"), *[("step done", "operation.step")] * 3, ("succeeded", "operation.ended")]


async def test_a_trail_that_cannot_be_written_stops_no_role_change(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEADLINE_S", "FAULT_WAIT_S"):
        monkeypatch.setattr(room, name, 0.02)
    rig.files.full = True
    await run(rig)
    assert rig.done == ["check", "claim", "open"]
    assert rig.lines() == []


async def test_an_operation_that_the_journal_does_not_take_ends_in_the_trail_too(rig: Rig) -> None:
    class Broken(MemoryJournal):
        async def create(self, operation: Operation, entry: HistoryEntry) -> None:
            raise Unavailable("no journal")

    with pytest.raises(Unavailable):
        await run(rig, journal=Broken())
    assert rig.shape() == [("operation.begun", "begun", None), ("operation.ended", "failed", None)]
