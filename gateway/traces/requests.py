"""The spans of requests: which of them have one, and what it says.

What always holds: a request that brings a `traceparent` has a span if its caller's is sampled, and none if it is not; one
without, or with one that is no traceparent, may be drawn where it is about tables: probes, scrapes and pages would be nearly
all that is seen. A `tracestate` is taken with its traceparent alone, within W3C's bounds. A span says the route and never the
path, for a path holds a key.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.tracing import Span, Tracer, parsed

HOT_ROUTE = "/v1/tables/{table}/rows/{key}"
_DRAWN = "/v1/tables/"
STATE_CHARS_MAX, STATE_MEMBERS_MAX, STATE_LONG_CHARS = 512, 32, 128  # W3C Trace Context, 3.3.1.5


class RequestTraces:
    """Decides for both ways in, where traces are on, which requests have a span."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begun(self, method: str, route: str, headers: Sequence[tuple[bytes, bytes]]) -> Span | None:
        """The span of a request that begins. None: it has none."""
        given = [value for name, value in headers if name == b"traceparent"]
        parent = parsed(given[0].decode("latin-1")) if len(given) == 1 else None
        name = f"{method} {route}"
        if parent is not None:
            if not parent.is_sampled:
                return None
            state = bounded_state([value.decode("latin-1") for header, value in headers if header == b"tracestate"])
            return self._tracer.received(name, parent.text, state, http_method=method, http_route=route)
        return self._tracer.sampled(name, http_method=method, http_route=route) if route.startswith(_DRAWN) else None


def bounded_state(headers: Sequence[str]) -> str:
    """The `tracestate` of a request in one line, cut as W3C says: whole members go, those of more than 128 characters first,
    then from the end. Returns "" for more members than there may be: such a one is none."""
    members = [each for each in (member.strip(" \t") for header in headers for member in header.split(",")) if each]
    if len(members) > STATE_MEMBERS_MAX:
        return ""
    while len(state := ",".join(members)) > STATE_CHARS_MAX:
        long = [number for number, member in enumerate(members) if len(member) > STATE_LONG_CHARS]
        del members[long[-1] if long else -1]
    return state


def over(span: Span, status: int) -> None:
    """Ends the span of a request: what is the site's fault is an error, as OpenTelemetry has it for servers."""
    span.end(str(status) if status >= 500 else "", http_status=status)
