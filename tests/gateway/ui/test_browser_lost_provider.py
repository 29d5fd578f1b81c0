"""A provider that dies while somebody logs in or out, and returns: a real process, a real browser, a live pair with TLS.

Screenshots are kept in out/page/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, expect

from chaos.servers.ports import free_ports
from tests.gateway.access.log_in.provider_process import ProviderProcess
from tests.gateway.ui.log_in_pair import log_in_pair
from tests.processes import wait_for
from tools.sources import ROOT

pytestmark = [pytest.mark.pair, pytest.mark.long]
SHOTS = ROOT / "out" / "page"
WAIT_MS = 60_000
WIDTHS = (320, 1000, 1920)


@dataclass
class Live:
    provider: ProviderProcess
    url: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("lost-provider")
    provider = ProviderProcess(folder, free_ports(1)[0])
    provider.start()
    try:
        with log_in_pair(folder, provider.url) as urls:
            yield Live(provider, urls["a"])
    finally:
        provider.kill()


@pytest.fixture
def live(pair: Live) -> Live:
    pair.provider.kill()
    pair.provider.start()
    return pair


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    scheme: Any = request.param
    context = browser.new_context(ignore_https_errors=True, color_scheme=scheme)
    context.set_default_timeout(WAIT_MS)
    yield context.new_page()
    context.close()


def _is_sound(page: Page, name: str) -> None:
    """It is accessible and has no sideways scroll at any width; a picture of each is kept."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        found = Axe().run(page).response["violations"]
        assert [f"{width} {one['id']}: {node['target']}" for one in found for node in one["nodes"]] == []
        assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"), width
        page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", full_page=True)


def _begins(live: Live, page: Page) -> bool:
    """Returns whether a log-in leads to the provider now."""
    page.goto(f"{live.url}/ui/login?next=/ui/history")
    page.get_by_role("link", name="Log in at").click()
    return page.locator("h1").inner_text() == "Provider"


def _log_in(live: Live, page: Page) -> None:
    assert wait_for(lambda: _begins(live, page))
    page.get_by_label("User").fill("ann")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who .name")).to_have_text("ann")


def _is_kept_back(live: Live, page: Page) -> bool:
    """Returns whether the way to the log-out there, as of an older page, ends at a page of this site that says why. The
    gateway asks every 5 s at most: until then the browser is led on."""
    try:
        page.goto(f"{live.url}/ui/login/oidc/leave")
    except Error:
        return False
    return "cannot be reached from this gateway now" in page.get_by_role("alert").inner_text()


def test_a_provider_that_dies_between_the_code_and_the_token(live: Live, page: Page) -> None:
    live.provider.kill()
    live.provider.start("hold")
    assert wait_for(lambda: _begins(live, page))
    page.get_by_label("User").fill("ann")
    page.get_by_role("button", name="Sign in").click(no_wait_after=True)
    live.provider.await_word("held")
    live.provider.kill()
    expect(page.get_by_role("alert")).to_contain_text("so your log-in could not be completed: try again in a moment, or log in")
    expect(page.get_by_role("link", name="log out there")).to_have_count(0)
    _is_sound(page, "login-provider-died")
    page.get_by_role("link", name="Log in at").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached from this gateway now")
    live.provider.start()
    _log_in(live, page)
    assert page.url == f"{live.url}/ui/history"


def test_log_outs_while_the_provider_is_down(live: Live, page: Page) -> None:
    _log_in(live, page)
    live.provider.kill()
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    page.goto(f"{live.url}/ui/history")
    expect(page.locator("h1")).to_have_text("Log in")
    assert wait_for(lambda: _is_kept_back(live, page))
    expect(page.get_by_role("link", name="log out there")).to_have_count(0)
    live.provider.start()
    assert wait_for(lambda: page.goto(f"{live.url}/ui/login") and page.get_by_role("link", name="log out there").count() == 1)
    _is_sound(page, "login-with-log-out")
    page.get_by_role("link", name="log out there").click()
    expect(page.locator("h1")).to_have_text("Logged out there")
    _log_in(live, page)
