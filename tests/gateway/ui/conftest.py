"""One Chromium for the tests of a file, and pages wait for the first look at both sites as long as a busy machine may need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

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
