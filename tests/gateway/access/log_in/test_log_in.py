"""The log-in by an issuer, from the page to the provider's twin and back: who gets in, and everybody who does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.access.log_in.log_in_rig import LogInDoor, log_in_door
from tests.gateway.access.log_in.provider_twin import Provider, running_provider
from tests.gateway.ui.test_pages_over_http import form_of
from tests.gateway.ui.ui_rig import text_of


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
async def door(provider: Provider, tmp_path: Path) -> AsyncIterator[LogInDoor]:
    async with log_in_door(provider, tmp_path) as opened:
        yield opened


def said(answer: httpx.Response) -> str:
    return text_of(answer.text)


async def is_in(door: LogInDoor) -> bool:
    return (await door.browser.get("/ui")).status_code == 200


async def test_somebody_logs_in_and_sees_what_is_granted(door: LogInDoor) -> None:
    page = await door.browser.get("/ui/login?next=/ui/tables")
    assert f"Log in by {door.log_in.issuer}" in said(page)
    answer = await door.browser.log_in("ann", "/ui/tables")
    assert answer.status_code == 200
    assert "You are logged in as ann" in said(answer)
    assert 'content="0; url=/ui/tables"' in answer.text
    assert await is_in(door)
    assert (await door.browser.get("/ui/tables/flights")).status_code == 200
    assert (await door.browser.get("/ui/change")).status_code == 403
    assert (await door.browser.http.get("/v1/cluster")).status_code == 401, "the session is of the page alone"


async def test_a_log_out_ends_it(door: LogInDoor) -> None:
    await door.browser.log_in()
    page = await door.browser.get("/ui")
    known = len(door.log_in._known)
    left = await door.browser.http.post("/ui/logout", data={"form": form_of(page)}, headers={"accept": "text/html"})
    assert left.status_code == 303
    assert not await is_in(door)
    assert (known, len(door.log_in._known)) == (1, 0)
