"""Reading a remote log: frames of closed segments in order, damage by name, what is missing and where it begins."""

from __future__ import annotations

import pytest

from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import claim
from remote_log.fencing.reading import FIRST_BYTES, begins_after, missing_from, newest_pair, read_frames
from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.fencing.segments import closed_segment, segment
from tests.remote_log.writing.remote_rig import LAYOUT, content_of
from tests.storage.log.frames import a_frame, run, segment_bytes
from tests.storage.noise import noise
from twinlog.errors import DamagedLog, LeaseNotRecovered


async def test_frames_come_in_order_and_once(dfs: Dfs) -> None:
    one, two = run(1, 6), run(5, 3, epoch=2)
    await closed_segment(dfs, segment(1), segment_bytes(one[:4]))
    await closed_segment(dfs, segment(1, 1), segment_bytes(one[2:]))
    await closed_segment(dfs, segment(2), segment_bytes(two, epoch=2))
    await closed_segment(dfs, segment(3), segment_bytes(run(9, 1, epoch=3), epoch=3))
    await closed_segment(dfs, segment(2, 7), b"")
    await dfs.create_file(LAYOUT.epoch_folder(2) + "/notes.txt", b"an operator's")
    seen: list[tuple[int, int]] = []
    assert await read_frames(dfs, LAYOUT, 3, progress=lambda *args: seen.append(args)) == one + two
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_an_open_segment_is_not_read(dfs: Dfs) -> None:
    writer = await dfs.create(segment(1))
    await writer.append(segment_bytes(run(1, 2)))
    with pytest.raises(LeaseNotRecovered) as refused:
        await read_frames(dfs, LAYOUT, 2)
    assert refused.value.fields["file"] == segment(1)
    await writer.close()


class TakenBack(MemoryDfs):
    """The NameNode dies between its word that a file is closed and the reading: its standby has the file open and empty."""

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.disk.files[path].closed = False
        self.disk.files[path].data.clear()
        return await super().read(path, offset, length)


async def test_a_segment_that_is_open_again_behind_its_reading_was_not_read() -> None:
    dfs = TakenBack()
    await closed_segment(dfs, segment(1), segment_bytes(run(1, 2)))
    with pytest.raises(LeaseNotRecovered) as refused:
        await read_frames(dfs, LAYOUT, 2)
    assert refused.value.fields["file"] == segment(1)


async def test_damage_is_named_and_a_torn_tail_is_cut(dfs: Dfs) -> None:
    frames = run(1, 4)
    whole = segment_bytes(frames)
    torn = segment_bytes(frames[:3], zeros=0) + frames[3].data[:-5]
    await closed_segment(dfs, segment(1), torn)
    assert await read_frames(dfs, LAYOUT, 2) == frames[:3]
    await dfs.delete(segment(1))
    damaged = bytearray(whole)
    damaged[len(segment_bytes(frames[:1], zeros=0)) + 70] ^= 1
    await closed_segment(dfs, segment(1), bytes(damaged))
    with pytest.raises(DamagedLog) as error:
        await read_frames(dfs, LAYOUT, 2)
    assert error.value.fields["file"] == segment(1)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("repeated", [False, True])
async def test_frames_swapped_or_repeated_in_a_file_are_damage(dfs: Dfs, place: int, repeated: bool) -> None:
    """Each frame is sound, but no writer put it there. With force, every frame of the file is given."""
    frames = run(1, 4)
    wrong = [*frames[: place + 1], frames[place], *frames[place + 1 :]]
    if not repeated:
        wrong = [*frames[:place], frames[place + 1], frames[place], *frames[place + 2 :]]
    await closed_segment(dfs, segment(1), segment_bytes(wrong))
    with pytest.raises(DamagedLog, match="stands behind a later frame") as raised:
        await read_frames(dfs, LAYOUT, 2)
    offset = len(segment_bytes(wrong[: place + 1], zeros=0))
    assert (raised.value.fields["file"], raised.value.fields["offset"]) == (segment(1), offset)
    assert await read_frames(dfs, LAYOUT, 2, damaged=[]) == frames


async def test_a_segment_of_another_pair_is_damage_and_none_of_it_is_read_by_force(dfs: Dfs) -> None:
    ours, theirs, frames = "a1" * 8, "b2" * 8, run(1, 6)
    await closed_segment(dfs, segment(1), segment_bytes(frames[:3], pair=ours))
    await closed_segment(dfs, segment(1, 1), segment_bytes(frames[3:], pair=theirs))
    assert await read_frames(dfs, LAYOUT, 2) == frames, "nobody said whose log it is"
    with pytest.raises(DamagedLog, match="another pair") as raised:
        await read_frames(dfs, LAYOUT, 2, pair=ours)
    assert (raised.value.fields["file"], raised.value.fields["offset"]) == (segment(1, 1), 0)
    damaged: list[DamagedLog] = []
    assert await read_frames(dfs, LAYOUT, 2, damaged, pair=ours) == frames[:3]
    assert [error.fields["file"] for error in damaged] == [segment(1, 1)]
    assert await newest_pair(dfs, LAYOUT) == theirs


async def test_a_segment_in_the_wrong_folder_is_damage(dfs: Dfs) -> None:
    await closed_segment(dfs, segment(1), segment_bytes(run(1, 2, epoch=2), epoch=2))
    with pytest.raises(DamagedLog, match="wrong folder"):
        await read_frames(dfs, LAYOUT, 2)


async def test_copies_of_an_older_epoch_are_read_too(dfs: Dfs) -> None:
    copies, start = run(3, 2), a_frame(5, epoch=2, committed=4)
    await closed_segment(dfs, segment(2), segment_bytes([*copies, start], epoch=2))
    assert await read_frames(dfs, LAYOUT, 3) == [*copies, start]


async def test_where_a_remote_log_begins(dfs: Dfs) -> None:
    assert await begins_after(dfs, LAYOUT, 2) is None
    await closed_segment(dfs, segment(3), segment_bytes(run(30, 2, epoch=3), epoch=3))
    await closed_segment(dfs, segment(2, 1), segment_bytes([], epoch=2, first_seq=12))
    writer = await dfs.create(segment(2, 2))
    await writer.append(segment_bytes(run(12, 3, epoch=2), epoch=2))
    assert await begins_after(dfs, LAYOUT, 2) == 11, "also while it is open"
    await writer.close()
    await closed_segment(dfs, segment(1, 1), segment_bytes(run(5, 2)))
    assert await begins_after(dfs, LAYOUT, 2) == 4, "of whatever epoch is left"
    large = a_frame(3, value=noise(2 * FIRST_BYTES[0]).encode())
    await closed_segment(dfs, segment(1), segment_bytes([large]))
    assert await begins_after(dfs, LAYOUT, 2) == 2, "a large frame is read whole"
    await closed_segment(dfs, segment(1, index=0), segment_bytes(run(1, 1))[:-220])
    assert await begins_after(dfs, LAYOUT, 2) is None, "it cannot be told, so nothing is said"


async def test_where_a_remote_log_begins_whose_frames_are_padded(dfs: Dfs) -> None:
    await closed_segment(dfs, segment(1), segment_bytes([], alignment=512))
    assert await begins_after(dfs, LAYOUT, 2) is None
    await closed_segment(dfs, segment(1, 1), segment_bytes(run(5, 2), alignment=512))
    assert await begins_after(dfs, LAYOUT, 2) == 4
    assert await read_frames(dfs, LAYOUT, 2) == run(5, 2)


async def test_what_is_missing_from_a_remote_log_is_named(dfs: Dfs) -> None:
    assert await missing_from(dfs, LAYOUT, 2) == f"the claim {LAYOUT.claim(2)}"
    await claim(dfs, LAYOUT, 2, content_of("p"))
    every = f"every segment below {LAYOUT.epoch_folder(2)}"
    await closed_segment(dfs, segment(1), segment_bytes(run(1, 2)))
    assert await missing_from(dfs, LAYOUT, 2) == every
    await closed_segment(dfs, segment(2), b"")
    await closed_segment(dfs, segment(2, 1), segment_bytes([], epoch=2)[:40])
    assert await missing_from(dfs, LAYOUT, 2) == every
    writer = await dfs.create(segment(2, 2))
    await writer.append(segment_bytes([], epoch=2))
    assert await missing_from(dfs, LAYOUT, 2) is None, "also while it is open"
    await writer.close()
    await closed_segment(dfs, segment(2, 3), b"")
    assert await missing_from(dfs, LAYOUT, 2) is None
