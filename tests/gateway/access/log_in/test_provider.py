"""Providers that are away, slow, wrong or otherwise set up: what people read, and what is asked of the provider."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.access.log_in.provider import DISCOVERY, DISCOVERY_S, RETRY_S
from tests.gateway.access.log_in.log_in_rig import LogInDoor, is_in, log_in_door, oidc_settings, refused
from tests.gateway.access.log_in.provider_twin import Provider, running_provider


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
    settings = replace(oidc_settings(provider), fetch_deadline_s=0.3)
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


async def test_discovery_is_kept_and_asked_for_again_in_time(provider: Provider, door: LogInDoor) -> None:
    provider.discovery = {"issuer": "https://evil.example"}
    for _ in range(3):
        await door.browser.get("/ui/login/oidc")
    assert provider.asked.count(DISCOVERY) == 1, "a failure is no reason to ask without end"
    provider.discovery = {}
    door.clock.ahead_s += RETRY_S
    for _ in range(3):
        await door.browser.begin()
    assert provider.asked.count(DISCOVERY) == 2
    assert door.log_in.fault == ""
    provider.discovery = {"issuer": "https://evil.example"}
    door.clock.ahead_s += DISCOVERY_S
    await door.browser.begin()
    assert provider.asked.count(DISCOVERY) == 3
    assert "evil.example" in door.log_in.fault


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
