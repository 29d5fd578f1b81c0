"""The view *History*: roles and alerts of both sites, the newest first, and how many are kept."""

from __future__ import annotations

from gateway.service.documents import ServingDocument, SiteTrouble
from gateway.ui.happenings import KEPT, Happened, Happening, Happenings
from gateway.ui.views.history import happening_rows
from storage.clock import SystemClock


def test_what_happens_is_kept_in_order_and_bounded() -> None:
    happenings = Happenings(SystemClock())
    happenings.role("STANDBY", "it follows")
    happenings.mode("async", "degraded by command")
    happenings.trouble(SiteTrouble("own DFS", "it takes no files", "make room", "no space left"))
    happenings.serving(ServingDocument(True, False, False, "its own log cannot be written", "make room"))
    happenings.over("own DFS")
    kept = happenings.all().happenings
    assert [(one.kind, one.what, one.why) for one in kept] == [
        ("over", "own DFS", ""), ("alert", "serving", "its own log cannot be written: make room"),
        ("alert", "own DFS", "it takes no files (no space left): make room"), ("role", "mode async", "degraded by command"),
        ("role", "STANDBY", "it follows"),
    ]
    for _ in range(KEPT + 10):
        happenings.role("STANDBY", "again")
    assert len(happenings.all().happenings) == KEPT


def test_both_sites_are_shown_in_one_list() -> None:
    rows = happening_rows({
        "a": Happened(0, [Happening(3000, "over", "peer"), Happening(1000, "alert", "peer", "it is silent")]),
        "b": Happened(0, [Happening(2000, "role", "ACTIVE", "it took over")]),
    })
    assert [(one.site, one.level, one.what, one.why) for one in rows] == [
        ("a", "ok", "no more: peer", ""), ("b", "info", "is now ACTIVE", "it took over"),
        ("a", "warn", "alert: peer", "it is silent"),
    ]
