"""A real small pair to be asked: the product's site on the simulator's ports, with its own app and gate, called by ASGI.

What always holds: no socket, thread or real clock is involved, so that a seed gives the same answers; each pair has tables with
rows, a barrier, a finished dry run and a receipt, whose names `known` has, and an audit trail.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from chaos.fuzz.groups.rows import TABLE
from chaos.simulate.plan import SeedPlan
from chaos.simulate.run import quiet
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.world import World, until
from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.access.token_file import TokenFile
from gateway.access.tokens import TokenList, with_token, write_tokens
from gateway.http.app import DoorApp, build_app
from gateway.service.http_settings import HttpSettings
from gateway.trail.trail import Trail

T = TypeVar("T")
STEPS_MAX = 400_000
START_S = 60.0
ANSWER_S = 8.0  # a stream of events never ends
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
GRANTS: dict[str, list[str]] = {
    "nothing": [],
    "reader": ["reader:*"],
    "writer": ["writer:*"],
    "admin": ["admin:*"],
    "operator": ["operator"],
    "auditor": ["auditor"],
    "metrics": ["metrics"],
    "elsewhere": ["reader:orders", "writer:orders", "admin:orders"],
    "all": ["reader:*", "writer:*", "admin:*", "operator", "auditor", "metrics"],
}
CALLERS = ("open", "nobody", "wrong", *GRANTS)  # open: at a site without [access]


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str  # as in the request line, with its query
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Answered:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    broke: str = ""  # the application ended with an error, or without an answer


def write_token_file(path: Path) -> None:
    """The token of each caller is twinlog_NAME."""
    tokens = TokenList()
    for name, grants in GRANTS.items():
        tokens = with_token(tokens, name, f"twinlog_{name}", grants, NOW, None)
    path.write_bytes(write_tokens(tokens))
    path.chmod(0o600)


class _Loop(VirtualLoop):
    """The virtual loop, with what the library of streamed answers asks for, and with threads that do their work at once."""

    def get_task_factory(self) -> None:
        return None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class Pair:
    """Two sites; requests reach a, the active. `internal`: what the product logged with a traceback of an error that
    it does not know. Use it as a context."""

    def __init__(self, seed: int, folder: Path) -> None:
        """`folder` has the file of tokens."""
        self.loop = _Loop()  # type: ignore[abstract]  # what is not there nobody may call
        self.world = World(SeedPlan(seed, "registers", 0, 0), self.loop)
        self.known: dict[str, list[str]] = {}
        self.internal: list[str] = []
        self._folder = folder
        self._quiet = quiet(self.internal)

    def __enter__(self) -> Pair:
        self._quiet.__enter__()
        self._doors: dict[str, DoorApp] = self.loop.run(self._started(), steps_max=STEPS_MAX)
        self.internal.clear()  # of the start: one site looks for the other before it listens
        return self

    def __exit__(self, *raised: object) -> None:
        self.world.end()
        self.loop.let_go()
        gc.collect()  # what is left of streams complains here, and not later
        self._quiet.__exit__(None, None, None)

    @property
    def is_serving(self) -> bool:
        life = self.world.alive("a")
        return life is not None and life.site is not None and life.site.role in ("ACTIVE", "DOWNGRADE_ACTIVE")

    def door(self, name: str) -> DoorApp:
        """open (a site without [access]), guarded, or limited."""
        return self._doors[name]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """`work` to its end, in the process of site a."""
        return self.loop.run(self._within(work), steps_max=STEPS_MAX)

    async def _within(self, work: Coroutine[Any, Any, T]) -> T:
        found: T = await self.world.lives["a"].process.spawn(work)
        return found

    def document(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self._doors["open"].plain.openapi()

    def ask(self, caller: str, asked: Asked) -> Answered:
        """Answers as `caller`, one of CALLERS, or "limited": all grants, and one request a second."""
        return self.loop.run(self._ask(caller, asked), steps_max=STEPS_MAX)

    # ---- the start
    async def _started(self) -> dict[str, DoorApp]:
        for site in ("a", "b"):
            self.world.boot(site)
        if not await until(lambda: self.is_serving and self._standby_follows(), START_S):
            raise RuntimeError(f"the pair did not start in {START_S:g} virtual seconds")
        life = self.world.lives["a"]
        self._doors = await life.process.spawn(self._open_doors())
        await self._filled()
        return self._doors

    def _standby_follows(self) -> bool:
        other = self.world.alive("b")
        return other is not None and other.site is not None and other.site.role == "STANDBY" and not other.site.sink.needs_base

    async def _open_doors(self) -> dict[str, DoorApp]:
        life, here = self.world.lives["a"], self.world.machines["a"]
        assert life.service is not None
        assert life.site is not None
        trail = Trail(life.site.parts.files, here.clock, pair="sim", site="a")
        await trail.open()
        tokens = TokenFile(self._folder / "tokens.json", NOW.timestamp)
        now_s = here.clock.monotonic_s
        limits = {"open": None, "guarded": LimitSettings(), "limited": LimitSettings(requests_per_s=1.0)}
        return {
            name: build_app(
                life.service,
                HttpSettings(advertised_url="http://a", request_deadline_s=3.0),
                now_s=now_s,
                new_id=lambda: "incident-1",
                gate=None if limit is None else Gate([tokens], limit, wall_s=NOW.timestamp, now_s=now_s),
                trail=trail,
            )
            for name, limit in limits.items()
        }

    async def _filled(self) -> None:
        """Tables with rows, a barrier and a dry run, all by the API."""

        async def sent(method: str, path: str, body: object) -> Any:
            content = msgspec.json.encode(body)
            answered = await self._ask("open", Asked(method, path, {"content-type": "application/json", "host": "a"}, content))
            if answered.status not in (200, 201, 202):
                raise RuntimeError(f"{method} {path}: {answered}")
            return msgspec.json.decode(answered.body)

        await sent("POST", "/v1/tables", {**TABLE, "history_s": 3600})
        await sent("POST", "/v1/tables", {**TABLE, "name": "orders"})
        row = {"delay": 1.5, "note": "é", "more": {"a": [1, None]}, "big": 1 << 62, "price": "12.50"}
        for number in range(12):
            written = await sent("PUT", f"/v1/tables/flights/rows/UA,{number}", row)
        barrier = await sent("POST", "/v1/barriers", {"name": "audit-1"})
        dry_run = await sent("POST", "/v1/operations", {"kind": "degrade", "options": {}, "dry_run": True})
        at = "2014-05-13T10:00:00Z"  # before the simulated clock begins
        run = {"id": "1-compare", "job": "compare", "started_at": at, "finished_at": at, "outcome": "good"}
        audit = await sent("POST", "/v1/audits", run)
        self.known = {
            "table": ["flights", "orders"],
            "key": ["UA,1", "UA,2", "DL,1", "=VUE,3"],
            "receipt": [written["receipt"]],
            "operation_id": [dry_run["id"]],
            "name": [barrier["name"]],
            "audit": [audit["id"], "2-compare"],
            "method": [
                "follow",
                "replicate",
                "base",
                "base_done",
                "status",
                "facts",
                "epochs",
                "rows",
                "prepare",
                "drain",
                "merge",
            ],
        }

    # ---- a request
    async def _ask(self, caller: str, asked: Asked) -> Answered:
        life = self.world.lives["a"]
        headers = dict(asked.headers)
        if caller == "wrong":
            headers["authorization"] = "Bearer twinlog_nobody"
        elif caller not in ("open", "nobody"):
            headers["authorization"] = f"Bearer twinlog_{'all' if caller == 'limited' else caller}"
        door = self._doors[caller if caller in ("open", "limited") else "guarded"]
        found: Answered = await life.process.spawn(_answered(door, asked, headers))
        return found


async def _answered(door: DoorApp, asked: Asked, headers: Mapping[str, str]) -> Answered:
    found, bodies, done = Answered(), [asked.body], asyncio.Event()

    async def receive() -> dict[str, Any]:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            found.body += message.get("body", b"")

    path, _, query = asked.path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8401),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    try:
        async with asyncio.timeout(ANSWER_S):
            await door(scope, receive, send)
    except TimeoutError:
        if not dict(found.headers).get("content-type", "").startswith("text/event-stream"):
            found.broke = f"no answer within {ANSWER_S:g} s"
    except Exception as error:
        found.broke = f"the application ended with {error!r}"
    return found
