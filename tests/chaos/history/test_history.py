"""A recorded history: JSON lines and back, and the recorder's calls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.history import history as h
from chaos.history.lines import Blind, ReceiptLine, Repeat, Served, Unheard

TEXT = st.text(max_size=4)
NUMBER = st.integers(0, 2**53)
TIME = st.floats(0, 1e6)
VALUE = st.one_of(st.none(), st.booleans(), NUMBER, TEXT)
ROW = st.dictionaries(TEXT, VALUE, max_size=3)
STORED = st.builds(h.DumpedRow, ROW, NUMBER)
MODES = st.sampled_from(["sync", "async"])
OPERATION = st.builds(
    h.Operation, st.sampled_from(["read", "write", "conditional", "batch", "scan", "schema"]), TEXT, key=TEXT,
    mutations=st.lists(st.builds(h.Mutation, TEXT, TEXT, ROW), max_size=2).map(tuple),
    conditions=st.lists(st.builds(h.Condition, column=st.none() | TEXT, value=VALUE), max_size=2).map(tuple),
    start=st.none() | TEXT, limit=st.none() | NUMBER, reverse=st.booleans(), body=st.dictionaries(TEXT, VALUE, max_size=2),
)
ACK = st.builds(h.Ack, TEXT, NUMBER, NUMBER, NUMBER, MODES)
OUTCOME = st.builds(
    h.Outcome, st.sampled_from(["ok", "not_applied", "unknown"]), st.none() | ACK,
    st.lists(st.builds(h.Row, TEXT, ROW, NUMBER), max_size=2).map(tuple), st.booleans(), TEXT, TEXT, st.none() | NUMBER,
    st.none() | TIME,
)
FRAME = st.builds(h.LoggedFrame, NUMBER, NUMBER, NUMBER, NUMBER, TEXT)
LINES: list[st.SearchStrategy[Any]] = [
    st.builds(h.Call, NUMBER, TEXT, OPERATION, TIME, st.none() | TIME, st.none() | TIME, st.none() | OUTCOME),
    st.builds(h.Opened, TEXT, NUMBER, TIME, MODES), st.builds(h.Closed, TEXT, NUMBER, TIME),
    st.builds(h.ModeRecorded, NUMBER, MODES, TIME), st.builds(h.ReadsServed, TEXT, NUMBER, NUMBER, TIME),
    st.builds(h.Copies, TEXT, NUMBER, TIME, NUMBER, NUMBER, st.none() | NUMBER),
    st.builds(h.RemoteLogLine, TEXT, NUMBER, TIME, NUMBER, st.lists(TEXT, max_size=2).map(tuple)),
    st.builds(h.PositionLine, TEXT, NUMBER, TIME, NUMBER, NUMBER, NUMBER),
    st.builds(h.RoleChangeLine, TEXT, TEXT, TIME, st.none() | TIME, TEXT), st.builds(h.Apart, TEXT, TIME),
    st.builds(h.Moment, st.sampled_from(["healed", "recovered", "drained", "ended"]), TIME),
    st.builds(
        h.Dump, TEXT, st.booleans(), TIME, NUMBER,
        st.dictionaries(TEXT, st.dictionaries(TEXT, STORED, max_size=2), max_size=2),
    ),
    st.builds(h.SiteLog, TEXT, st.booleans(), st.lists(FRAME, max_size=3).map(tuple)),
    st.builds(
        h.Quarantine, TEXT, NUMBER, NUMBER, NUMBER, TIME, st.booleans(),
        st.lists(st.builds(h.QuarantinedRow, TEXT, TEXT, NUMBER, NUMBER), max_size=2).map(tuple),
    ),
    st.builds(h.TableUse, TEXT, st.dictionaries(TEXT, VALUE, max_size=2), TEXT, st.booleans(), st.just(("a", "b"))),
    st.builds(Repeat, NUMBER, TIME, TIME, TEXT, TEXT, NUMBER, NUMBER, NUMBER),
    st.builds(ReceiptLine, NUMBER, TEXT, TEXT, TIME, st.booleans(), st.none() | NUMBER),
    st.builds(Served, TEXT, NUMBER, TIME, TIME),
    st.builds(Unheard, TEXT, TIME, TIME), st.builds(Blind, TEXT, TIME, TIME),
    st.builds(h.Limits, TIME, st.none() | TIME, TIME, TIME, TIME),
]


@settings(deadline=None)
@given(st.lists(st.one_of(LINES), max_size=8))
def test_what_is_dumped_can_be_loaded(lines: list[h.Line]) -> None:
    history = h.history_of(lines)
    assert h.load(h.dump(history)).lines() == history.lines()


def test_each_line_stands_in_its_own_kind() -> None:
    opened, moment = h.Opened("a", 1, 0.5, "sync"), h.Moment("healed", 2.0)
    history = h.load(h.dump(h.history_of([moment, opened, h.Limits(recovery_s=3.0)])))
    assert (history.opened, history.moments, history.limits.recovery_s) == ((opened,), (moment,), 3.0)
    assert history.moment("healed") == 2.0
    assert history.moment("drained") is None


def test_a_line_of_another_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        h.load(b'{"is":"something"}\n')


def test_a_call_that_is_not_ended_is_recorded_as_such() -> None:
    recorder = h.Recorder()
    first = recorder.begin("c0", h.Operation("read", "t", key="k"), 1.0, 6.0)
    second = recorder.begin("c1", h.Operation("read", "t", key="k"), 2.0)
    recorder.end(second, h.Outcome("ok"), 3.0)
    recorder.note(h.Moment("ended", 4.0))
    history = recorder.history()
    assert [(call.id, call.returned_s) for call in history.calls] == [(second, 3.0), (first, None)]
    assert history.calls[1].deadline_s == 6.0
    assert history.moment("ended") == 4.0
