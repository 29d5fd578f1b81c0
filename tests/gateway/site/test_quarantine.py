"""Quarantined rows of several files: all changes of one row are merged together, in their order."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.site import quarantine as merging
from gateway.site.quarantine import Merge, RowChange, merge_quarantine
from remote_log.replication.messages import MergeReply, MergeRequest
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from switchover.quarantine import QUARANTINE, Quarantine
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, later
from twinlog.errors import PeerError, Refused


class Active:
    """Merges what it has, and says what it has not."""

    def __init__(self, *absent: bytes) -> None:
        self.asked: list[list[tuple[bytes, int]]] = []
        self._absent = absent

    async def merge(self, request: MergeRequest) -> MergeReply:
        self.asked.append([(row[2], row[4]) for row in request.rows])
        gone = [(row[0], row[2]) for row in request.rows if row[2] in self._absent]
        return MergeReply(len(request.rows) - len(gone), len(gone), gone)


def updating(frame: Frame) -> Frame:
    """The same changes, of some columns each."""
    return make_frame(
        epoch=frame.epoch, first_seq=frame.first_seq, previous=frame.previous, timestamp=frame.timestamp, committed=0,
        records=[msgspec.structs.replace(record, kind=RecordKind.UPDATE) for record in frame.records],
    )


async def _in_groups(frames: list[Frame]) -> AsyncGenerator[list[Frame], None]:
    for at in range(0, len(frames), 3):
        yield frames[at : at + 3]


async def files_with(*several: list[Frame]) -> MemoryFiles:
    files = MemoryFiles()
    quarantine = Quarantine("a", files, MemoryEngine())
    for frames in several:
        await quarantine.put(partial(_in_groups, frames))
    return files


async def test_changes_of_one_row_in_several_files_go_in_one_part_and_in_their_order() -> None:
    """The first one that is merged is the newest change of its row from then on, and hides what is merged behind it."""
    old, new = updating(a_frame(900)), updating(later(a_frame(900, epoch=2), 200))
    files = await files_with([new], [old, a_frame(1000)])
    active = Active()
    await merge_quarantine(files, active.merge, {}, put_absent=False)
    assert active.asked == [[(b"k1000", 1000), (b"k900", 900), (b"k900", 1100)]]
    assert {name.rpartition(".")[2] for name in await files.list(QUARANTINE)} == {"json", "merged"}


async def test_each_file_with_a_row_that_the_active_does_not_have_stays() -> None:
    files = await files_with([a_frame(1)], [a_frame(2), a_frame(3)])
    await merge_quarantine(files, Active(b"k2").merge, {}, put_absent=False)
    assert [name for name in await files.list(QUARANTINE) if name.endswith(".frames")] == ["000000000001-2.frames"]
    listed = json.loads(await files.read(f"{QUARANTINE}/000000000001-2.absent"))
    assert (listed["absent_at_the_active"], [row["key"] for row in listed["rows"]]) == (1, [b"k2".hex()])
    await merge_quarantine(files, Active().merge, {}, put_absent=True)
    assert {name.rpartition(".")[2] for name in await files.list(QUARANTINE)} == {"json", "merged"}


class Table:
    """The rows of an active: a key has its columns and the version of its last change. As `PeerApi.merge`, in small."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {b"k3": (b"there", 5), b"k5": (b"newer", 10**6)}
        self.calls, self._fails_at = 0, fails_at
        self.asked: list[set[bytes]] = []
        self._now = 10**9

    async def merge(self, request: MergeRequest) -> MergeReply:
        self.calls += 1
        if self.calls == self._fails_at:
            raise PeerError("injected")
        self.asked.append({row[2] for row in request.rows})
        merged, absent = 0, list[tuple[int, bytes]]()
        for key in dict.fromkeys(row[2] for row in request.rows):
            changes = [row for row in request.rows if row[2] == key]
            assert [row[4] for row in changes] == sorted(row[4] for row in changes)
            row = self.rows.get(key)
            if row is None and not request.put_absent:
                if changes[-1][1] != "delete":
                    absent.append((1, key))
                continue
            for _, op, _, value, version in changes:
                row = self.rows.get(key)
                if (row is not None and row[1] < 10**9 and version <= row[1]) or (row is None and op == "update"):
                    continue
                merged += 1
                if op == "delete":
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = ((row[0] if row and op == "update" else b"") + value, self._now)
        return MergeReply(merged, len(request.rows) - merged, absent)


KINDS = [RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE]
CHANGES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9)), min_size=1, max_size=60)


async def quarantined(changes: list[tuple[RecordKind, int]], files_count: int) -> MemoryFiles:
    """The changes, in this order of time, dealt out to so many files."""
    several: list[list[Frame]] = [[] for _ in range(files_count)]
    for number, (kind, key) in enumerate(changes, 1):
        record = Record(kind, 1, b"k%d" % key, b"" if kind == RecordKind.DELETE else b"v%d" % number)
        several[number * 7 % files_count].append(make_frame(
            epoch=1, first_seq=number, previous=number - 1, timestamp=number * 3, committed=0, records=[record]
        ))
    return await files_with(*[frames for frames in several if frames])


@settings(max_examples=100, deadline=None)
@given(CHANGES, st.integers(1, 3), st.booleans(), st.integers(1, 2000), st.none() | st.integers(1, 12))
async def test_a_merge_in_small_windows_that_is_cut_off_ends_as_one_of_all_rows(
    changes: list[tuple[RecordKind, int]], files_count: int, put_absent: bool, window_bytes: int, fails_at: int | None
) -> None:
    whole, small = Table(), Table(fails_at=fails_at)
    files = await quarantined(changes, files_count)
    await merge_quarantine(files, whole.merge, {}, put_absent=put_absent)
    left = [name for name in await files.list(QUARANTINE) if name.endswith((".frames", ".absent", ".position"))]
    files = await quarantined(changes, files_count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "WINDOW_BYTES", window_bytes)
        patch.setattr(merging, "MERGE_CHUNK", 2)
        try:
            await merge_quarantine(files, small.merge, {}, put_absent=put_absent)
        except PeerError:
            await merge_quarantine(files, small.merge, {}, put_absent=put_absent)
    assert {key: row[0] for key, row in small.rows.items()} == {key: row[0] for key, row in whole.rows.items()}
    assert [name for name in await files.list(QUARANTINE) if name.endswith((".frames", ".absent", ".position"))] == left


async def test_a_merge_that_was_cut_off_continues_behind_the_rows_that_it_had_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WINDOW_BYTES", 3 * merging.CHANGE_BYTES)
    files = await quarantined([(RecordKind.UPSERT, key) for key in range(10)], 2)
    active = Table(fails_at=3)
    with pytest.raises(PeerError):
        await merge_quarantine(files, active.merge, {}, put_absent=True)
    before = list(active.asked)
    found = await merge_quarantine(files, active.merge, {}, put_absent=True)
    assert len(before) == 2
    assert not set[bytes]().union(*before) & set[bytes]().union(*active.asked[2:])
    assert found["merged_changes"] + found["skipped_changes"] == 10
    assert "merging.position" not in await files.list(QUARANTINE)


@pytest.fixture
def counts_objects() -> Iterator[None]:
    """Objects that were there before are not looked through: that would take a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def held_bytes() -> int:
    """The bytes of all frames and changes in memory."""
    found = 0
    for each in gc.get_objects():
        if isinstance(each, Frame):
            found += len(each.data)
        elif isinstance(each, RowChange):
            found += len(each.value)
    return found


@pytest.mark.usefixtures("counts_objects")
async def test_a_merge_holds_no_more_than_a_window_and_a_piece_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarantine of 500 MB took 7 GB. What is held is counted whenever the merge asks for something."""
    monkeypatch.setattr("storage.log.wal_reading._CHUNK_BYTES", 4096)
    monkeypatch.setattr(merging, "WINDOW_BYTES", 40_000)
    held: list[int] = []

    class Counted(MemoryFiles):
        async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            held.append(held_bytes() + (length or await self.size(path)))
            return await super().read(path, offset, length)

    async def counted(request: MergeRequest) -> MergeReply:
        held.append(held_bytes())
        return MergeReply(len(request.rows), 0, [])

    files, filled = Counted(), await files_with(run_of(400))
    files.files, total = filled.files, await filled.size(f"{QUARANTINE}/000000000001-1.frames")
    del filled
    held.clear()
    merge: Merge = counted
    await merge_quarantine(files, merge, {}, put_absent=True)
    assert total > 400_000
    assert max(held) < 2 * 20_000 + 5 * 4096


def run_of(count: int) -> list[Frame]:
    return [a_frame(number, value=b"%04d" % number * 250) for number in range(1, count + 1)]


async def test_a_row_with_more_changes_than_a_message_takes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "ROWS_MAX", 5)
    columns: list[Any] = [(RecordKind.UPDATE, 4)] * 6
    files = await quarantined(columns, 1)
    with pytest.raises(Refused, match="more than 5 changes of one row of table 1"):
        await merge_quarantine(files, Table().merge, {}, put_absent=True)
    files = await quarantined([*columns, (RecordKind.UPSERT, 4), (RecordKind.DELETE, 4), (RecordKind.UPSERT, 4)], 1)
    monkeypatch.setattr(merging, "ROWS_MAX", 7)
    active = Table()
    await merge_quarantine(files, active.merge, {}, put_absent=True)
    assert active.rows[b"k4"][0] == b"v9", "of whole rows only the last one counts"
