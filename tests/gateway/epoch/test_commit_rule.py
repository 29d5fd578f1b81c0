"""The commit rule against a dumb oracle, over random orders of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.epoch.commit_rule import CommitCore, CommitMode, Committed
from storage.log.chain import standing
from storage.log.frame import Flags, Frame
from storage.log.record import Record, RecordKind

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["make", "make", "make", "local", "remote", "fail", "sync", "async", "catch", "tighten"]),
        st.integers(1, 3),
    ),
    max_size=60,
)


def records(count: int) -> list[Record]:
    return [Record(RecordKind.NOOP)] * count


class Oracle:
    """Both logs as plain lists of frames; committed is recomputed from nothing each time."""

    def __init__(self) -> None:
        self.core = CommitCore(epoch=3, standing=10, next_seq=11, mode=CommitMode.SYNC)
        self.made: list[Frame] = []
        self.wal: list[Frame] = []  # synced
        self.local_queue: list[Frame] = []
        self.remote_log: list[Frame] = []
        self.remote_queue: list[Frame] = []
        self.committed: list[tuple[Frame, str]] = []
        self.failed: set[int] = set()

    def perform(self, committed: Committed | None) -> None:
        if committed is None:
            return
        for frame in committed.frames:
            assert frame.first_seq not in self.failed
            assert frame in self.wal
            if committed.label == "sync":
                assert frame in self.remote_log, "acknowledged as sync without the remote copy (P1)"
            self.committed.append((frame, committed.label))

    def make(self, count: int) -> None:
        frame = self.core.make(records(count), timestamp=len(self.made) * 100)
        assert bool(frame.flags & Flags.ASYNC) == (self.core.mode is not CommitMode.SYNC)
        self.made.append(frame)
        self.local_queue.append(frame)
        if self.core.writes_remote:
            self.remote_queue.append(frame)

    def local(self, count: int) -> None:
        for _ in range(min(count, len(self.local_queue))):
            frame = self.local_queue.pop(0)
            self.wal.append(frame)
            self.perform(self.core.local_synced(frame.last_seq))

    def remote(self, count: int) -> None:
        for _ in range(min(count, len(self.remote_queue))):
            frame = self.remote_queue.pop(0)
            self.remote_log.append(frame)
            self.perform(self.core.remote_synced(frame.last_seq))

    def fail(self) -> None:
        failed = self.core.local_failed()
        self.failed |= {frame.first_seq for frame in failed.frames}
        assert [f.first_seq for f in failed.frames] == [f.first_seq for f in self.local_queue]
        assert failed.standing == (self.wal[-1].last_seq if self.wal else 10)
        self.local_queue.clear()
        self.remote_queue = [frame for frame in self.remote_queue if frame.last_seq <= failed.standing]

    def step(self, name: str, count: int) -> None:
        match name:
            case "make":
                self.make(count)
            case "local":
                self.local(count)
            case "remote":
                self.remote(count)
            case "fail":
                self.fail()
            case "async":
                self.remote_queue.clear()
                self.perform(self.core.set_mode(CommitMode.ASYNC))
            case "catch" if self.core.mode is CommitMode.ASYNC:
                self.core.switch_remote_on()
            case "tighten" if self.core.mode is CommitMode.CATCHING:
                self.perform(self.core.set_mode(CommitMode.TIGHTENING))
            case "sync" if self.core.mode is CommitMode.TIGHTENING and not self.core.frames_in_flight:
                self.perform(self.core.set_mode(CommitMode.SYNC))


@given(EVENTS)
@settings(max_examples=400, deadline=None)
def test_random_orders_keep_the_commit_rule(events: list[tuple[str, int]]) -> None:
    oracle = Oracle()
    for name, count in events:
        oracle.step(name, count)
    sequences = [seq for frame in oracle.made for seq in range(frame.first_seq, frame.last_seq + 1)]
    assert sequences == sorted(set(sequences)), "a sequence was used twice"
    order = [frame.first_seq for frame, _ in oracle.committed]
    assert order == sorted(set(order)), "committed out of order or twice"
    if oracle.wal:
        stands = standing(oracle.wal)
        assert [f for f, _ in oracle.committed] == stands[: len(oracle.committed)], "the WAL's chain is not what was committed"


def test_a_failed_frame_is_excluded_by_the_next_one() -> None:
    core = CommitCore(epoch=1, standing=0, next_seq=1, mode=CommitMode.SYNC)
    first, second = core.make(records(2), 1), core.make(records(1), 2)
    assert core.local_synced(first.last_seq) is None  # the remote log does not hold it yet
    failed = core.local_failed()
    assert failed.frames == [second]
    third = core.make(records(1), 3)
    assert (third.previous, third.first_seq) == (2, 4)
    assert core.remote_synced(2) == Committed([first], "sync")


def test_a_downgrade_commits_what_waited_for_the_remote_log_as_async() -> None:
    core = CommitCore(epoch=1, standing=0, next_seq=1, mode=CommitMode.SYNC)
    frame = core.make(records(1), 1)
    assert core.local_synced(1) is None
    assert core.set_mode(CommitMode.ASYNC) == Committed([frame], "async")


def test_a_rule_that_tightens_waits_for_the_remote_log_and_does_not_say_sync_yet() -> None:
    """The register may say sync before the answer comes: whoever takes over then has the remote log only."""
    core = CommitCore(epoch=1, standing=0, next_seq=1, mode=CommitMode.ASYNC)
    core.switch_remote_on()
    core.set_mode(CommitMode.TIGHTENING)
    frame = core.make(records(2), 0)
    assert frame.flags & Flags.ASYNC
    assert core.local_synced(2) is None
    assert core.remote_synced(2) == Committed([frame], "async")


def test_the_remote_log_is_switched_on_behind_what_stands_and_not_behind_what_failed() -> None:
    core = CommitCore(epoch=1, standing=0, next_seq=1, mode=CommitMode.ASYNC)
    core.make(records(2), 0)
    core.local_synced(2)
    core.make(records(3), 0)
    core.local_failed()
    assert core.switch_remote_on() == 2
    assert (core.remote, core.next_seq) == (2, 6)
