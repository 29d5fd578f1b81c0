"""The page in a real browser on a live pair: each view, a switchover driven from the page under load, a lost site.

Screenshots are kept in out/page/.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from bench.pair import Pair
from tests.gateway.ui.page_rig import (
    LINES,
    SIZES,
    WAIT_MS,
    WATCH_MOVES,
    Load,
    active_url,
    address_of,
    axe_faults,
    shot,
    site_of,
    url_of,
)
from tests.processes import wait_for
from twinlog import Client
from twinlog.key_text import part_to_path

pytestmark = [pytest.mark.pair, pytest.mark.long]
VIEWS = {
    "now": "/ui", "change": "/ui/change?kind=switchover", "history": "/ui/history", "tables": "/ui/tables",
    "table": "/ui/tables/orders", "audits": "/ui/audits", "audit": "/ui/audits/1-compare", "log": "/ui/log",
}
AXE_UP_TO = 1920  # wider, the page has the same elements in the same colours
LARGE_ROWS = 21_000  # more than are counted
TABLE = {
    "name": "orders", "columns": [{"name": "id", "type": "string"}, {"name": "note", "type": "string"}], "primary_key": ["id"],
}


KINDS = ("missing", "extra", "stale", "damaged")
KEY = "<b>one</b>\u202e"


def _note(base: str, audit: str) -> None:
    """A comparison that found four kinds of differences has ended, and its report follows."""
    now = datetime.now(UTC).isoformat()
    run = {"id": audit, "job": "compare", "started_at": now, "finished_at": now, "outcome": "bad", "differences": 40,
           "tables": ["orders"], "by": "ann"}
    report = {
        "version": 1, "source": "a", "peer": "b", "tables_count": 1, "kinds": dict.fromkeys(KINDS, 10),
        "tables": [{"name": "orders", "compared": 100, "equal": 60, "kinds": dict.fromkeys(KINDS, 10)}],
        "advice": {"stale": "Read it with `twinlog log cat`."}, "differences_count": 40,
        "differences": [
            {"kind": kind, "table": "orders", "key": part_to_path(KEY), "place": "", "source_version": "7",
             "peer_version": None} for kind in KINDS
        ],
        "places": [{"table": "orders", "kinds": {kind: [0, number, 10 - number] for number, kind in enumerate(KINDS)}}],
        "stages": [{"name": "digests of a", "took_s": 3.0}, {"name": "digests of b", "took_s": 2.0}],
        "pace": [{"at_s": 3.0, "rows": 100}, {"at_s": 5.0, "rows": 200}], "counters": {"GOODROWS": 60},
    }
    for method, path, body in (("POST", "/v1/audits", run), ("PUT", f"/v1/audits/{audit}/report", report)):
        httpx.request(method, base + path, json=body, timeout=30, trust_env=False).raise_for_status()


def _progress(base: str, audit: str, done: int) -> None:
    body = {"job": "compare", "phase": "digests of b", "elapsed_s": 3.0, "done": done, "total": 200}
    path = f"{base}/v1/audits/{audit}/progress"
    httpx.put(path, json=body, timeout=30, trust_env=False).raise_for_status()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("page") / "demo") as pair:
        created = httpx.post(f"{active_url(pair)}/v1/tables", json=TABLE, timeout=30, trust_env=False)
        assert created.status_code == 201, created.text
        with Client(address_of(pair)) as client:
            client.put("orders", KEY, {"note": "\x07 & <script>"})
            client.put("orders", "long", {"note": "words of a note " * 20})
        _note(active_url(pair), "1-compare")
        yield pair


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_in_light_and_dark_has_lines_to_read_and_needs_no_sideways_scroll(
    live: Pair, page_at: Callable[..., Page], scheme: str,
) -> None:
    page = page_at(scheme=scheme)
    base = active_url(live)
    faults: list[str] = []
    for name, path in VIEWS.items():
        page.goto(base + path)
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            faults += [f"{name} {width}: {one}" for one in (axe_faults(page) if width <= AXE_UP_TO else ())]
            faults += [f"{name} {width}: {one}" for one in page.evaluate(LINES)]
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                faults.append(f"{name} {width}: it scrolls sideways")
            shot(page, f"{name}-{scheme}-{width}")
    assert faults == []


def test_now_is_live_and_moves_nothing(live: Pair, page_at: Callable[..., Page]) -> None:
    page = page_at()
    page.goto(f"{active_url(live)}/ui")
    expect(page.locator("[data-stream]")).to_have_text("live")
    page.locator(".command button, .address a").first.focus()  # it may scroll there
    before = page.locator("h2").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    clock = page.locator(".clock").inner_text()
    focused = page.evaluate("document.activeElement.outerHTML")
    expect(page.locator(".clock")).not_to_have_text(clock)
    assert page.locator("h2").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)") == before
    assert page.evaluate("document.activeElement.outerHTML") == focused


def test_without_javascript_now_reads_and_loads_itself_again(live: Pair, page_at: Callable[..., Page]) -> None:
    page = page_at(scripts=False)
    page.goto(f"{active_url(live)}/ui")
    expect(page.locator("h1")).to_contain_text("All is well", timeout=WAIT_MS)  # loaded again, where the first look is late
    assert page.locator("svg.path.wide").is_visible()
    assert page.locator('noscript meta[http-equiv="refresh"]').count() == 1 or "refresh" in page.content()
    shot(page, "now-without-javascript")


def test_rows_are_data(live: Pair, page_at: Callable[..., Page]) -> None:
    page = page_at()
    page.goto(f"{active_url(live)}/ui/tables")
    page.get_by_role("link", name="orders").click()
    row = page.locator("table.data tbody tr").first
    expect(row).to_contain_text("<b>one</b>\\u202e")
    expect(row).to_contain_text("\\u0007 & <script>")
    page.get_by_label("From key").fill("zz")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("There is no row from here on")


def test_what_tables_hold_and_how_they_stand_at_the_other_site(live: Pair, page_at: Callable[..., Page]) -> None:
    """One of the two tables is too large to be counted."""
    active = active_url(live)
    other = "b" if site_of(live, active) == "a" else "a"
    created = httpx.post(f"{active}/v1/tables", json={**TABLE, "name": "large"}, timeout=30, trust_env=False)
    assert created.status_code == 201, created.text
    ids = [f"{number * 2654435761 % (1 << 32):08x}" for number in range(LARGE_ROWS)]
    with Client(address_of(live)) as client:
        for some in pa.table({"id": ids, "note": ["x" * 20] * LARGE_ROWS}).to_batches(max_chunksize=3000):
            client.upsert_arrow("large", pa.Table.from_batches([some]))
        assert wait_for(lambda: client.table_figures("large")["other"]["size"]["rows_are"] == "estimated")
    page = page_at()
    page.goto(f"{active}/ui/tables")
    large = page.locator("tbody tr", has=page.get_by_role("link", name="large"))
    about = re.search(r"about ([\d,]+)", large.inner_text())
    assert about is not None
    assert LARGE_ROWS / 2 <= int(about[1].replace(",", "")) <= LARGE_ROWS * 2
    expect(large).to_contain_text(f"site {other} has the same")
    small = page.locator("tbody tr", has=page.get_by_role("link", name="orders"))
    expect(small.locator("td").nth(1)).to_have_text(re.compile(r"^\d+$"))
    page.get_by_role("link", name="large").click()
    expect(page.locator("dl.state")).to_contain_text("(from a sample")
    expect(page.locator("dl.state")).to_contain_text("both sites have revision 1")
    for width, height in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        assert axe_faults(page) == []
        shot(page, f"table-large-{width}")


def test_an_audit_is_followed_to_its_result_and_leads_to_its_rows(live: Pair, page_at: Callable[..., Page]) -> None:
    page, base = page_at(), active_url(live)
    page.goto(f"{base}/ui/audits")
    expect(page.locator("[data-stream]")).to_have_text("live")
    _progress(base, "2-compare", 50)
    page.get_by_role("link", name="2-compare").click()
    expect(page.get_by_label("Progress of 2-compare")).to_contain_text("50 of 200 rows (25 %)")
    _progress(base, "2-compare", 150)
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "150")
    assert axe_faults(page) == []
    shot(page, "audit-running")
    _note(base, "2-compare")
    expect(page.get_by_label("Result")).to_contain_text("The sites differ: 40 differences")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    plot = page.locator("svg.bars")
    expect(plot).to_have_attribute("aria-label", re.compile("40 differences of orders in 2 of 3 shares"))
    height = plot.bounding_box()["height"]  # type: ignore[index]
    assert all(0 < bar["height"] <= height for bar in plot.locator("rect").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().toJSON())"))
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Differences of orders by share")).to_contain_text("33 to 66 %")
    page.get_by_role("region", name="The first differences").get_by_role("link").first.click()
    expect(page.locator("table.data tbody tr").first).to_contain_text("<b>one</b>\\u202e")


def test_a_switchover_driven_from_the_page_under_load(live: Pair, page_at: Callable[..., Page]) -> None:
    old = site_of(live, active_url(live))
    new = "b" if old == "a" else "a"
    here, there, narrow = page_at(), page_at(), page_at(320, 800)
    for page in (here, there, narrow):
        page.add_init_script(f"({WATCH_MOVES})()")
    with Load(address_of(live)) as load:
        there.goto(f"{url_of(live, old)}/ui")
        expect(there.locator(".columns")).to_contain_text("follows the active", timeout=WAIT_MS)  # it has seen both sites
        narrow.goto(f"{url_of(live, new)}/ui")
        expect(narrow.locator(".tile").nth(1)).not_to_contain_text("not yet")
        here.goto(f"{url_of(live, old)}/ui/change?kind=switchover")
        expect(here.locator(".ask h2")).to_contain_text("it would begin now")
        here.get_by_role("link", name=re.compile(f"page of site {new}")).click()
        here.wait_for_url(f"{url_of(live, new)}/**")
        before = load.count
        here.get_by_label("To confirm").fill(f"switchover {old}")
        here.get_by_role("button", name="Begin the switchover").click()
        assert "/ui/change?kind" in here.url  # the browser takes what was typed for another change
        here.get_by_label("Why").fill("drill <b>")
        here.get_by_label("To confirm").fill(f"switchover {new}")
        here.get_by_role("button", name="Begin the switchover").click()
        here.wait_for_url("**/ui/change?operation=*")
        expect(here.locator("#plan")).to_contain_text("succeeded")
        expect(there.locator("h1")).to_contain_text("All is well")
        assert wait_for(lambda: load.count > before + 20)
    assert [page.evaluate("window.moves") for page in (here, there, narrow)] == [[], [], []]
    assert load.failed == []
    plan = here.locator("section.plan")
    expect(plan).to_contain_text("drill <b>")
    expect(plan.locator(".return")).to_have_count(1)
    names = plan.locator(".steps > li").evaluate_all("all => all.map(one => one.innerText)")
    line = next(place for place, text in enumerate(names) if "point of no return" in text)
    assert "catch_up" in names[line - 1]
    assert "step_down" in names[line + 1]
    without = plan.locator("dt:text-is('without writes') + dd").inner_text()
    assert re.fullmatch(r"[\d.]+ m?s", without), without
    shot(here, "switchover")
    expect(there.locator("dl.state").first).to_contain_text(f"site {new}")
    shot(there, "now-after-switchover")
    there.goto(f"{url_of(live, old)}/ui/history")
    expect(there.locator("main")).to_contain_text(f"switchover {new}")
    shot(there, "history")


def test_a_lost_site_and_what_to_type(live: Pair, page_at: Callable[..., Page]) -> None:
    lost = site_of(live, active_url(live))
    left = "b" if lost == "a" else "a"
    page = page_at()
    page.goto(f"{url_of(live, left)}/ui")
    old = page_at()
    for one, site in ((page, left), (old, lost)):
        one.add_init_script(f"({WATCH_MOVES})()")
        one.goto(f"{url_of(live, site)}/ui")
        expect(one.locator("h1")).to_contain_text("All is well")
    os.kill(live.pids[lost], signal.SIGKILL)
    expect(page.locator(".verdict:not([data-lost])")).to_contain_text(f"twinlog failover --to {left}")
    expect(page.locator(".columns")).to_contain_text("It last answered")
    expect(old.get_by_label("This page is old")).to_be_visible()
    expect(old.get_by_text("All is well")).to_be_hidden()
    expect(old.get_by_role("link", name="Page of the other site")).to_have_attribute("href", f"{url_of(live, left)}/ui")
    assert axe_faults(old) == []
    shot(old, "page-of-the-lost-site")
    assert [one.evaluate("window.moves") for one in (page, old)] == [[], []]
    expect(page.locator("dl.state").first).to_contain_text("without writes")
    assert axe_faults(page) == []
    for width, height in {**SIZES, 1120: 720}.items():
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(LINES) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    shot(page, "lost-site")
    page.get_by_role("link", name="Look at the failover").click()
    page.get_by_label("To confirm").fill(f"failover {left}")
    page.get_by_role("button", name="Begin the failover").click()
    page.wait_for_url("**/ui/change?operation=*")
    expect(page.locator("#plan")).to_contain_text("succeeded")
    page.goto(f"{url_of(live, left)}/ui")
    expect(page.locator("dl.state").first).to_contain_text(f"site {left}")
    expect(page.locator("dl.state").first).to_contain_text("async")
    expect(page.locator("svg.path.wide")).to_contain_text("DOWNGRADE_ACTIVE")
    assert page.evaluate(LINES) == []
    shot(page, "after-failover")


def test_the_log_in_of_a_pair_with_tokens(page_at: Callable[..., Page], tmp_path: Path) -> None:
    with Pair(tmp_path / "demo", options=("--access",)) as pair:
        page = page_at()
        page.goto(f"{url_of(pair, 'a')}/ui/log")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert axe_faults(page) == []
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("not valid here")
        page.get_by_label("Token").fill((tmp_path / "demo" / "token").read_text().strip())
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/ui/log")
        shot(page, "log-after-log-in")
        page.goto(f"{url_of(pair, 'a')}/ui")
        expect(page.locator("[data-stream]")).to_have_text("live")
        page.goto(f"data:text/html,<a href='{url_of(pair, 'a')}/ui/history'>a link in a chat</a>")
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="History", exact=True)).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
