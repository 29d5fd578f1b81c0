"""The port of traces: spans of sampled requests and of role changes, for whoever looks where the time went.

What always holds: nothing here performs I/O or raises, and no caller does anything else because of it; a span's attributes name
sites, tables, sequences, sizes and outcomes, and never a key or a value of a row; with `NO_TRACES` there is no span at all, so
a path of requests asks once whether its span `is None`. The real tracer is gateway/traces/otlp.py, the recording one of tests
is tests/recorded_traces.py.
Source: docs/decisions/2026-11-28-traces.md.
This module is pure.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import NamedTuple, Protocol

Attribute = str | int | float | bool
_PARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


class Span(Protocol):
    """One piece of work. Its children may outlive it."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
    @property
    def traceparent(self) -> str:
        """The span as another process reads of it (W3C Trace Context)."""
    @property
    def tracestate(self) -> str:
        """The caller's tracing systems said this beside it, for the next process; "": they said nothing."""
    @property
    def is_over(self) -> bool: ...
    def child(self, name: str, **attributes: Attribute) -> Span: ...
    def end(self, error: str = "", **attributes: Attribute) -> None:
        """`error`: the code of the error that it ended with; a text might hold a key. Only the first call counts."""


class Tracer(Protocol):
    """Begins spans. None: this one is not sampled."""

    def received(self, name: str, traceparent: str, tracestate: str = "", **attributes: Attribute) -> Span | None:
        """A span of a call that another process made, below the span that it names. A `tracestate` that is none is as ""."""

    def continued(self, name: str, context: str, **attributes: Attribute) -> Span | None:
        """A span below the one of this `context_of`, in this process. Of both: a text that is no sampled traceparent is as
        none."""

    def sampled(self, name: str, **attributes: Attribute) -> Span | None:
        """A span of a new trace, for the share of calls that the configuration says."""

    def whole(self, name: str, whose: str, **attributes: Attribute) -> Span | None:
        """A span of the trace of `whose`: an operation that is resumed, also after a crash, stays in one trace."""


class NoTraces:
    """Traces are off."""

    def received(self, name: str, traceparent: str, tracestate: str = "", **attributes: Attribute) -> Span | None:
        return None

    def continued(self, name: str, context: str, **attributes: Attribute) -> Span | None:
        return None

    def sampled(self, name: str, **attributes: Attribute) -> Span | None:
        return None

    def whole(self, name: str, whose: str, **attributes: Attribute) -> Span | None:
        return None


NO_TRACES = NoTraces()
CURRENT: ContextVar[Span | None] = ContextVar("span", default=None)  # of the plain request, or of the step, that runs here


def current() -> Span | None:
    """The span of what runs here. None: there is none, or it has ended: a task that was begun in it lives on without it."""
    span = CURRENT.get()
    return None if span is None or span.is_over else span


def context_of(span: Span) -> str:
    """Both texts of a span in one, for `continued`: how a write that is traced crosses the ports of this process."""
    return f"{span.traceparent} {span.tracestate}" if span.tracestate else span.traceparent


class Parent(NamedTuple):
    """The caller's span, as a traceparent says it."""

    text: str
    trace: int
    span: int
    is_sampled: bool


def parsed(traceparent: str) -> Parent | None:
    """Returns what a W3C traceparent says; None: the text is none."""
    found = _PARENT.fullmatch(traceparent)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    return Parent(traceparent, trace, span, bool(int(found[4], 16) & 1)) if trace and span else None
