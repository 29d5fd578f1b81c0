"""The view *Now*, in each state that a pair can be in: what it says, and what it does not hide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.epoch.commit_rule import CommitMode
from gateway.service.documents import AtRisk, DependencyDocument, RemoteLogDocument, ServingDocument, SiteDocument
from gateway.ui.rates import SiteRates
from gateway.ui.rendering import regions
from gateway.ui.views.now import now_page
from gateway.ui.views.write_path import write_path
from gateway.ui.watch import Point
from switchover.monitor.findings import AdviceKind
from switchover.monitor.judgement import Advice
from tests.gateway.ui.ui_rig import URLS, look, now_text, operation, pair_seen

LOST = Advice(
    AdviceKind.FAILOVER, "site a, the active, answers neither the monitor nor site b", "silent-a-3", "b",
    ("the monitor: no answer", "site b: it does not answer"), held_s=12.0, command="twinlog failover --to b",
)


def test_a_pair_that_is_well() -> None:
    text = now_text(pair_seen())
    for said in ("All is well: there is nothing to do", "policy protect", "sync", "writes are taken", "0 records", "ACTIVE",
                 "STANDBY", "follows the active", "page of site b"):
        assert said in text
    assert "What stands in the way" not in text


def test_the_other_site_does_not_answer() -> None:
    text = now_text(pair_seen(b="the other site at http://b does not answer"))
    assert "site b does not answer: the other site at http://b does not answer" in text
    assert "It last answered 5.0 s ago, as STANDBY" in text or "It last answered 5 s ago, as STANDBY" in text
    nodes = write_path(pair_seen(b="away"), "a", is_advised=True)
    assert (nodes["copy"].level, nodes["copy"].word) == ("unknown", "unknown")


def test_the_active_is_lost_seen_from_the_standby() -> None:
    seen = pair_seen(a="the other site at http://a does not answer", site="b", advice=LOST, unwritten_s=12.0)
    text = now_text(seen)
    assert "Site a, the active, answers neither the monitor nor site b" in text
    assert "twinlog failover --to b" in text
    assert "12.0 s" in text
    assert "the monitor: no answer" in text
    assert "at risk now 0 records by the checks of site b" in text
    assert "at risk now ? unknown" in now_text(pair_seen(a="away", site="b"))
    html = regions("now.html", {"page": now_page(seen, is_advised=True), "is_advised": True})
    assert 'href="/ui/change?kind=failover"' in html["verdict"]
    nodes = write_path(seen, "a", is_advised=True)
    assert {name: nodes[name].level for name in ("client", "gateway", "wal", "remote", "copy")} == {
        "client": "unknown", "gateway": "bad", "wal": "unknown", "remote": "unknown", "copy": "ok",
    }


def test_what_has_not_held_for_long_enough_says_so() -> None:
    advice = Advice(AdviceKind.LOOK, "one of the two is slow", held_s=3.0, holds_in_s=7.0)
    assert "seen for 3.0 s; it means something after 7.0 s more" in now_text(pair_seen(advice=advice))


def test_a_degraded_pair() -> None:
    active = look(
        role="DOWNGRADE_ACTIVE", mode="async", mode_detail=CommitMode.ASYNC, at_risk=AtRisk(17, False), remote_log=None,
    )
    text = now_text(pair_seen(active))
    assert "degraded: a write is in one log when it is acknowledged" in text
    assert "17 records" in text
    assert "not written: async" in text
    assert "writes are acknowledged by the local log alone" in text


def test_a_remote_log_that_takes_nothing() -> None:
    active = look(remote_log=RemoteLogDocument(4096, 1, 3, "the DFS does not answer"), at_risk=AtRisk(None, False))
    nodes = write_path(pair_seen(active), "a", is_advised=True)
    assert (nodes["remote"].level, nodes["remote"].word) == ("bad", "takes nothing")
    assert "at risk now ? unknown" in now_text(pair_seen(active))


def test_a_wal_and_a_storage_that_failed() -> None:
    words = {"local log": DependencyDocument(9.0, 0.1, "no space left"), "storage": DependencyDocument(9.0, 0.1, "rot")}
    active = look(dependencies=words, serving=ServingDocument(True, False, False, "its own log cannot be written", "make room"))
    nodes = write_path(pair_seen(active), "a", is_advised=True)
    assert [nodes[name].word for name in ("client", "wal", "storage")] == ["reads only", "takes nothing", "failed"]
    assert "its own log cannot be written: make room" in now_text(pair_seen(active))


@pytest.mark.parametrize("state", ["diverged", "unreachable", "refused", "loading", "busy", "unknown"])
def test_what_the_standby_does(state: str) -> None:
    sites = {"a": SiteDocument(URLS["a"], 1), "b": SiteDocument(URLS["b"], None, state=state)}
    node = write_path(pair_seen(look(sites=sites)), "a", is_advised=True)["shipping"]
    assert node.level != "ok"
    assert node.word != "follows"


def test_a_fenced_site_and_nobody_active() -> None:
    serving = ServingDocument(False, False, False, "it met a higher epoch", "rejoin it")
    fenced = look("a", "FENCED", active=None, serving=serving)
    closed = look("b", "CLOSED", active=None, waiting_for="the register")
    text = now_text(pair_seen(fenced, closed, unwritten_s=3.0))
    for said in ("FENCED", "it met a higher epoch: rejoin it", "nobody", "no site is active", "waits for the register"):
        assert said in text


def test_an_operation_that_runs_is_the_first_line() -> None:
    seen = pair_seen(b=look("b", "SWITCHING", operation=operation()), advice=LOST)
    text = now_text(seen)
    assert "A switchover to site b is under way at site b claim: what claim does" in text
    assert "twinlog history op-1" in text


def test_who_may_not_see_the_advice_sees_neither_it_nor_a_rate() -> None:
    text = now_text(pair_seen(advice=LOST), is_advised=False)
    assert "twinlog failover" not in text
    assert "the monitor: no answer" not in text
    assert "writes a second" not in text
    assert "acknowledged in" not in text


def test_every_part_has_a_word_and_the_picture_says_them_all() -> None:
    page = now_page(pair_seen(), is_advised=True)
    for picture in (page.wide, page.narrow):
        assert len(picture.nodes) == 8
        for placed in picture.nodes:
            assert placed.node.word
            assert f"{placed.node.title}: {placed.node.word}" in page.told
            assert 0 <= placed.x <= placed.x + placed.w <= picture.w
            assert 0 <= placed.y <= placed.y + placed.h <= picture.h


def test_site_a_stays_on_the_left_whoever_is_active() -> None:
    b_active = look("b", active=look().cluster.active.__class__("b", URLS["b"], 4))
    for seen in (pair_seen(), pair_seen(look("a", "STANDBY", active=b_active.cluster.active), b_active)):
        boxes = {box.site: box.x for box in now_page(seen, is_advised=True).wide.boxes}
        assert boxes["a"] < boxes["b"]


def test_names_are_data() -> None:
    evil = '<script>alert(1)</script>\u202e\x00"'
    text = regions("now.html", {
        "page": now_page(pair_seen(look(waiting_for=evil), b=f"{evil} away"), is_advised=True), "is_advised": True,
    })
    html = " ".join(text.values())
    assert "<script" not in html
    assert "\u202e" not in html
    assert "\x00" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\u0000" in html


def test_the_first_look_has_every_tile_and_says_when_figures_come() -> None:
    seen = replace(pair_seen(), curve=(Point(100.0, None, True),))
    page, later = now_page(seen, is_advised=True), now_page(pair_seen(), is_advised=True)
    text = now_text(seen)
    assert "the curve begins in two seconds" in text
    assert "writes a second not yet the next look measures it" in text
    assert "unknown now" not in text
    measured = replace(seen.sides["a"], rates=SiteRates(2.0, 5.0, 1.0, 0.0, 0.0))
    known = now_page(replace(pair_seen(), sides={**seen.sides, "a": measured}), is_advised=True)
    assert [tile.title for tile in page.tiles] == [tile.title for tile in known.tiles], "nothing moves when figures come"
    assert later.curve.note == "12 now, 12 at most"
    lost = replace(pair_seen(a="away", site="b"), curve=tuple(Point(float(at), None, False) for at in range(4)))
    assert "no active reports its writes" in now_text(lost)
    assert "no active answers" in now_text(lost)
