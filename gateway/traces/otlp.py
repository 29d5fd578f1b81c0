"""The real tracer: OpenTelemetry's SDK, and its exporter of OTLP over HTTP with a thread of its own.

What always holds: a span that ends is put into a bounded queue, or dropped and counted; whatever the receiver does, nobody
waits for it, and nothing is raised: what it does not take is counted, too; the end of the process waits for it at most
`SHUTDOWN_DEADLINE_S`. Sampling is decided here, before OpenTelemetry makes anything, so that a call that is not sampled costs a
random number. This is the only module that imports OpenTelemetry, and app.py imports it only where [traces] is given.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan

from gateway.logs import BoundedWarnings
from gateway.metrics.catalogue import Figures
from gateway.traces.settings import TraceSettings
from storage.tracing import Attribute, Span, parsed
from twinlog.errors import words

QUEUE_SPANS_MAX = 8192  # ended and not yet taken by the receiver
BATCH_SPANS_MAX = 512
EXPORT_INTERVAL_S = 1.0
EXPORT_TIMEOUT_S = 5.0
SHUTDOWN_DEADLINE_S = 5.0
_NAMES = {"http_method": "http.request.method", "http_route": "http.route", "http_status": "http.response.status_code"}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpTracer:
    """The tracer of one site. `close` sends what is left."""

    def __init__(self, settings: TraceSettings, *, pair: str, site: str, release: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what goes wrong is counted and said here
        self._ratio = settings.ratio
        self._ids = _Ids()
        calls = _Calls()
        exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=EXPORT_TIMEOUT_S, session=calls)
        self._counted = _CountingExporter(exporter, settings.endpoint, calls)
        self._processor = BatchSpanProcessor(
            self._counted, QUEUE_SPANS_MAX, EXPORT_INTERVAL_S * 1000, BATCH_SPANS_MAX, EXPORT_TIMEOUT_S * 1000
        )
        self._end: Callable[[], None] = self._processor.shutdown
        resource = Resource.create({
            "service.name": "twinlog", "service.version": release, "service.instance.id": f"{pair}/{site}",
            "twinlog.pair": pair, "twinlog.site": site,
        })
        provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False, id_generator=self._ids
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("twinlog", release)

    # ---- the port (storage/tracing.py)
    def received(self, name: str, traceparent: str, tracestate: str = "", **attributes: Attribute) -> Span | None:
        return self._below(name, traceparent, tracestate, SpanKind.SERVER, attributes)

    def continued(self, name: str, context: str, **attributes: Attribute) -> Span | None:
        traceparent, _, tracestate = context.partition(" ")
        return self._below(name, traceparent, tracestate, SpanKind.INTERNAL, attributes)

    def _below(
        self, name: str, traceparent: str, tracestate: str, kind: SpanKind, attributes: dict[str, Attribute]
    ) -> Span | None:
        parent = parsed(traceparent)
        if parent is None or not parent.is_sampled:
            return None
        context = SpanContext(
            parent.trace, parent.span, is_remote=kind is SpanKind.SERVER, trace_flags=_SAMPLED,
            trace_state=TraceState.from_header([tracestate]) if tracestate else None,  # empty where it is malformed
        )
        return self.begin(name, set_span_in_context(NonRecordingSpan(context), Context()), kind, attributes)

    def sampled(self, name: str, **attributes: Attribute) -> Span | None:
        if random.random() >= self._ratio:
            return None
        return self.begin(name, Context(), SpanKind.SERVER, attributes)

    def whole(self, name: str, whose: str, **attributes: Attribute) -> Span | None:
        self._ids.next_trace = int.from_bytes(hashlib.blake2b(whose.encode(), digest_size=16).digest()) or 1
        return self.begin(name, Context(), SpanKind.INTERNAL, attributes)

    # ---- for the spans
    def begin(self, name: str, parent: Context, kind: SpanKind, attributes: dict[str, Attribute]) -> OtlpSpan:
        """A fault of OpenTelemetry costs the span: the paths that ask for one have nothing that would catch it."""
        try:
            return OtlpSpan(self, self._tracer.start_span(name, parent, kind, _named(attributes)))
        except Exception:
            self._counted.failed += 1
            return OtlpSpan(self, INVALID_SPAN)

    def ended(self, span: SdkSpan, attributes: dict[str, Attribute], error: str) -> None:
        """Hands a span over to the exporter's thread, if there is room."""
        if not span.is_recording() or not self._counted.has_room():
            return
        try:
            span.set_attributes(_named(attributes))
            if error:
                span.set_attribute("error.type", error)
                span.set_status(StatusCode.ERROR, error)
            span.end()
        except Exception:
            self._counted.failed_at_the_end()

    # ---- figures, the end
    def figures(self) -> Figures:
        return {
            "trace_spans_total": {("exported",): float(self._counted.exported), ("dropped",): float(self._counted.dropped)},
        }

    async def close(self) -> None:
        """Sends what is left, for `SHUTDOWN_DEADLINE_S` at most: then the exporter's thread is left to itself."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            with suppress(Exception):  # a thread that ends by an error ends the process (gateway/fail_stop.py)
                self._end()
            with suppress(RuntimeError):  # the loop has ended, since nobody waits any more
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=send, name="end-of-traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_DEADLINE_S):
                await sent.wait()
        self._counted.give_up()


class OtlpSpan:
    """A span of OpenTelemetry, as storage/tracing.py has it."""

    __slots__ = ("_sdk", "_tracer", "is_over")

    def __init__(self, tracer: OtlpTracer, sdk: SdkSpan) -> None:
        self._tracer, self._sdk, self.is_over = tracer, sdk, False

    @property
    def trace_id(self) -> str:
        return f"{self._sdk.get_span_context().trace_id:032x}"

    @property
    def traceparent(self) -> str:
        context = self._sdk.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    @property
    def tracestate(self) -> str:
        return self._sdk.get_span_context().trace_state.to_header()

    def child(self, name: str, **attributes: Attribute) -> Span:
        return self._tracer.begin(name, set_span_in_context(self._sdk, Context()), SpanKind.INTERNAL, attributes)

    def end(self, error: str = "", **attributes: Attribute) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._tracer.ended(self._sdk, attributes, error)


class _Ids(RandomIdGenerator):
    """Random ids, but for a trace whose id follows from an operation: that one is asked for next."""

    def __init__(self) -> None:
        self.next_trace = 0

    def generate_trace_id(self) -> int:
        trace, self.next_trace = self.next_trace, 0
        return trace or super().generate_trace_id()


class _Calls(requests.Session):
    """The exporter's calls. `outcome`: how the newest one ended, which the exporter itself only logs."""

    outcome = "no answer"

    def send(self, request: requests.PreparedRequest, **settings: Any) -> requests.Response:
        try:
            answer = super().send(request, **settings)
        except Exception as error:
            self.outcome = f"no answer: {words(error)}"
            raise
        self.outcome = f"{answer.status_code} {answer.reason}"
        return answer


class _CountingExporter(SpanExporter):
    """Counts what another exporter takes and does not take. Spans are admitted on the event loop and exported in a thread: each
    of the counts has one writer."""

    def __init__(self, exporter: SpanExporter, endpoint: str, calls: _Calls) -> None:
        self._exporter, self._endpoint, self._calls = exporter, endpoint, calls
        self._warnings = BoundedWarnings("twinlog.traces", time.monotonic)
        self._admitted = self._refused = self._lost = self.exported = self._given_up = 0
        self.failed = 0  # spans that OpenTelemetry did not make or take

    @property
    def dropped(self) -> int:
        return self._refused + self._lost + self._given_up + self.failed

    def has_room(self) -> bool:
        """True: one more span may be queued, and is counted as such."""
        if self._admitted - self.exported - self._lost >= QUEUE_SPANS_MAX:
            self._refused += 1
            return False
        self._admitted += 1
        return True

    def failed_at_the_end(self) -> None:
        """A span that was admitted is not queued."""
        self._admitted -= 1
        self.failed += 1

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # an exporter may fail in any way: that is no affair of the spans behind these
            taken = False
        if taken:
            self.exported += len(spans)
            return SpanExportResult.SUCCESS
        self._lost += len(spans)
        self._warnings.warn(
            "spans were dropped: the receiver took none", spans=len(spans), endpoint=self._endpoint, answer=self._calls.outcome
        )
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def give_up(self) -> None:
        """Nothing more is sent: what is queued counts as dropped."""
        self._given_up = self._admitted - self.exported - self._lost


def _named(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    """The attributes by OpenTelemetry's names, where it has one."""
    return {_NAMES.get(name, f"twinlog.{name}"): each for name, each in attributes.items()}
