"""The notes of audits: the last of each job by its end, and no forged future that hides those that come later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from gateway.audits.notes import AUDITS, PAST, PAST_MAX, REPORTS_MAX, SKEW_MAX_S, AuditNotes, AuditRun
from gateway.service.documents import BarrierList
from gateway.ui.views.audits import AuditsPage, audits_page
from storage.clock import SystemClock
from storage.engines.memory.engine import MemoryEngine
from twinlog.errors import InvalidInput, NotFound
from twinlog.wire.audit_report import AuditProgress, FoundDifference, SentReport

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)
GOOD = AuditRun("1-compare", "compare", AT - timedelta(minutes=1), AT, "good")


class SetClock(SystemClock):
    def __init__(self) -> None:
        self.now = AT

    def wall_ms(self) -> int:
        return round(self.now.timestamp() * 1000)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def notes(clock: SetClock) -> AuditNotes:
    return AuditNotes(MemoryEngine(), clock)


async def test_an_audit_that_ends_in_the_future_is_refused_and_hides_no_later_one(notes: AuditNotes, clock: SetClock) -> None:
    with pytest.raises(InvalidInput, match="9999-01-01") as refused:
        await notes.note(replace(GOOD, finished_at=datetime(9999, 1, 1, tzinfo=UTC)))
    assert refused.value.fields["member"] == "finished_at"
    assert (notes.all().last, notes.last_good_ms()) == ({}, None)
    await notes.note(GOOD)
    clock.now = AT + timedelta(hours=1)
    bad = replace(GOOD, id="2-compare", finished_at=clock.now, outcome="bad")
    await notes.note(bad)
    assert (notes.all().last["compare"], notes.all().last_good_compare) == (bad, GOOD)
    assert notes.last_good_ms() == round(AT.timestamp() * 1000)


async def test_clocks_that_differ_a_little_are_no_forgery(notes: AuditNotes) -> None:
    ahead = replace(GOOD, finished_at=AT + timedelta(seconds=SKEW_MAX_S))
    await notes.note(ahead)
    assert notes.all().last_good_compare == ahead


async def test_one_that_ends_a_little_ahead_hides_none_that_arrives_meanwhile(notes: AuditNotes, clock: SetClock) -> None:
    """A forged one may end as far ahead as honest clocks differ."""
    await notes.note(replace(GOOD, id="forged", finished_at=AT + timedelta(seconds=SKEW_MAX_S)))
    clock.now = AT + timedelta(seconds=10)
    bad = replace(GOOD, id="2-compare", finished_at=clock.now, outcome="bad")
    await notes.note(bad)
    assert notes.all().last["compare"] == bad


async def test_what_was_noted_while_the_sites_own_clock_was_wrong_gives_way(notes: AuditNotes, clock: SetClock) -> None:
    clock.now = AT + timedelta(days=3000)
    await notes.note(replace(GOOD, finished_at=clock.now))
    clock.now = AT
    assert notes.last_good_ms() is None, "nobody knows when it was"
    await notes.note(GOOD)
    assert (notes.all().last["compare"], notes.all().last_good_compare) == (GOOD, GOOD)


async def test_a_note_that_arrives_late_takes_no_later_ones_place(notes: AuditNotes) -> None:
    await notes.note(GOOD)
    await notes.note(replace(GOOD, id="0-compare", finished_at=AT - timedelta(seconds=1)))
    assert notes.all().last["compare"] == GOOD


async def test_the_list_of_past_runs_has_the_newest_and_a_bound(notes: AuditNotes) -> None:
    many = [f"table{number}" for number in range(10_000)]
    for number in range(PAST_MAX + 3):
        await notes.note(replace(GOOD, id=f"{number}-compare", tables=many))
    await notes.note(replace(GOOD, id=f"{PAST_MAX}-compare", outcome="bad", differences=4))
    past = notes.past()
    assert [one.run.id for one in past[:3]] == [f"{number}-compare" for number in (PAST_MAX, PAST_MAX + 2, PAST_MAX + 1)]
    assert (past[0].run.differences, past[1].tables, len(past[1].run.tables), len(past)) == (4, 10_000, 8, PAST_MAX)
    page = audits_page(notes.all(), past, [], BarrierList("b", []), round(AT.timestamp() * 1000))
    assert {row.id for row in page.rows} >= {one.run.id for one in past}
    assert "table7 and 9992 more" in page.rows[1].tables or "table7 and 9992 more" in page.rows[0].tables


async def test_the_page_is_headed_by_the_newest_comparison_and_knows_no_differences_of_a_run_that_failed(
    notes: AuditNotes, clock: SetClock
) -> None:
    def page() -> AuditsPage:
        return audits_page(notes.all(), notes.past(), [], BarrierList("b", []), round(AT.timestamp() * 1000))

    assert (page().level, page().rows) == ("warn", ())
    await notes.note(GOOD)
    assert (page().level, page().headline) == ("ok", "Both sites were found equal 0 s ago, by 1-compare")
    clock.now = AT + timedelta(hours=2)
    bad = replace(GOOD, id="2-compare", finished_at=AT + timedelta(hours=1), outcome="bad", differences=4)
    await notes.note(bad)
    await notes.note(replace(GOOD, id="3-compare", finished_at=clock.now, outcome="failed"))
    assert (page().level, page().headline) == ("bad", "The sites differ: 4 differences, by 2-compare")
    assert [row.differences for row in page().rows] == [None, 4, 0]


REPORT = SentReport(version=1, differences=[FoundDifference("stale", "flights", "UA,1", "", "7", "6")])


async def test_a_report_stands_beside_its_note_whose_form_is_that_of_the_first_release(clock: SetClock) -> None:
    """An older release, to which somebody goes back, refuses a note with a member that it does not know."""
    engine = MemoryEngine()
    notes = AuditNotes(engine, clock)
    await notes.note(GOOD)
    before = engine.meta(AUDITS), engine.meta(PAST)
    await notes.keep_report(GOOD.id, REPORT)
    assert (engine.meta(AUDITS), engine.meta(PAST)) == before
    members = {"id", "job", "started_at", "finished_at", "outcome", "barrier", "differences", "tables", "by"}
    assert set(msgspec.json.decode(before[1] or b"")[0]["run"]) == members
    engine.crash()
    assert AuditNotes(engine, clock).report(GOOD.id) == REPORT


async def test_a_report_that_is_damaged_says_nothing(clock: SetClock) -> None:
    engine = MemoryEngine()
    notes = AuditNotes(engine, clock)
    await notes.note(GOOD)
    await engine.set_meta(f"audit_report.{GOOD.id}", b'{"version":')
    assert notes.report(GOOD.id) is None


async def test_only_the_newest_runs_have_a_report(clock: SetClock) -> None:
    engine = MemoryEngine()
    notes = AuditNotes(engine, clock)
    with pytest.raises(NotFound, match="note its end first"):
        await notes.keep_report(GOOD.id, REPORT)
    for number in range(REPORTS_MAX + 5):
        await notes.note(replace(GOOD, id=f"{number}-compare"))
        await notes.keep_report(f"{number}-compare", REPORT)
    kept = [number for number in range(REPORTS_MAX + 5) if notes.report(f"{number}-compare") is not None]
    assert kept == list(range(5, REPORTS_MAX + 5))
    assert sum(name.startswith("audit_report.") for name in engine._notes) == REPORTS_MAX
    with pytest.raises(NotFound):
        await notes.keep_report("0-compare", REPORT)
    assert notes.run("0-compare").run.id == "0-compare"


async def test_the_end_of_an_audit_ends_its_progress_and_a_late_one_does_not_bring_it_back(notes: AuditNotes) -> None:
    progress = AuditProgress(job="compare", phase="digests of a", elapsed_s=1.0)
    notes.progress(GOOD.id, progress)
    notes.progress("2-compare", progress)
    assert notes.running.get(GOOD.id) is not None
    await notes.note(GOOD)
    notes.progress(GOOD.id, progress)
    assert [one.id for one in notes.running.all()] == ["2-compare"]


async def test_an_audit_that_nobody_knows(notes: AuditNotes) -> None:
    with pytest.raises(NotFound, match="not notified of an audit 'x'"):
        notes.run("x")
    assert notes.report("x") is None
