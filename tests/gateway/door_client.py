"""A door with a client in front of it, and the table that the tests of the HTTP API use."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.access.gate import Gate
from gateway.http.app import DoorApp, build_app
from gateway.http.protocol import ConnectionLimits
from gateway.http.server import HttpServer, ServerSettings, serving
from gateway.service.http_settings import HttpSettings
from gateway.service.port import Configuration
from gateway.trail.trail import Trail
from storage.clock import SystemClock
from tests.gateway.data_over_bytes import with_data_over_bytes
from tests.gateway.dict_service import DictService
from tests.gateway.documented import async_read_hook, checked

FLIGHTS = {
    "name": "flights",
    "columns": [
        {"name": "carrier", "type": "string"}, {"name": "flight", "type": "int32"}, {"name": "at", "type": "timestamp"},
        {"name": "delay", "type": "float64"}, {"name": "raw", "type": "bytes"},
        {"name": "note", "type": "string", "nullable": False, "default": "none"}, {"name": "more", "type": "json"},
    ],
    "primary_key": ["carrier", "flight"],
    "history_s": 3600,
}
ROWS = "/v1/tables/flights/rows"
COMPARED = {"response": [async_read_hook]}  # what the hot path answers, too
EMPTY = {"at": None, "delay": None, "raw": None, "note": "none", "more": None}


@dataclass
class DoorClient:
    """`put` and `get` return the decoded answer and expect success; `http` is for everything else."""

    http: httpx.AsyncClient
    service: DictService
    app: DoorApp
    server: HttpServer | None = None

    async def put(self, key: str, row: dict[str, Any], **headers: str) -> dict[str, Any]:
        answer = await self.http.put(f"{ROWS}/{key}", json=row, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    async def get(self, key: str, query: str = "") -> dict[str, Any]:
        answer = await self.http.get(f"{ROWS}/{key}{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    @property
    def port(self) -> int:
        assert self.server is not None
        return self.server.port

    async def raw(self, data: bytes, *, end: bool = False) -> bytes:
        """Returns what a fresh connection answers to these bytes until it is closed. `end`: half-close after them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            if end:
                writer.write_eof()
            return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _prepared(
    config: HttpSettings | None, *, over_bytes: bool = False, gate: Gate | None = None, trail: Trail | None = None,
    configuration: Configuration | None = None,
) -> tuple[DictService, DoorApp]:
    service = DictService()
    await service.tables.create(FLIGHTS)
    ports = with_data_over_bytes(service.ports) if over_bytes else service.ports
    app = build_app(
        ports, config or HttpSettings(), now_s=time.perf_counter, new_id=lambda: "incident-1", gate=gate, trail=trail,
        configuration=configuration, clock=SystemClock(), secret=secrets.token_urlsafe,
    )
    app.plain = checked(app.plain)  # type: ignore[assignment]
    return service, app


@contextlib.asynccontextmanager
async def plain_door(config: HttpSettings | None = None) -> AsyncIterator[DoorClient]:
    """A door without a server, whose data crosses its ports as bytes."""
    service, app = await _prepared(config, over_bytes=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", event_hooks=COMPARED) as http:
        yield DoorClient(http, service, app)


@contextlib.asynccontextmanager
async def served_door(
    config: HttpSettings | None = None, limits: ConnectionLimits | None = None, graceful_shutdown_s: int = 1,
    keep_alive_s: int = 75, gate: Gate | None = None, trail: Trail | None = None,
    configuration: Configuration | None = None,
) -> AsyncIterator[DoorClient]:
    service, app = await _prepared(config, gate=gate, trail=trail, configuration=configuration)
    settings = ServerSettings(
        limits or ConnectionLimits(), keep_alive_s=keep_alive_s, graceful_shutdown_s=graceful_shutdown_s
    )
    async with (
        serving(app, "127.0.0.1", 0, settings) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, event_hooks=COMPARED) as http,
    ):
        yield DoorClient(http, service, app, server)


def problem(answer: httpx.Response, status: int, code: str, **members: Any) -> dict[str, Any]:
    """The problem document of `answer`, which must be of this status and type and have these members."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:twinlog:problem:{code}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert {name: document.get(name) for name in members} == members
    return document
