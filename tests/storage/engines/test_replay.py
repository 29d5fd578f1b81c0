"""Replay in transactions: what they may hold, and that nothing is lost or reordered."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage.clock import SystemClock
from storage.engines.applying import RECORDS_MAX, BarrierLimits, FrameApplier, transactions
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import Frame
from tests.storage.engines.engine_rig import Log, upsert


def frames_of(sizes: list[tuple[int, int]]) -> list[Frame]:
    """One frame for each (records, bytes of a value)."""
    log = Log()
    return [log.frame(*(upsert(b"%d" % n, b"x" * size) for n in range(count))) for count, size in sizes]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 300)), max_size=25), records_max=st.integers(1, 20),
    bytes_max=st.integers(1, 2000),
)
def test_transactions_are_bounded_unless_one_frame_is_larger(
    sizes: list[tuple[int, int]], records_max: int, bytes_max: int
) -> None:
    frames = frames_of(sizes)
    groups = list(transactions(frames, records_max, bytes_max))
    assert [frame for group in groups for frame in group] == frames

    def fits(group: list[Frame]) -> bool:
        return sum(f.count for f in group) <= records_max and sum(len(f.data) for f in group) <= bytes_max

    assert all(len(group) == 1 or fits(group) for group in groups)
    for group, after in pairwise(groups):
        assert not fits([*group, after[0]])  # no more transactions than are needed


async def test_replay_applies_everything() -> None:
    engine, frames = MemoryEngine(), frames_of([(RECORDS_MAX // 3, 1), (2, 1), (RECORDS_MAX * 2, 1), (1, 1)])
    applier = FrameApplier(engine, SystemClock(), BarrierLimits(), on_refused=lambda name, why: None)
    await applier.replay(frames)
    assert engine.applied.seq == frames[-1].last_seq
    await applier.replay(frames)  # what is applied already is skipped
    assert engine.applied.seq == frames[-1].last_seq
