"""The quarantine of what a remote log held and the history of the active has cut: its content and its names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from remote_log.writing.left_out import LeftOut
from storage.engine import EpochEntry
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from switchover.quarantine import QUARANTINE, Quarantine
from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.fencing.segments import closed_segment, segment
from tests.remote_log.writing.remote_rig import LAYOUT
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, run, segment_bytes


def quarantine(files: MemoryFiles) -> Quarantine:
    """The quarantine of an active whose epoch 2 began behind sequence 8 of epoch 1."""
    engine = MemoryEngine()
    history = (EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(2, 9, 8, "a", "restart"))
    engine._state.epochs = {entry.epoch: entry for entry in history}
    return Quarantine("a", files, engine)


async def kept(files: MemoryFiles) -> list[list[int]]:
    names = [name for name in await files.list(QUARANTINE) if name.endswith(".json")]
    manifests = [json.loads(await files.read(f"{QUARANTINE}/{name}")) for name in names]
    return [[key["seq"] for key in manifest["keys"]] for manifest in manifests]


def a_noop(first_seq: int, previous: int) -> Frame:
    return make_frame(
        epoch=1, first_seq=first_seq, previous=previous, timestamp=first_seq, committed=0, records=[Record(RecordKind.NOOP)]
    )


async def test_what_lies_behind_the_recorded_end_of_its_epoch_is_kept_and_what_its_own_epoch_cut_is_not() -> None:
    files = MemoryFiles()
    found = quarantine(files)
    frames = [*run(1, 11), a_frame(14, previous=10), a_noop(15, 14), a_frame(5, epoch=7)]
    cut = found.cut_off(frames)
    assert [frame.first_seq for frame in cut] == [9, 10, 11, 14, 15, 5]
    await found.keep(cut, {})
    assert await kept(files) == [[9, 10, 14, 5]]
    assert found.left_out is not None
    assert "4 records of epoch 1: quarantine/" in found.left_out


async def test_the_same_is_kept_once_and_another_end_of_it_is_kept_too() -> None:
    """An attempt that was cut off by a crash saw less of the remote log."""
    files = MemoryFiles()
    for last in (2, 2, 3):
        found = quarantine(files)
        await found.keep(found.cut_off(run(9, last)), {})
    assert sorted(await kept(files)) == [[9, 10], [9, 10, 11]]


async def test_marks_are_nobodys_loss_and_a_damaged_segment_is_kept_as_it_is() -> None:
    files = MemoryFiles()
    found = quarantine(files)
    await found.keep(found.cut_off([a_noop(9, 8)]), {"/twinlog/p/0/000000000001/1-2.3": b"bytes"})
    assert await files.list(QUARANTINE) == ["000000000001-1-2.3.damaged"]
    assert await files.read(f"{QUARANTINE}/000000000001-1-2.3.damaged") == b"bytes"
    assert found.left_out is None


async def test_what_many_segments_held_is_kept_before_too_much_of_it_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    files, dfs = MemoryFiles(), MemoryDfs()
    aside, kept_bytes = quarantine(files), list[int]()
    keep = aside.keep

    async def counted(cut_off: Sequence[Frame], damaged: Mapping[str, bytes]) -> None:
        kept_bytes.append(sum(len(frame.data) for frame in cut_off))
        await keep(cut_off, damaged)

    monkeypatch.setattr(aside, "keep", counted)
    monkeypatch.setattr("remote_log.writing.left_out.GATHERED_BYTES", 500)
    gathered = LeftOut(dfs, LAYOUT, aside)
    for number in range(9):
        await closed_segment(dfs, segment(1, number), segment_bytes(run(9 + number * 3, 3), zeros=0))
        assert await gathered.look(segment(1, number)) == 11 + number * 3
    await gathered.keep()
    assert len(kept_bytes) > 2
    assert max(kept_bytes) < 500 + 3 * len(run(9, 1)[0].data)
    assert sorted(seq for several in await kept(files) for seq in several) == list(range(9, 36))
