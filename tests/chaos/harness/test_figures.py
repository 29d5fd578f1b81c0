"""The figures of a report, and the page around them."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from chaos.checkers.violation import Violation
from chaos.harness.nemesis import Span
from chaos.harness.pair.files.footprint import OTHER, Footprint
from chaos.harness.pair.samples import Sample
from chaos.harness.plan import HarnessPlan
from chaos.harness.promises import HELD, NOT_CHECKED, VIOLATED, Verdict
from chaos.harness.report.evidence import LOOKS_MAX, around, evidence, first_of_each
from chaos.harness.report.figures import costs, latencies, resources, role_spans, seconds, totals, whole
from chaos.harness.report.origin import Origin
from chaos.harness.report.page import page
from chaos.harness.report.plot import INK
from chaos.harness.run import Run
from chaos.harness.traffic.clients import served
from chaos.history.history import history_of
from tests.chaos.plots import Plot

PLOT = (
    Plot().write("k", "x", 0.0, 0.5, version=1).write("k", "y", 1.0, 1.25, version=2)
    .write("k", "z", 6.0, 6.1, version=3).read("k", "z", 6.2, 6.3, version=3).write("l", "w", 6.2, 6.4, "unknown")
)


def test_what_ended_in_each_second() -> None:
    found = {second.at_s: second for second in seconds(PLOT.history())}
    assert (found[6].done, found[6].unknown, found[6].refused) == (2, 1, 0)
    assert found[0].p99_ms == 500
    assert set(found) == {0, 1, 6}


def test_the_longest_time_without_an_acknowledgement_is_that_around_the_fault() -> None:
    history = PLOT.history()
    early, late = costs(history, [Span("crash", "a", "", 0.6, 0.7), Span("crash", "a", "", 2.0, 3.0)], ())
    assert round(early.without_writes_s, 2) == 0.75
    assert round(late.without_writes_s, 2) == 4.85
    assert round(totals(history).without_writes_s, 2) == 4.85
    assert round(totals(history).without_reads_s, 2) == 6.3, "from the first question on: nobody had read before"


def test_a_gap_that_touches_a_fault_at_one_end_counts_and_one_beside_it_does_not() -> None:
    history = PLOT.history()
    found = costs(history, [Span("crash", "a", "", *each) for each in ((0.0, 0.4), (1.25, 1.3), (6.05, 6.05))], ())
    assert [round(each.without_writes_s, 2) for each in found] == [0.5, 4.85, 4.85]


def test_a_call_is_during_a_fault_when_it_touches_any_of_them() -> None:
    spans = [Span("crash", "a", "", *each) for each in ((5.0, 5.5), (0.0, 0.1), (0.05, 1.1), (6.2, 6.2))]
    during = {(each.what, each.during_faults): each.calls for each in latencies(PLOT.history(), spans)}
    assert during == {("writes", True): 2, ("writes", False): 1, ("reads", True): 1, ("reads", False): 0}
    left_out = [Span("crash", "a", "", 0.0, 9.0, "", "is paused")]
    assert not any(each.calls for each in latencies(PLOT.history(), left_out) if each.during_faults)


def test_calls_of_the_harness_itself_and_of_stubborn_clients_are_no_service() -> None:
    calls = [replace(call, process=process) for call, process in zip(
        PLOT.history().calls, ("maker", "client1", "stubborn-a0", "reader", "client2"), strict=True,
    )]
    assert [call.process for call in served(history_of(calls))] == ["client1", "client2"]
    found = totals(history_of(calls))
    assert (found.operations, found.acknowledged) == (5, 1), "each of them is an operation, as the screen counts them"


def test_equal_looks_are_one_span() -> None:
    looks = [Sample("a", at_s, role) for at_s, role in ((0.0, "ACTIVE"), (1.0, "ACTIVE"), (2.0, "down"), (3.0, "down"))]
    assert [(span.role, span.from_s, span.to_s) for span in role_spans([*looks, Sample("b", 9.0, "STANDBY")], "a")] == [
        ("ACTIVE", 0.0, 2.0), ("down", 2.0, 3.0),
    ]


def test_what_a_process_held_at_the_beginning_at_most_and_at_the_end() -> None:
    held = ((1, 80), (2, 200), (3, 90))
    looks = [Sample("a", at_s, "ACTIVE", held=Footprint(1, 1, size << 20, 7, {OTHER: at_s})) for at_s, size in held]
    memory, files, threads = resources([*looks, Sample("a", 4, "down")])
    assert (memory.first, memory.most, memory.last) == (80, 200, 90)
    assert (files.site, files.first, files.most, files.last) == ("a", 1, 3, 3)
    assert (threads.name, threads.most) == ("threads", 7)


def test_the_history_around_a_violation_has_what_overlaps_on_its_rows_alone() -> None:
    def shown(plot: Plot, *calls: int, most: int = 16) -> tuple[list[int], int]:
        found, left_out = around(plot.history(), Violation("P3", "linearizable", "", calls, (9.0,)), most)
        return [call.id for call in found], left_out

    assert shown(PLOT, 4) == ([4], 0)
    wide = Plot().write("k", "x", 0, 9, version=1).read("k", "x", 1, 2, version=1).read("l", None, 1, 2).write("k", "y", 20, 21)
    assert shown(wide, 1) == ([1, 2], 0)
    many = Plot()
    for n in range(6):
        many.write("k", n, 2.0 * n, 2.0 * n + 1, version=n + 1)
    assert shown(many, 1, 2, 3, 4, 5, 6, most=2) == ([5, 6], 4), "those nearest to the moment of the violation"
    assert shown(PLOT) == ([], 0)


def test_a_violation_of_a_site_stands_with_what_the_sites_said_around_it() -> None:
    looks = [Sample("ab"[n % 2], n / 2, "ACTIVE", 1) for n in range(100)]
    found = evidence(PLOT.history(), looks, Violation("P8", "at_risk", "It is.", (), (10.0, 20.0)))
    assert len(found.looks) <= LOOKS_MAX
    assert (found.looks[0].at_s, found.left_out) == (8.0, 29 - len(found.looks))
    assert {look.site for look in found.looks} == {"a", "b"}, "of each site"
    assert all(8.0 <= look.at_s <= 22.0 for look in found.looks)


def test_a_checker_that_finds_many_does_not_hide_the_others() -> None:
    many = [Violation("P6", "losses", str(n)) for n in range(30)]
    shown = first_of_each([*many, Violation("P3", "linearizable", "x")])
    assert [each.sentence for each in shown] == [*"0123", "x"]
    assert len(first_of_each([Violation("P1", str(n), "") for n in range(30)])) == 20


def test_the_pair_is_whole_while_one_serves_the_other_follows_and_nothing_is_named() -> None:
    def both(at_s: float, **of_a: Any) -> list[Sample]:
        shown = {"reads": True, "writes": True} | of_a
        return [Sample("a", at_s, "ACTIVE", told_s=at_s, **shown), Sample("b", at_s, "STANDBY", told_s=at_s, follows=True)]

    looks = [*both(1.0), *both(2.0), *both(3.0, troubles=("peer: away",)), *both(4.0, writes=False), *both(6.5), *both(7.0)]
    assert [is_whole for _, is_whole in whole(looks)][::2] == [True, True, False, False, True, True]
    spans = [Span("crash", "b", "", 2.5, 3.5), Span("latency", "a-b", "", 0.5, 1.5), Span("crash", "b", "", 3.9, 9.0)]
    assert [cost.whole_after_s for cost in costs(PLOT.history(), spans, looks)] == [4.0, 0.0, None]


def test_latency_is_told_apart_by_whether_a_fault_was_there_and_unknowns_count_where_they_were() -> None:
    span = Span("crash", "a", "", 6.15, 6.3)
    found = {(each.during_faults, each.what): each for each in latencies(PLOT.history(), [span])}
    assert [found[False, "writes"].calls, found[True, "writes"].calls, found[True, "reads"].calls] == [3, 0, 1]
    assert round(found[False, "writes"].p50_ms or 0) == 250
    assert round(found[False, "writes"].p99_ms or 0) == 500
    assert found[True, "writes"].p99_ms is None
    assert [cost.unknown for cost in costs(PLOT.history(), [span, Span("crash", "a", "", 0.0, 1.0)], ())] == [1, 0]


def test_the_page_shows_violations_with_their_calls_and_what_was_not_checked() -> None:
    run = Run(
        HarnessPlan("a <test>"), 1, "", PLOT.history(), (Violation("P1", "acknowledged", "Row k <is> gone.", (1,)),),
        (Verdict("P1", "acknowledged", "it is there", VIOLATED, 4), Verdict("P3", "scans", "in order", HELD, 2),
         Verdict("P7", "bounded", "none stays", NOT_CHECKED, 0)),
        (Span("pause", "a", "", 2.0, 3.0),), (Sample("a", 0.0, "ACTIVE"), Sample("a", 5.0, "paused")), (), (), ("a note",), 7.0,
        "somebody's",
    )
    shown = page(
        run, "scenario", "python -m chaos replay x", [evidence(run.history, run.samples, run.violations[0])],
        Origin("today", "abc", "a machine", 1.0),
    )
    assert "1 invariants held, 1 violated, 1 not checked in this run" in shown
    assert "Row k &lt;is&gt; gone." in shown
    assert "write t: upsert k" in shown
    assert "4.85 s" in shown, "what the fault cost"
    assert "python -m chaos replay x" in shown
    assert "<svg" in shown
    assert INK not in shown, "the picture takes the colour of the page"
    assert not re.findall(r"(?:src|href)=['\"]?https?:", shown.replace("xlink:href", "")), "nothing is fetched"
    assert "<test>" not in shown
