"""The spans of writes end whatever happens to the logs, and there are never more of them than the bound."""

from __future__ import annotations

import asyncio

from gateway.epoch.pending import Pending
from gateway.epoch.write_traces import APPLY, FRAMES_MAX, REMOTE, SHIP, WAL, WriteTraces
from gateway.service.histogram import Histogram
from storage.clock import SystemClock
from storage.log.frame import Frame
from storage.tracing import context_of
from tests.recorded_traces import RecordedTraces


def frame(seq: int) -> Frame:
    return Frame(
        log=1, epoch=1, first_seq=seq, count=1, previous=seq - 1, timestamp=seq, committed=0, flags=0, data=b"x" * 100
    )


class Rig:
    def __init__(self) -> None:
        self.recorded, self.durations = RecordedTraces(), Histogram()
        self.traces = WriteTraces(self.recorded, 1, SystemClock())

    def write(self, seq: int, *logs: str, sampled: bool = True) -> None:
        span = self.recorded.sampled("PUT")
        assert span is not None
        pending = Pending([], 10, 0.0, trace_context=context_of(span) if sampled else "")
        self.traces.framed(frame(seq), [pending], logs)

    def open(self) -> list[str]:
        return [span.name for span in self.recorded.spans if not span.is_over and span.name != "PUT"]


async def test_a_write_has_a_span_for_each_log_for_the_storage_and_for_the_way() -> None:
    rig = Rig()
    rig.write(1, WAL, REMOTE)
    rig.write(2, WAL, REMOTE, sampled=False)
    rig.traces.synced(WAL, 2, rig.durations)
    assert rig.open() == [REMOTE]
    rig.traces.synced(REMOTE, 2, rig.durations)
    rig.traces.applying([frame(1), frame(2)])
    assert rig.open() == [APPLY]
    rig.traces.applied(2, rig.durations)
    [(seq, span)] = rig.traces.shipped(0, 2, 64)
    assert (seq, rig.open()) == (1, [SHIP])
    span.end()
    [again] = rig.traces.shipped(0, 2, 64)  # the call failed, and the follower stands where it stood
    again[1].end()
    rig.traces.arrived(1)
    assert rig.traces.shipped(0, 2, 64) == []
    assert rig.open() == []
    assert {each.trace_id for each in rig.durations.exemplars if each is not None} == {rig.recorded.spans[0].trace_id}


async def test_a_failed_log_and_the_end_of_an_epoch_end_every_span() -> None:
    rig = Rig()
    for seq in (1, 2, 3):
        rig.write(seq, WAL, REMOTE)
    rig.traces.synced(WAL, 1, rig.durations)
    rig.traces.ended("log_failed", 1)
    assert rig.open() == [REMOTE]
    rig.traces.ended("fenced")
    assert rig.open() == []
    errors = [span.error for span in rig.recorded.spans if span.name in (WAL, REMOTE)]
    assert errors == ["", "fenced", *["log_failed"] * 4]


async def test_a_log_that_hangs_and_a_site_that_is_away_cost_no_memory() -> None:
    rig = Rig()
    for seq in range(1, FRAMES_MAX + 11):
        rig.write(seq, WAL)
    assert len(rig.open()) == FRAMES_MAX
    for seq in range(1, FRAMES_MAX + 11):
        rig.traces.synced(WAL, seq, rig.durations)
        rig.traces.applied(seq, rig.durations)
    assert rig.open() == []
    for seq in range(FRAMES_MAX + 11, 3 * FRAMES_MAX):
        rig.write(seq, WAL)
        rig.traces.synced(WAL, seq, rig.durations)
        rig.traces.applied(seq, rig.durations)
    shipped = rig.traces.shipped(0, 4 * FRAMES_MAX, 64)
    assert len(shipped) == 64
    assert shipped[0][0] == 2 * FRAMES_MAX  # the oldest that is still known
    assert rig.open() == [SHIP] * 64  # none was begun that nobody ends
    await asyncio.sleep(0)
