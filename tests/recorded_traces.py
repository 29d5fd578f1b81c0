"""The recording twin of the tracer: it keeps every span in memory, with ids that count up.

It samples whatever it is asked about, so that a test sees all spans of what it does.
"""

from __future__ import annotations

import hashlib
from itertools import count

from storage.tracing import Attribute, Span, parsed


class RecordedSpan:
    def __init__(self, tracer: RecordedTraces, name: str, trace: int, parent: int, attributes: dict[str, Attribute],
                 tracestate: str = "") -> None:
        self.tracestate = tracestate
        self.tracer, self.name, self.trace, self.parent = tracer, name, trace, parent
        self.number = next(tracer.numbers)
        self.attributes = dict(attributes)
        self.is_over, self.error = False, ""
        tracer.spans.append(self)

    @property
    def trace_id(self) -> str:
        return f"{self.trace:032x}"

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace:032x}-{self.number:016x}-01"

    def child(self, name: str, **attributes: Attribute) -> Span:
        return RecordedSpan(self.tracer, name, self.trace, self.number, attributes, self.tracestate)

    def end(self, error: str = "", **attributes: Attribute) -> None:
        if not self.is_over:
            self.is_over, self.error = True, error
            self.attributes |= attributes


class RecordedTraces:
    """`spans` in the order in which they began."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self.numbers = count(1)

    def received(self, name: str, traceparent: str, tracestate: str = "", **attributes: Attribute) -> Span | None:
        parent = parsed(traceparent)
        if parent is None or not parent.is_sampled:
            return None
        return RecordedSpan(self, name, parent.trace, parent.span, attributes, tracestate)

    def continued(self, name: str, context: str, **attributes: Attribute) -> Span | None:
        traceparent, _, tracestate = context.partition(" ")
        return self.received(name, traceparent, tracestate, **attributes)

    def sampled(self, name: str, **attributes: Attribute) -> Span | None:
        return RecordedSpan(self, name, next(self.numbers), 0, attributes)

    def whole(self, name: str, whose: str, **attributes: Attribute) -> Span | None:
        return RecordedSpan(self, name, int(hashlib.sha256(whose.encode()).hexdigest()[:32], 16), 0, attributes)

    def named(self, name: str) -> list[RecordedSpan]:
        return [span for span in self.spans if span.name == name]
