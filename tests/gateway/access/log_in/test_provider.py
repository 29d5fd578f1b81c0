"""Providers that are away, slow, wrong or otherwise set up: what people read, and what is asked of the provider."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.access.log_in import provider as room
from gateway.access.log_in.provider import ASKED_S, DISCOVERY
from tests.gateway.access.log_in.log_in_rig import Clock, LogInDoor, is_in, log_in_door, oidc_settings, refused
from tests.gateway.access.log_in.provider_twin import Provider, running_provider
from twinlog.errors import Unavailable


async def test_a_wrong_secret(provider: Provider, tmp_path: Path) -> None:
    async with log_in_door(provider, tmp_path, oidc_settings(provider, client_secret="wrong")) as door:
        await refused(door, await door.browser.log_in(), 503, "refuses this gateway as its client: whoever runs this pair")


async def test_a_provider_that_is_down(tmp_path: Path) -> None:
    with running_provider() as provider:
        settings = oidc_settings(provider)
    async with log_in_door(provider, tmp_path, settings) as door:
        answer = await door.browser.get("/ui/login/oidc?next=/ui/tables")
        await refused(door, answer, 503, "cannot be reached from this gateway now", taken=False)
        assert "nobody can log in at the page by" in door.log_in.fault
        assert door.gate.notices()


async def test_a_provider_that_hangs(provider: Provider, tmp_path: Path) -> None:
    provider.hold = threading.Event()
    endpoints = {"authorization_url": f"{provider.url}/authorize", "token_url": f"{provider.url}/token"}
    settings = replace(oidc_settings(provider, **endpoints), fetch_deadline_s=0.3)
    async with log_in_door(provider, tmp_path, settings) as door:
        await refused(door, await door.browser.log_in(), 503, "does not answer this gateway")


@pytest.mark.parametrize("given", [
    (200, b""), (200, b"[]"), (200, b"{}"), (200, b'{"id_token": 7}'), (200, b'{"id_token": "%s"}' % (b"x" * 20_000)),
    (500, b""), (302, b""), (400, b'{"error": "\\u001b[2J"}'), (200, b"x" * 300_000),
])
async def test_a_provider_that_answers_something_else(
    provider: Provider, door: LogInDoor, given: tuple[int, bytes],
) -> None:
    provider.token_answer = given
    words = "does not answer" if len(given[1]) > 99_999 else "did not complete"
    await refused(door, await door.browser.log_in(), 503, words)


@pytest.mark.parametrize("discovery", [
    {"issuer": "https://evil.example"}, {"token_endpoint": "http://id.example/token"}, {"token_endpoint": "file:///etc/passwd"},
    {"authorization_endpoint": "javascript:alert(1)"}, {"authorization_endpoint": None}, {"token_endpoint": "http://[::1/"},
    {"more": "x" * 300_000},
])
async def test_a_discovery_document_that_cannot_be_followed(
    provider: Provider, door: LogInDoor, discovery: dict[str, object],
) -> None:
    provider.discovery = discovery
    await refused(door, await door.browser.get("/ui/login/oidc"), 503, "cannot be reached from this gateway now", taken=False)


async def test_discovery_is_asked_once_in_a_while_whatever_comes_of_it(provider: Provider, door: LogInDoor) -> None:
    door.clock.stands_at_s = door.clock()
    for number, discovery in enumerate(({"issuer": "https://evil.example"}, {}, {"issuer": "https://evil.example"}), 1):
        provider.discovery = discovery
        for _ in range(3):
            await door.browser.get("/ui/login/oidc")
        assert provider.asked.count(DISCOVERY) == number
        assert ("evil.example" in door.log_in.fault) is bool(discovery)
        door.clock.stands_at_s += ASKED_S


async def test_nobody_is_sent_to_a_provider_that_went_down_since(tmp_path: Path) -> None:
    with running_provider() as provider:
        opened = log_in_door(provider, tmp_path)
        door = await opened.__aenter__()
        await door.browser.begin()
    try:
        door.clock.ahead_s += ASKED_S
        answer = await door.browser.get("/ui/login/oidc?next=/ui/tables")
        await refused(door, answer, 503, "cannot be reached from this gateway now", taken=False)
    finally:
        await opened.__aexit__(None, None, None)


async def test_all_who_wait_for_a_provider_that_hangs_share_its_silence(provider: Provider) -> None:
    asked, clock = list[str](), Clock(stands_at_s=1000.0)

    async def hang(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        clock.stands_at_s = 1000.0 + ASKED_S  # time goes by while it is asked, and at no other moment
        await asyncio.Event().wait()
        raise AssertionError

    settings = replace(oidc_settings(provider), fetch_deadline_s=0.1)
    assert settings.login is not None
    one = room.Provider(settings, settings.login, clock, httpx.MockTransport(hang))
    found = await asyncio.gather(*(one.endpoints() for _ in range(4)), return_exceptions=True)
    await one.close()
    assert [type(each) for each in found] == [Unavailable] * 4
    assert asked == [DISCOVERY]


async def test_a_log_in_that_was_begun_needs_no_discovery(provider: Provider, door: LogInDoor) -> None:
    asked = await door.browser.begin()
    provider.discovery = {"issuer": "https://evil.example"}
    door.clock.ahead_s += ASKED_S
    async with door.another_browser() as other:
        assert (await other.get("/ui/login/oidc")).status_code == 503
    assert (await door.browser.get(door.browser.sent_back(asked, "ann"))).status_code == 200


async def test_a_provider_that_is_back_is_called_down_no_longer(provider: Provider, door: LogInDoor) -> None:
    provider.discovery = {"issuer": "https://evil.example"}
    await door.browser.get("/ui/login/oidc")
    provider.discovery = {}
    await door.gate.refresh()
    assert door.log_in.fault, "it was asked a moment ago"
    door.clock.ahead_s += ASKED_S
    await door.gate.refresh()
    assert not door.log_in.fault
    asked = provider.asked.count(DISCOVERY)
    door.clock.ahead_s += ASKED_S
    await door.gate.refresh()
    assert provider.asked.count(DISCOVERY) == asked, "a provider that is well is asked by log-ins alone"


# ---- other set-ups
@pytest.mark.parametrize("how", ["public", "secret in the form", "explicit endpoints"])
async def test_other_clients_and_providers(provider: Provider, tmp_path: Path, how: str) -> None:
    login: dict[str, object] = {}
    if how == "public":
        provider.secret, login = "", {"client_secret": ""}
    elif how == "secret in the form":
        provider.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"]}
    else:
        login = {"authorization_url": f"{provider.url}/authorize", "token_url": f"{provider.url}/token"}
    async with log_in_door(provider, tmp_path, oidc_settings(provider, **login)) as door:
        assert (await door.browser.log_in()).status_code == 200
        assert await is_in(door)
    assert (DISCOVERY in provider.asked) is (how != "explicit endpoints")
