"""Two small gateways that know nothing but barriers and audits: what an audit asks of a real pair, with every fault at hand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from spark_jobs.job import SiteSource

CODES = {404: "not-found", 409: "conflict", 421: "not-active"}  # of the problems that are answered


class StubSite:
    """One of them. What a test may change stands in the attributes."""

    def __init__(self, name: str, pair: StubPair) -> None:
        self.name = name
        self.pair = pair
        self.says_site = name
        self.says_pair = "demo"
        self.asked_until_held = 0  # so many questions are answered with 404 before a barrier is there
        self.held_seq: int | None = None  # another one than the barrier's
        self.breaks_off_after: str | None = None  # a method after which the answer is lost
        self.garbage = False
        self.barriers: dict[str, dict[str, Any]] = {}
        self.released: list[str] = []
        self.audits: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.progress: list[dict[str, Any]] = []
        self.is_older = False  # of a release that knows neither
        self.refused = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, document = site.answer(self.command, self.path, json.loads(body) if body else {})
                if site.breaks_off_after == self.command:
                    self.close_connection = True
                    return
                if status in CODES:
                    document = {"type": f"urn:twinlog:problem:{CODES[status]}", **document}
                content = b"<html>" if site.garbage else b"" if status == 204 else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        pair = self.pair
        if path == "/v1/cluster":
            role = "ACTIVE" if pair.active == self.name else "STANDBY"
            active = {"site": pair.active, "epoch": pair.epoch}
            return 200, {"pair": self.says_pair, "site": self.says_site, "role": role, "active": active}
        if path == "/v1/barriers" and method == "POST":
            if pair.active != self.name:
                return 421, {"detail": f"site {self.name} is not active"}
            if pair.full:
                return 409, {"detail": "4 snapshots are kept already"}
            for site in pair.sites.values():
                site.barriers[body["name"]] = {
                    "name": body["name"], "epoch": pair.epoch, "seq": site.held_seq or pair.seq,
                    "taken_at": "2026-11-21T12:00:00Z", "engine": "rocksdb", "place": f"memory:{site.name}",
                }
            return 201, {"name": body["name"], "epoch": pair.epoch, "seq": pair.seq}
        if path == "/v1/audits":
            self.audits.append(body)
            return 201, {}
        name = path.rpartition("/")[2]
        if method == "PUT" and self.is_older:
            self.refused += 1
            return 404, {"detail": "there is no such path"}
        if method == "PUT":
            (self.reports if name == "report" else self.progress).append(body)
            return 204, {}
        if method == "DELETE":
            self.released.append(name)
            return (204, {}) if self.barriers.pop(name, None) else (404, {})
        if name not in self.barriers or self.asked_until_held > 0:
            self.asked_until_held -= 1
            pair.asked_too_early()
            return 404, {"detail": "no such barrier"}
        return 200, self.barriers[name]


class StubPair:
    """Sites a and b; a is active in epoch 3."""

    def __init__(self) -> None:
        self.active, self.epoch, self.seq, self.full = "a", 3, 1000, False
        self.moves = False  # the active moves as soon as somebody asks for a barrier that is not there
        self.sites = {name: StubSite(name, self) for name in ("a", "b")}

    @property
    def sources(self) -> dict[str, SiteSource]:
        return {name: SiteSource(name, site.url) for name, site in self.sites.items()}

    def asked_too_early(self) -> None:
        if self.moves:
            self.active, self.epoch = "b", self.epoch + 1

    @property
    def held(self) -> list[str]:
        return [name for site in self.sites.values() for name in site.barriers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for site in self.sites.values():
            site.close()
