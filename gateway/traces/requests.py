"""The spans of requests: which of them have one, and what it says.

What always holds: a request that brings a `traceparent` has a span if its caller's is sampled, and none if it is not; one
without, or with one that is no traceparent, may be drawn where it is about tables: probes, scrapes and pages would be nearly
all that is seen. A span says the route and never the path, for a path holds a key.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.tracing import Span, Tracer, parsed

HOT_ROUTE = "/v1/tables/{table}/rows/{key}"
_DRAWN = "/v1/tables/"


class RequestTraces:
    """Decides for both ways in, where traces are on, which requests have a span."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begun(self, method: str, route: str, headers: Iterable[tuple[bytes, bytes]]) -> Span | None:
        """The span of a request that begins. None: it has none."""
        given = [value for name, value in headers if name == b"traceparent"]
        parent = parsed(given[0].decode("latin-1")) if len(given) == 1 else None
        name = f"{method} {route}"
        if parent is not None:
            return self._tracer.received(name, parent.text, http_method=method, http_route=route) if parent.is_sampled else None
        return self._tracer.sampled(name, http_method=method, http_route=route) if route.startswith(_DRAWN) else None


def over(span: Span, status: int) -> None:
    """Ends the span of a request: what is the site's fault is an error, as OpenTelemetry has it for servers."""
    span.end(str(status) if status >= 500 else "", http_status=status)
