"""One Chromium for the tests of a file, and pages wait for the first look at both sites as long as a busy machine may need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.gateway.ui.page_rig import WAIT_MS
from tests.needs import need_program


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = need_program("chromium", "chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ui.watch.FIRST_S", 20.0)


@pytest.fixture
def page_at(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; a fault in a page's console fails the test."""
    contexts, faults = [], list[str]()

    def open_page(width: int = 1440, height: int = 900, *, scripts: bool = True, scheme: Any = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=scripts
        )
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
