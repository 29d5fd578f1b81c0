"""A page that arrives in pieces, from a busy gateway or over a slow line, moves nothing that it shows already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
from playwright.sync_api import Page, expect

from bench.pair import Pair
from tests.gateway.ui.page_rig import WATCH_MOVES, active_url

pytestmark = [pytest.mark.pair, pytest.mark.long]
VIEWS = ("", "/change?kind=switchover", "/history", "/tables", "/audits", "/log")
PIECES = 12


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("page") / "demo") as pair:
        yield pair


@contextmanager
def slow_line(base: str) -> Iterator[str]:
    """Yields an address that answers as the gateway at `base` does, and sends each page in pieces, with time to show each."""

    class Passing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = httpx.get(base + self.path, trust_env=False, timeout=30)
            body, kind = answer.content, answer.headers["content-type"]
            size = len(body) // PIECES if kind.startswith("text/html") else len(body)
            self.send_response(answer.status_code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            for start in range(0, len(body), size):
                self.wfile.write(body[start:start + size])
                time.sleep(0.05)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Passing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_that_arrives_in_pieces_moves_nothing(live: Pair, page_at: Callable[..., Page]) -> None:
    moves = {}
    with slow_line(active_url(live)) as url:
        for width in (320, 1440):
            page = page_at(width)
            page.add_init_script(f"({WATCH_MOVES})()")
            page.route("**/page*.js", lambda route: route.abort())  # nothing but the page itself arrives
            for view in VIEWS:
                page.goto(f"{url}/ui{view}")
                expect(page.locator("footer")).to_be_visible()
                page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                if found := page.evaluate("window.moves"):
                    moves[view, width] = found
    assert moves == {}
