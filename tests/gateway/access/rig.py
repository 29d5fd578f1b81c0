"""A door with a gate: one token for each role, and a client that asks as any of them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gateway.access.authenticator import Authenticator
from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.access.token_file import TokenFile, changing, new_token
from gateway.access.tokens import with_token
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import DoorClient, served_door

GRANTS = {
    "reader": ["reader:*"], "writer": ["writer:*"], "admin": ["admin:*"], "operator": ["operator"], "auditor": ["auditor"],
    "metrics": ["metrics"], "both": ["reader:*", "writer:*"],
    "nothing": [], "elsewhere": ["reader:orders", "writer:orders", "admin:orders"],
}
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


@dataclass
class Clock:
    """The wall clock and the monotonic one, both as tests set them."""

    s: float = field(default_factory=NOW.timestamp)

    def __call__(self) -> float:
        return self.s


@dataclass
class GuardedDoor(DoorClient):
    gate: Gate | None = None
    tokens: dict[str, str] = field(default_factory=dict)
    file: Path = Path()
    clock: Clock = field(default_factory=Clock)

    def as_(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}


def token_file(path: Path, grants: dict[str, list[str]] = GRANTS, expires_at: datetime | None = None) -> dict[str, str]:
    """Name -> token, of those that now stand in the file beside what stood there."""
    made = {}
    for name, texts in grants.items():
        made[name] = new_token()
        with changing(path) as (tokens, store):
            store(with_token(tokens, name, made[name], texts, NOW, expires_at))
    return made


@contextlib.asynccontextmanager
async def guarded_door(
    limits: LimitSettings | None = None, more: Sequence[Authenticator] = (), *, plain_peer: bool = False,
    config: HttpSettings | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[GuardedDoor]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.json"
        tokens = token_file(path)
        gate = Gate(
            [TokenFile(path, clock), *more], limits or LimitSettings(), wall_s=clock, now_s=clock, plain_peer=plain_peer,
            sleep=sleep,
        )
        async with served_door(config, gate=gate) as door:
            yield GuardedDoor(door.http, door.service, door.app, door.server, gate, tokens, path, clock)
