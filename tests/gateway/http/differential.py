"""A fuzzer that compares the hot path with the plain routes: `make fuzz`, or `python -m tests.gateway.http.differential`.

It draws conversations, each of some requests on one connection, and holds them with six doors that have the same history: hot
and plain, each with the bytes in one piece and cut at drawn places or at every byte; a hot one that gets each request once the
one before is answered; and one that gets each request in its plainest form, one after the other: with its length, without
`Upgrade`, extensions and trailers. All six must give the same
answers and keep the same rows, and what is broken gets one refusal, which is the last answer. In every other conversation the
doors have a gate, and the requests show tokens: right ones of many grants, one that comes and goes, and what is none. No socket
is involved, so that a piece is a piece and nothing depends on time. drawing.py draws.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import uvicorn
from uvicorn.server import ServerState

from chaos.fuzz.wire import Wire
from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.access.token_file import TokenFile
from gateway.access.tokens import TokenList, with_token, write_tokens
from gateway.http.app import build_app
from gateway.http.hot_path import hot_protocol
from gateway.http.places import Places
from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import FLIGHTS
from tests.gateway.http.drawing import Header, cut, draw_authorization, draw_request

Answered = tuple[int, tuple[Header, ...], bytes]
TURNS_MAX = 1_000_000
PACED = "hot one by one"
CHANGE_EVERY = 20  # conversations: then the file of tokens changes
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
SETTINGS = HttpSettings(allowed_hosts=("door.example",), cors_origins=("https://app.example",))


class Door:
    """A site's door over a service of its own, without a server; with a gate, if there is a file of tokens."""

    def __init__(self, *, hot: bool, limits: ConnectionLimits | None = None, tokens: Path | None = None) -> None:
        self.service, self._hot = DictService(), hot
        self.gate = None if tokens is None else Gate(
            [TokenFile(tokens, NOW.timestamp)], LimitSettings(), wall_s=NOW.timestamp, now_s=time.perf_counter, sleep=_at_once
        )
        self._limits = limits or ConnectionLimits()

    async def open(self) -> None:
        await self.service.tables.create(FLIGHTS)
        app = build_app(self.service.ports, SETTINGS, now_s=time.perf_counter, new_id=lambda: "incident-1", gate=self.gate)
        plain = type("Plain", (DoorProtocol,), {"limits": self._limits, "places": Places(100, 100)})
        kind = hot_protocol(app, self._limits) if self._hot else plain
        self._config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None, access_log=False)
        self._config.load()
        self._kind, self._state = kind, ServerState()

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Returns the requests under way."""
        return self._state.tasks

    def connect(self, wire: Wire) -> Any:
        """Returns the protocol of a fresh connection."""
        protocol = self._kind(self._config, self._state, {})
        protocol.connection_made(wire)
        return protocol

    async def converse(self, pieces: Iterator[bytes], lost: Exception | None = None, *, paced: bool = False) -> bytes:
        """Returns all that a fresh connection answers to `pieces`; it is half-closed behind them, and lost with `lost`.
        `paced`: a piece is sent when what came before it is answered, as by most clients: only then every request of the hot
        path's form takes that path."""
        wire = Wire()
        protocol = self.connect(wire)
        for piece in pieces:
            await self._settle(protocol, wire, reads=not paced)
            if protocol.transport.is_closing():
                break
            protocol.data_received(piece)
        await self._settle(protocol, wire, reads=False)
        if not protocol.transport.is_closing():
            protocol.eof_received()
        wire.closed = True
        protocol.connection_lost(lost)
        await self._settle(protocol, wire, reads=False)
        return bytes(wire.written)

    async def _settle(self, protocol: Any, wire: Wire, *, reads: bool) -> None:
        """Waits while the connection is not read, or until nothing is under way."""
        for _ in range(TURNS_MAX):
            under_way = self._state.tasks and not _is_waiting_for_more(protocol)
            if not (wire.paused if reads else under_way) or protocol.transport.is_closing():
                return
            await asyncio.sleep(0)  # each turn is looked at, also while a thread expands a body
        raise AssertionError("the connection does not come to rest")

    async def rows(self) -> list[Any]:
        table = self.service.tables.get("flights")
        found = await self.service.engine.scan(table.id, None, None, reverse=False, limit=1000)
        return [(row.key, row.value, row.version) for row in found]


def _is_waiting_for_more(protocol: Any) -> bool:
    """The only request under way waits for the rest of its body."""
    cycle = protocol.cycle
    if not protocol._arriving or protocol.pipeline:
        return False
    return cycle is None or cycle.response_complete or (not protocol._in_head and getattr(cycle, "more_body", True))


def answers(data: bytes, methods: list[bytes]) -> list[Answered]:
    """Returns the answers in `data`, to requests of these methods, without interim ones, dates and the way they are framed."""
    found: list[Answered] = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        status = int(line.split(b" ")[1])
        if status == 100:
            continue
        headers = [(name.lower(), value) for name, _, value in (one.partition(b": ") for one in fields)]
        named = dict(headers)
        method = methods[len(found)] if len(found) < len(methods) else b""
        body = b""
        if named.get(b"transfer-encoding") == b"chunked":
            while (size := int(data.partition(b"\r\n")[0], 16)) > 0:
                start = data.index(b"\r\n") + 2
                body, data = body + data[start : start + size], data[start + size + 2 :]
            data = data[data.index(b"\r\n") + 4 :]
        elif method != b"HEAD" or data[:9] not in (b"HTTP/1.1 ", b""):  # a refusal has its body, whatever the method
            size = int(named.get(b"content-length", b"0"))
            body, data = data[:size], data[size:]
        kept = [header for header in headers if header[0] not in (b"date", b"transfer-encoding", b"content-length")]
        found.append((status, tuple(sorted(kept)), body))
    return found


class Callers:
    """Tokens of different grants in one file, which all doors with a gate read. One of them comes and goes."""

    GRANTS: ClassVar[dict[str, list[str]]] = {
        "both": ["reader:*", "writer:*"], "reader": ["reader:fl*"], "writer": ["writer:flights"], "nothing": [],
        "elsewhere": ["reader:orders", "writer:orders"], "admin": ["admin:*", "operator"],
        "revocable": ["reader:*", "writer:*"],
    }

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.json"
        self.tokens = {name: f"twinlog_{name}" for name in (*self.GRANTS, "expired")}
        self._has_all = False

    def change(self) -> None:
        """Revokes the token that comes and goes, or makes it again."""
        self._has_all = not self._has_all
        found = with_token(TokenList(), "expired", "twinlog_expired", ["reader:*"], NOW - timedelta(2), NOW - timedelta(1))
        for name, grants in self.GRANTS.items():
            if self._has_all or name != "revocable":
                found = with_token(found, name, self.tokens[name], grants, NOW, None)
        self.path.write_bytes(write_tokens(found))
        self.path.chmod(0o600)


@dataclass
class Fuzzer:
    """Compares conversation after conversation; in every other one the doors have a gate, and requests show who asks.
    `requests`, `refused`: how many requests were sent, and answered with 4xx; `unknown`: with 401. `folder` is for the file of
    tokens."""

    seed: int
    folder: Path
    requests: int = 0
    refused: int = 0
    unknown: int = 0

    async def open(self) -> None:
        self._callers = Callers(self.folder)
        self._callers.change()
        self._open_doors, self._guarded_doors = [
            {
                name: Door(hot=name.startswith("hot"), tokens=tokens)
                for name in ("hot", "hot in pieces", PACED, "plain", "plain in pieces", "plainest")
            } for tokens in (None, self._callers.path)
        ]
        for door in (*self._open_doors.values(), *self._guarded_doors.values()):
            await door.open()

    async def _change_callers(self) -> None:
        self._callers.change()
        for door in self._guarded_doors.values():
            assert door.gate is not None
            await door.gate.refresh()

    async def converse(self, number: int) -> None:
        """Holds one conversation with every door. Raises AssertionError that shows it, and where they differ."""
        rng = random.Random(f"{self.seed} {number}")
        count = rng.choice((1, 1, 2, 3, 6, 30))
        drawn = [draw_request(rng, last=place == count - 1) for place in range(count)]
        is_guarded = bool(number % 2)
        doors = self._guarded_doors if is_guarded else self._open_doors
        if number % CHANGE_EVERY == 0:
            await self._change_callers()
        for request in drawn if is_guarded else ():
            request.headers += draw_authorization(rng, self._callers.tokens)
        methods = [request.method for request in drawn]
        whole = b"".join(request.drawn() for request in drawn)
        pieces = cut(rng, whole)
        sent = {"hot": [whole], "plain": [whole], "hot in pieces": pieces, "plain in pieces": pieces}
        sent[PACED] = [request.drawn() for request in drawn]
        got = {
            name: answers(await doors[name].converse(iter(data), paced=name == PACED), methods) for name, data in sent.items()
        }
        plainest = [request.plainest() for request in drawn if not request.broken]
        got["plainest"] = answers(await doors["plainest"].converse(iter(plainest)), methods)
        self.requests += count
        self.refused += sum(status >= 400 for status, _, _ in got["hot"])
        self.unknown += sum(status == 401 for status, _, _ in got["hot"])
        if drawn[-1].broken:
            refusals = got["hot"][len(got["plainest"]) :]
            if len(got["plainest"]) == count - 1 and not any(is_last(one) for one in got["plainest"][-1:]):
                shown = f"seed {self.seed}, conversation {number}: {refusals} to {drawn[-1].broken[:3000]!r}"
                assert len(refusals) == 1, shown
                assert refusals[0][0] >= 400, shown
                assert is_last(refusals[0]), shown
            got["plainest"] += refusals
        for name, found in got.items():
            if found != got["hot"]:
                raise AssertionError(_difference(self.seed, number, whole, got["hot"], name, found))
        rows = [await door.rows() for door in doors.values()]
        if any(one != rows[0] for one in rows):
            raise AssertionError(f"seed {self.seed}, conversation {number}: other rows behind {whole[:3000]!r}")


def is_last(answer: Answered) -> bool:
    return (b"connection", b"close") in answer[1]


def _difference(seed: int, number: int, sent: bytes, hot: list[Answered], name: str, other: list[Answered]) -> str:
    pairs = enumerate(zip(hot, other, strict=False))
    place = next((at for at, (one, two) in pairs if one != two), min(len(hot), len(other)))
    shown = [repr(found[place : place + 1]) for found in (hot, other)]
    return (
        f"seed {seed}, conversation {number}: answer {place} of hot ({len(hot)} answers) and {name} ({len(other)}) differ\n"
        f"hot: {shown[0]}\n{name}: {shown[1]}\nsent: {sent[:6000]!r}"
    )


async def run(requests: int, seed: int) -> Fuzzer:
    """Compares until so many requests were sent. Raises AssertionError."""
    with TemporaryDirectory(prefix="twinlog-fuzz-") as folder:
        fuzzer = Fuzzer(seed, Path(folder))
        await fuzzer.open()
        number = 0
        while fuzzer.requests < requests:
            await fuzzer.converse(number)
            number += 1
    return fuzzer


async def _at_once(seconds: float) -> None:
    """In the place of a sleep."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    chosen = parser.parse_args()
    try:
        fuzzer = asyncio.run(run(chosen.requests, chosen.seed))
    except AssertionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    counts = f"{fuzzer.requests:,} requests, {fuzzer.refused:,} refused, seed {chosen.seed}"
    sys.stdout.write(f"{counts}: hot and plain answer the same\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
