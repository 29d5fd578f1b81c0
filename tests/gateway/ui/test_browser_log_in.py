"""A person logs in through an OIDC provider, in a real browser, at a live pair with TLS.

Screenshots are kept in out/page/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.gateway.access.log_in.provider_twin import SECRET, Provider, running_provider
from tests.gateway.ui.log_in_pair import log_in_pair, texts
from tools.sources import ROOT

pytestmark = [pytest.mark.pair, pytest.mark.long]
SHOTS = ROOT / "out" / "page"
WAIT_MS = 60_000


@dataclass
class LivePair:
    provider: Provider
    folder: Path
    urls: dict[str, str]

    def texts(self) -> str:
        return texts(self.folder)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePair]:
    folder = tmp_path_factory.mktemp("log-in")
    with running_provider() as provider, log_in_pair(folder, provider.url) as urls:
        yield LivePair(provider, folder, urls)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fault in a page's console fails the test."""
    context, faults = browser.new_context(ignore_https_errors=True, viewport={"width": 1000, "height": 700}), list[str]()
    context.set_default_timeout(WAIT_MS)
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    yield opened
    context.close()
    assert faults == []


def _shot(page: Page, name: str) -> None:
    """Keeps a picture, after the page was found accessible, and as wide as a narrow screen."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    found = Axe().run(page).response["violations"]
    assert [f"{one['id']}: {node['target']}" for one in found for node in one["nodes"]] == []
    for width in (320, 1000):
        page.set_viewport_size({"width": width, "height": 700})
        assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"), width
        page.screenshot(path=SHOTS / f"{name}-{width}.png", full_page=True)


def _at_the_provider(live: LivePair, page: Page, path: str) -> None:
    page.goto(live.urls["a"] + path)
    page.get_by_role("link", name="Log in at").click()
    expect(page.locator("h1")).to_have_text("Provider")


def test_a_person_logs_in_works_and_logs_out(live: LivePair, page: Page) -> None:
    page.goto(f"{live.urls['a']}/ui/tables")
    expect(page.locator("h1")).to_have_text("Log in")
    _shot(page, "login-by-issuer")
    _at_the_provider(live, page, "/ui/tables")
    page.get_by_label("User").fill("ann")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who .name")).to_have_text("ann")
    assert page.url == f"{live.urls['a']}/ui/tables"
    assert page.locator("nav a").all_inner_texts() == ["Now", "Tables"]
    cookies = {one["name"]: one for one in page.context.cookies()}
    assert [(name, one["sameSite"], one["httpOnly"], one["secure"]) for name, one in cookies.items()] == [
        ("twinlog_demo_a", "Strict", True, True)
    ], "the cookie of the log-in is gone"
    page.reload()
    expect(page.locator(".who .name")).to_have_text("ann")
    page.go_back()
    assert "code=" not in page.url
    page.goto(f"{live.urls['a']}/ui")
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    page.goto(f"{live.urls['a']}/ui")
    expect(page.locator("h1")).to_have_text("Log in")
    said = live.texts()
    assert "session.login" in said
    assert [one for one in (SECRET, *live.provider.given_codes, *live.provider.id_tokens) if one in said] == []


@pytest.mark.parametrize(("user", "button", "said"), [
    ("ann", "Decline", "you declined there"), ("eve", "Sign in", "nothing is granted to you here"),
])
def test_whoever_is_not_let_in_reads_why_and_has_a_way_back(
    live: LivePair, page: Page, user: str, button: str, said: str,
) -> None:
    _at_the_provider(live, page, "/ui/tables")
    page.get_by_label("User").fill(user)
    page.get_by_role("button", name=button).click()
    expect(page.get_by_role("alert")).to_contain_text(said)
    _shot(page, f"login-refused-{user}")
    page.get_by_role("link", name="Log in at").click()
    page.get_by_label("User").fill("ben")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who .name")).to_have_text("ben")


def test_the_page_in_between_leads_on_by_hand_too(live: LivePair, page: Page) -> None:
    view = f"{live.urls['a']}/ui/history"
    _at_the_provider(live, page, "/ui/history")
    page.route(view, lambda route: route.fulfill(status=204))  # a browser stays where it is
    page.get_by_label("User").fill("ben")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("You are logged in as ben")
    _shot(page, "logged-in")
    page.unroute(view)
    page.get_by_role("link", name="To the pair").click()
    expect(page.locator(".who .name")).to_have_text("ben")
    assert page.url == view


def test_it_needs_no_javascript(live: LivePair, browser: Browser) -> None:
    with browser.new_context(ignore_https_errors=True, java_script_enabled=False) as context:
        page = context.new_page()
        _at_the_provider(live, page, "/ui/history")
        page.get_by_label("User").fill("ben")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".who .name")).to_have_text("ben", timeout=WAIT_MS)
        assert page.url == f"{live.urls['a']}/ui/history"
