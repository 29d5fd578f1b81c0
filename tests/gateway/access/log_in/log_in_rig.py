"""A door whose page logs people in by the provider's twin, and a browser that goes the whole way, or stops on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.access.log_in.log_in import LogIn
from gateway.access.oidc import Oidc
from gateway.access.settings import CALLBACK, LogInSettings, OidcSettings
from gateway.access.token_file import TokenFile
from gateway.trail.entry import TrailEntry
from gateway.trail.keeping import AccessTrail
from gateway.trail.trail import Trail
from storage.clock import SystemClock
from tests.gateway.access.log_in.provider_twin import AUDIENCE, CLIENT, SECRET, Provider
from tests.gateway.access.rig import token_file
from tests.gateway.door_client import served_door
from tests.gateway.trail.trail_rig import entries, opened, stored, until
from tests.gateway.ui.ui_rig import text_of
from tests.storage.disk.memory_files import MemoryFiles

HTML = {"accept": "text/html"}
GRANTS = {"dba": "admin:* reader:*", "ops": "operator"}
REDIRECT = f"https://gateway-a.example{CALLBACK}"  # the client of a test asks the door itself for this path


@dataclass
class Clock:
    """The time of this machine, by which the library judges tokens, as far ahead of it as a test says; or it stands."""

    ahead_s: float = 0.0
    stands_at_s: float | None = None

    def __call__(self) -> float:
        return time.time() + self.ahead_s if self.stands_at_s is None else self.stands_at_s


@dataclass
class Browser:
    """One browser at the door, whose person takes a second for each log-in. `seen`: each page that it was shown."""

    http: httpx.AsyncClient
    provider: Provider
    clock: Clock
    seen: list[str] = field(default_factory=list)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        answer = await self.http.get(path, headers={**HTML, **headers})
        self.seen.append(answer.text)
        return answer

    async def begin(self, next_path: str = "/ui") -> dict[str, str]:
        """Returns what the provider is asked."""
        self.clock.ahead_s += 1
        answer = await self.get(f"/ui/login/oidc?next={next_path}")
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"].startswith(f"{self.provider.url}/authorize?")
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    def sent_back(self, asked: dict[str, str], user: str) -> str:
        """Returns the path and query with which the provider sends the browser of `user` back."""
        parts = urlsplit(self.provider.consent(asked, user))
        return f"{parts.path}?{parts.query}"

    async def log_in(self, user: str = "ann", next_path: str = "/ui") -> httpx.Response:
        return await self.get(self.sent_back(await self.begin(next_path), user))


@dataclass
class LogInDoor:
    browser: Browser
    gate: Gate
    log_in: LogIn
    clock: Clock
    files: MemoryFiles
    trail: Trail
    url: str

    @contextlib.asynccontextmanager
    async def another_browser(self) -> AsyncIterator[Browser]:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as http:
            yield Browser(http, self.browser.provider, self.clock)

    async def lines(self, *events: str) -> list[TrailEntry]:
        await until(lambda: not self.trail._queue)
        return [entry for entry in entries(stored(self.files)) if entry.event in events]


def oidc_settings(provider: Provider, **login: object) -> OidcSettings:
    made = LogInSettings(client_id=CLIENT, client_secret=SECRET, redirect_url=REDIRECT)
    return OidcSettings(
        issuer=provider.url, audience=AUDIENCE, jwks_url=f"{provider.url}/keys", grants=GRANTS, fetch_deadline_s=20.0,
        login=replace(made, **login),  # type: ignore[arg-type]
    )


@contextlib.asynccontextmanager
async def log_in_door(provider: Provider, folder: Path, settings: OidcSettings | None = None) -> AsyncIterator[LogInDoor]:
    settings = settings or oidc_settings(provider)
    clock, files, path = Clock(), MemoryFiles(), folder / "tokens.json"
    token_file(path, {"reader": ["reader:*"]})
    oidc = Oidc(settings, clock)
    if settings.login is None:
        pytest.fail("these settings have no log-in")
    log_in = LogIn(
        settings, settings.login, oidc, wall_s=clock, now_s=clock, secret=lambda: token_urlsafe(32)
    )
    gate = Gate([TokenFile(path, clock), oidc, log_in], LimitSettings(), wall_s=clock, now_s=clock)
    try:
        async with opened(files) as trail, served_door(gate=gate, trail=trail) as door:
            AccessTrail(trail, SystemClock(), gate)
            yield LogInDoor(Browser(door.http, provider, clock), gate, log_in, clock, files, trail, str(door.http.base_url))
    finally:
        await gate.close()


def said(answer: httpx.Response) -> str:
    return text_of(answer.text)


async def is_in(door: LogInDoor) -> bool:
    return (await door.browser.get("/ui")).status_code == 200


async def refused(
    door: LogInDoor, answer: httpx.Response, status: int, words: str, why: str = "", *, taken: bool = True
) -> None:
    """The page says `words`, and has both log-ins on it; a log-in that was taken is gone, and no other one; the trail has
    `why`."""
    assert answer.status_code == status, answer.text
    assert words.lower() in said(answer).lower()
    assert 'href="/ui/login/oidc?next=' in answer.text
    assert 'name="token"' in answer.text
    assert ("_login=;" in answer.headers.get("set-cookie", "")) is taken
    assert not await is_in(door)
    if why:
        lines = [line for line in await door.lines("request.refused") if line.what.get("path") == "/ui/login/callback"]
        assert why in lines[-1].what["why"], lines
