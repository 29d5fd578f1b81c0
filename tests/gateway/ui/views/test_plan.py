"""An operation as the page draws it: the line of no return, durations, the time without writes."""

from __future__ import annotations

import pytest

from gateway.ui.rendering import regions
from gateway.ui.views.change import ask_of, change_values, checks_shown, options_of
from gateway.ui.views.plan import plan_shown
from gateway.ui.watch import PairSeen
from switchover.operations.document import OperationError, unwritten_ms
from switchover.preflight.checks import Check
from switchover.preflight.preflight import ChecksDocument
from tests.gateway.ui.ui_rig import NOW_MS, look, operation, pair_seen, text_of
from twinlog.errors import InvalidInput


def _drawn(seen: PairSeen, chosen: str = "", *, may_change: bool = True) -> dict[str, str]:
    return regions("change.html", change_values(seen, chosen, may_change=may_change))


def test_the_line_stands_before_the_first_step_without_a_way_back() -> None:
    shown = plan_shown("b", operation(), NOW_MS)
    assert [step.name for step in shown.steps if step.crosses] == ["step_down"]
    assert shown.is_past_return
    assert not shown.abortable


def test_seconds_without_writes_are_counted_from_the_drain_to_the_opening() -> None:
    running = operation()
    assert unwritten_ms(running.steps, NOW_MS) == 300
    done = tuple(("open", False, "done", 260, 380) if name == "open" else (name, back, "done", at, end or 260)
                 for name, back, _, at, end in (("drain", True, "", 100, 150), ("open", False, "", 260, 380)))
    assert unwritten_ms(operation("succeeded", done).steps, NOW_MS + 99_999) == 280
    assert plan_shown("b", running, NOW_MS).is_counting
    assert unwritten_ms(operation(steps=(("preflight", True, "running", 0, None),)).steps, NOW_MS) is None


def test_a_running_plan_with_its_line_in_the_page() -> None:
    text = text_of(_drawn(pair_seen(b=look("b", "SWITCHING", operation=operation())))["plan"])
    assert text.index("catch_up") < text.index("point of no return") < text.index("step_down")
    for said in ("switchover to site b running", "4 of 6", "none: only forward", "300 ms", "anna (10.0.0.1): disk"):
        assert said in text


def test_one_that_stopped_half_way_offers_to_resume_where_it_may() -> None:
    stopped = operation("failed", error=OperationError("dfs-error", "`the DFS` does not answer", {}, "claim"))
    seen = pair_seen(operations=(("a", stopped),))
    html = _drawn(seen)["plan"]
    assert "act=resume" in html
    assert "dfs-error at claim: the DFS does not answer" in text_of(html)
    assert "act=resume" not in _drawn(seen, may_change=False)["plan"]
    elsewhere = _drawn(pair_seen(operations=(("b", stopped),)))["plan"]
    assert "act=resume" not in elsewhere
    assert "twinlog resume op-1" in text_of(elsewhere)


@pytest.mark.parametrize(("kind", "runs_at", "command"), [
    ("switchover", "b", "twinlog switchover --to b"), ("failover", "b", "twinlog failover --to b"),
    ("rejoin", "b", "twinlog rejoin b"), ("degrade", "a", "twinlog degrade"), ("resync", "a", "twinlog resync"),
])
def test_a_change_runs_where_the_command_line_would_ask(kind: str, runs_at: str, command: str) -> None:
    ask = ask_of(pair_seen(), kind)
    assert (ask.runs_at, ask.command, ask.is_here) == (runs_at, command, runs_at == "a")


def test_a_lost_active_is_taken_over_by_the_site_that_is_left() -> None:
    ask = ask_of(pair_seen(a="away", site="b"), "failover")
    assert (ask.runs_at, ask.is_here, ask.typed) == ("b", True, "failover b")
    with pytest.raises(InvalidInput):
        ask_of(pair_seen(), "explode")


def test_checks_in_the_way_come_first() -> None:
    found = ChecksDocument("failover", "b", False, [
        Check("pair.active", "ok", "site a"), Check("mode.sync", "failed", "it is async", "bring site a back"),
    ], None)
    shown = checks_shown(found)
    assert [check.id for _, check in shown.rows] == ["mode.sync", "pair.active"]
    assert (shown.is_ok, shown.counts) == (False, "1 failed, 1 ok")


def test_options_of_a_form() -> None:
    assert options_of("switchover", {"reason": " why ", "count": "5"}) == {"reason": "why"}
    assert options_of("failover", {"count": "1,234"}) == {"accept_data_loss": 1234}
    assert options_of("failover", {"count": "unknown"}) == {"accept_data_loss": "unknown"}
    assert options_of("rejoin", {"merge": "1", "put_absent": "1"}) == {"merge": True, "put_absent": True}
    for kind, fields in (("failover", {"count": "many"}), ("rejoin", {"put_absent": "1"})):
        with pytest.raises(InvalidInput):
            options_of(kind, fields)
