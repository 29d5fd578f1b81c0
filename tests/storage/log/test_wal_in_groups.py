"""A log that is read a group at a time, and what is said of each frame, against the whole log in memory and chain.py."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.log import wal_reading
from storage.log.chain import remaining, unbroken
from storage.log.frame import Frame
from storage.log.wal import Wal
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, run
from tests.storage.log.wal_rig import SMALL, append_all, started
from twinlog.errors import DamagedLog

STEPS = st.lists(
    st.tuples(st.sampled_from(["run", "cut", "hole", "epoch", "roll"]), st.integers(1, 9)), min_size=1, max_size=25
)


async def a_log(files: MemoryFiles, steps: list[tuple[str, int]]) -> Wal:
    """Links, failed frames that a later one cuts off, holes, and epochs that use sequences again.

    No hole ends within a frame that is held: a site that followed another one since has cleared its log, and a takeover without
    that copies what it reads.
    """
    wal = await started(files, SMALL)
    epoch, next_seq = 1, 1
    stand, held = [0], [0]  # ends of frames
    for what, size in steps:
        if what == "run":
            for _ in range(size):
                frame = a_frame(next_seq, previous=stand[-1], epoch=epoch, count=1 + size % 3)
                await append_all(wal, [frame])
                next_seq = frame.last_seq + 1
                stand.append(frame.last_seq)
                held.append(frame.last_seq)
        elif what == "cut":
            del stand[max(1, len(stand) - size) :]
            wal.forget_after(stand[-1])
        elif what == "hole":
            end = stand[-1] + size
            stand.append(min((each for each in held if each >= end), default=end))
            next_seq = max(next_seq, stand[-1] + 1)
        elif what == "epoch":
            epoch, next_seq = epoch + 1, max(stand[-1] + 1, next_seq - size)
            await wal.start(epoch, next_seq)
        else:
            await wal.roll(next_seq)
    return wal


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(80, 600), st.integers(0, 40))
@example([("run", 1), ("run", 1), ("cut", 1), ("hole", 2), ("run", 1)], 80, 0)
@example([("run", 1), ("run", 3)], 80, 0)  # one larger than a piece, and a small one behind it
async def test_what_stands_is_known_of_each_frame_without_the_others(
    steps: list[tuple[str, int]], chunk_bytes: int, after_seq: int
) -> None:
    wal = await a_log(MemoryFiles(), steps)
    everything = sorted(await wal.read_all(after_seq), key=lambda frame: frame.position)
    standing = wal.standing()
    found: list[Frame] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wal_reading, "_CHUNK_BYTES", chunk_bytes)
        async for frames in wal.every_frame(after_seq):
            assert frames
            assert len(frames) == 1 or sum(len(frame.data) for frame in frames) <= chunk_bytes
            found += frames
    assert found == everything
    whole = await wal.read_all()
    assert [frame for frame in found if standing.has(frame)] == [f for f in remaining(whole) if f.last_seq > after_seq]
    assert [frame for frame in found if standing.leads_to_end(frame)] == [f for f in unbroken(whole) if f.last_seq > after_seq]


@pytest.mark.parametrize("place", ["middle", "end"])
async def test_a_frame_that_cannot_be_read_is_damage(place: str) -> None:
    files = MemoryFiles()
    wal = await started(files)
    frames = run(1, 9)
    await append_all(wal, frames)
    path = wal.segments()[0].name
    durable = files.files[f"wal/{path}"].durable
    at = bytes(durable).find(frames[4 if place == "middle" else 8].data)
    durable[at + 70] ^= 1
    with pytest.raises(DamagedLog, match=f"{path}: no whole frame begins at offset {at}"):
        _ = [frames async for frames in wal.every_frame()]
