"""A receiver of traces: a small HTTP server that takes OTLP as the real ones do, decodes it, and keeps the spans.

It can be told to refuse, or to hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Received:
    """One span. `site`: of the process that sent it."""

    trace: str
    span: str
    parent: str
    name: str
    site: str
    attributes: dict[str, Any]
    error: str
    begun_ns: int
    ended_ns: int
    state: str


class Receiver:
    """`status`: of its answers. `hold`: it does not answer until this is set."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Received] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.hold = threading.Event()
        self.hold.set()
        self._came = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self.bodies.append(body)
            for each in request.resource_spans:
                about = _plain(each.resource.attributes)
                self.spans += [_received(span, about["twinlog.site"]) for scope in each.scope_spans for span in scope.spans]
            self._came.notify_all()

    def until(self, holds: Callable[[list[Received]], bool]) -> list[Received]:
        """Returns the spans once this holds of them. Blocks."""
        with self._came:
            came = self._came.wait_for(lambda: holds(self.spans), DEADLINE_S)
            assert came, [(span.site, span.name, span.trace) for span in self.spans]
            return list(self.spans)


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}


def _received(span: Any, site: str) -> Received:
    return Received(
        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name, site, _plain(span.attributes),
        span.status.message, span.start_time_unix_nano, span.end_time_unix_nano, span.trace_state,
    )


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.hold.wait(DEADLINE_S)
            if found.status == 200:
                found.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(found.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Receiver(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def shown(spans: list[Received], trace: str) -> str:
    """The spans of a trace as a tree, a line each: how docs/traces.md shows one."""
    own = sorted((span for span in spans if span.trace == trace), key=lambda span: span.begun_ns)
    known, begun_ns = {span.span for span in own}, own[0].begun_ns
    lines: list[str] = []

    def add(parent: str, depth: int) -> None:
        for span in own:
            if span.parent == parent or (depth == 0 and span.parent not in known):
                at_ms, took_ms = (span.begun_ns - begun_ns) / 1e6, (span.ended_ns - span.begun_ns) / 1e6
                failed = f"  {span.error}" if span.error else ""
                lines.append(f"{at_ms:9.2f} ms  {took_ms:8.2f} ms  {span.site}  {'  ' * depth}{span.name}{failed}")
                add(span.span, depth + 1)

    add("", 0)
    return "\n".join(lines)
