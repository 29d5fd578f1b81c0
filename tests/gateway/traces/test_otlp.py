"""The real tracer with a receiver that fails: no span is waited for, and each one that is lost is counted."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.traces import otlp
from gateway.traces.otlp import OtlpTracer
from gateway.traces.requests import RequestTraces, bounded_state
from gateway.traces.settings import TraceSettings
from storage.tracing import context_of
from tests.gateway.traces.receiver import Receiver, receiver

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = CALLER[:-1] + "0"


@pytest.fixture
def found() -> Iterator[Receiver]:
    with receiver() as one:
        yield one
        one.hold.set()  # who was held is answered: no exporter outlives its test, and draws for its next attempt
        for thread in threading.enumerate():
            if thread.name.startswith(("Otel", "end-of-traces")):
                thread.join(30)
                assert not thread.is_alive(), thread.name
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


def tracer_to(url: str, ratio: float = 1.0) -> OtlpTracer:
    return OtlpTracer(TraceSettings(endpoint=url, ratio=ratio), pair="p", site="a", release="1")


def counted(tracer: OtlpTracer) -> tuple[float, float]:
    spans = tracer.figures()["trace_spans_total"]
    assert isinstance(spans, dict)
    return spans["exported",], spans["dropped",]


def make(tracer: OtlpTracer, spans: int) -> None:
    for _ in range(spans):
        span = tracer.sampled("request")
        assert span is not None
        span.end()


async def test_what_is_left_is_sent_at_the_end(found: Receiver) -> None:
    tracer = tracer_to(found.url)
    span = tracer.whole("role change", "operation-1", operation="operation-1")
    again = tracer.whole("role change", "operation-1")
    other = tracer.sampled("request")
    assert span is not None
    assert again is not None
    assert other is not None
    step = span.child("step open", seq=7)
    step.end("peer-error")
    for each in (span, again, other):
        each.end()
        each.end("twice")
    await tracer.close()
    assert counted(tracer) == (4.0, 0.0)
    by_name = {each.name: each for each in found.spans}
    assert span.trace_id == again.trace_id == by_name["role change"].trace == by_name["step open"].trace
    assert other.trace_id == by_name["request"].trace != span.trace_id
    assert by_name["step open"].parent == span.traceparent.split("-")[2]
    assert by_name["step open"].attributes == {"twinlog.seq": 7, "error.type": "peer-error"}
    assert (by_name["step open"].error, by_name["request"].error) == ("peer-error", "")
    span.end()
    tracer_span = tracer.sampled("too late")
    assert tracer_span is not None
    tracer_span.end()  # the end of the process: nothing is raised


async def test_a_receiver_that_refuses_costs_spans_and_nothing_else(found: Receiver) -> None:
    found.status = 404
    tracer = tracer_to(found.url)
    make(tracer, 10)
    with capture_logs() as lines:
        await tracer.close()
    assert counted(tracer) == (0.0, 10.0)
    assert (lines[0]["answer"], lines[0]["endpoint"]) == ("404 Not Found", found.url)


async def test_a_receiver_that_is_not_there(found: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "EXPORT_TIMEOUT_S", 0.2)
    tracer = tracer_to("http://127.0.0.1:9/v1/traces")
    make(tracer, 3)
    with capture_logs() as lines:
        await tracer.close()
    assert counted(tracer) == (0.0, 3.0)
    assert lines[0]["answer"] == "no answer: connection refused"


async def test_a_receiver_that_hangs_bounds_the_queue_and_the_end(found: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: without the bound of `has_room` the dropped spans are fewer, and are not counted."""
    monkeypatch.setattr(otlp, "QUEUE_SPANS_MAX", 20)
    monkeypatch.setattr(otlp, "BATCH_SPANS_MAX", 5)
    monkeypatch.setattr(otlp, "SHUTDOWN_DEADLINE_S", 0.2)
    found.hold.clear()
    tracer = tracer_to(found.url)
    make(tracer, 50)
    assert counted(tracer) == (0.0, 30.0)
    async with asyncio.timeout(60):
        await tracer.close()
    assert counted(tracer) == (0.0, 50.0)


async def test_a_fault_of_the_sdk_costs_the_span_and_raises_nothing(found: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol and the commit log call the tracer where nothing would catch an error."""
    tracer = tracer_to(found.url)

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(tracer._tracer, "start_span", broken)
        span = tracer.sampled("request", http_method="PUT")
        assert span is not None
        span.child("apply").end("fenced")
        span.end()
        assert tracer.continued("apply", span.traceparent) is None
    span = tracer.sampled("request")
    assert span is not None
    monkeypatch.setattr(tracer._processor, "on_end", broken)
    span.end()
    await tracer.close()
    assert counted(tracer)[1] >= 3.0


async def test_which_requests_have_a_span(found: Receiver) -> None:
    tracer, other = tracer_to(found.url, ratio=0.0), tracer_to(found.url)
    try:
        never, always = RequestTraces(tracer), RequestTraces(other)
        row, probe = "/v1/tables/{table}/rows/{key}", "/health/live"
        assert always.begun("GET", row, []) is not None
        assert never.begun("GET", row, []) is None
        assert always.begun("GET", probe, []) is None
        assert never.begun("GET", probe, [(b"traceparent", CALLER.encode())]) is not None
        assert always.begun("GET", row, [(b"traceparent", UNSAMPLED.encode())]) is None
        for odd in ([(b"traceparent", b"nonsense\xff")], [(b"traceparent", CALLER.encode())] * 2):
            assert always.begun("GET", row, odd) is not None
            assert never.begun("GET", row, odd) is None
        span = never.begun("PUT", row, [(b"traceparent", CALLER.encode())])
        assert span is not None
        assert span.trace_id == CALLER.split("-")[1]
    finally:
        await tracer.close()
        await other.close()


@pytest.mark.parametrize(("headers", "state"), [
    (["rojo=1,congo=2"], "rojo=1,congo=2"),
    (["rojo=1 , ", "fw529a3039@dt=FfAAABBB"], "rojo=1,fw529a3039@dt=FfAAABBB"),  # two lines are one
    (["no member"], ""), (["rojo=1,rojo=2"], ""), (["Rojo=1"], ""), (["rojo=\xe9"], ""), (["rojo=1\x7f"], ""),
    ([",,"], ""), ([], ""),
    ([",".join(f"k{n}=v" for n in range(32))], ",".join(f"k{n}=v" for n in range(32))),
    ([",".join(f"k{n}=v" for n in range(33))], ""),
])
async def test_a_tracestate_is_passed_on_or_is_as_none(found: Receiver, headers: list[str], state: str) -> None:
    """Whatever it is, the trace stays. It goes the way of the write, too: through a text, to spans of this process."""
    tracer = tracer_to(found.url, ratio=0.0)
    try:
        given = [(b"traceparent", CALLER.encode()), *((b"tracestate", each.encode("latin-1")) for each in headers)]
        span = RequestTraces(tracer).begun("PUT", "/v1/tables/{table}/rows/{key}", given)
        assert span is not None
        below = tracer.continued("apply", context_of(span))
        assert below is not None
        assert (span.tracestate, below.tracestate, below.child("x").tracestate) == (state, state, state)
        assert span.trace_id == below.trace_id == CALLER.split("-")[1]
        assert RequestTraces(tracer).begun("PUT", "/v1/tables/{table}/rows/{key}", given[1:]) is None
    finally:
        await tracer.close()


@given(st.lists(st.integers(1, 250), max_size=32))
def test_a_long_tracestate_loses_whole_members(lengths: list[int]) -> None:
    """W3C Trace Context: those of more than 128 characters first, then from the end; 512 characters are always passed on."""
    members = [f"{number:02}=" + "v" * length for number, length in enumerate(lengths)]
    kept = [each for each in bounded_state([",".join(members)]).split(",") if each]
    assert len(",".join(kept)) <= 512
    assert kept == [each for each in members if each in kept]
    for gone in set(members) - set(kept):
        assert len(gone) > 128 or kept == [each for each in members if len(each) <= 128][: len(kept)]
    if len(",".join(members)) <= 512:
        assert kept == members


def test_without_the_section_nothing_of_it_is_imported() -> None:
    """FastAPI imports the API package by itself where that is installed; the SDK and the exporter are ours alone."""
    ask = (
        "import sys, gateway.app, gateway.config.loading\n"
        "ours = ('opentelemetry.sdk', 'opentelemetry.exporter', 'gateway.traces.otlp')\n"
        "print([name for name in sys.modules if name.startswith(ours)])"
    )
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "[]"
