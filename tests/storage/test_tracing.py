"""A `traceparent` is read by W3C Trace Context, and any other text is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tracing import CURRENT, NO_TRACES, current, parsed
from tests.recorded_traces import RecordedTraces

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.integers(0, 255))
def test_a_traceparent_is_read_as_it_was_written(trace: int, span: int, flags: int) -> None:
    text = f"00-{trace:032x}-{span:016x}-{flags:02x}"
    assert parsed(text) == (text, trace, span, bool(flags & 1))


@given(st.text() | st.from_regex("[0-9a-fA-F]{2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}(-.*)?"))
def test_any_text_is_a_traceparent_or_none(text: str) -> None:
    parent = parsed(text)
    if parent is not None:
        assert parent.text == text
        assert parent.trace
        assert parent.span


@pytest.mark.parametrize("text", [
    "", GOOD.upper(), GOOD + "-more", GOOD[:-1], "ff" + GOOD[2:], f"00-{'0' * 32}-b7ad6b7169203331-01",
    f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", GOOD + "\n", " " + GOOD,
])
def test_what_is_none(text: str) -> None:
    assert parsed(text) is None


def test_a_later_version_may_say_more() -> None:
    parent = parsed("01" + GOOD[2:] + "-more")
    assert parent is not None
    assert parent.is_sampled


def test_without_traces_there_is_no_span() -> None:
    assert NO_TRACES.received("a", GOOD) is None
    assert NO_TRACES.continued("a", GOOD) is None
    assert NO_TRACES.sampled("a") is None
    assert NO_TRACES.whole("a", "operation") is None


def test_what_was_begun_in_a_span_lives_on_without_it() -> None:
    """A step that opens an epoch begins its shipper: that one's calls are no part of the step."""
    span = RecordedTraces().sampled("step open")
    assert span is not None
    before = CURRENT.set(span)
    try:
        assert current() is span
        span.end()
        assert current() is None
    finally:
        CURRENT.reset(before)
