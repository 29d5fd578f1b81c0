"""Quarantined rows of several files: all changes of one row are merged together, in their order."""

from __future__ import annotations

import json

from gateway.site.quarantine import merge_quarantine
from remote_log.replication.messages import MergeReply, MergeRequest
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import Frame
from switchover.quarantine import QUARANTINE, Quarantine
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, later


class Active:
    """Merges what it has, and says what it has not."""

    def __init__(self, *absent: bytes) -> None:
        self.asked: list[list[tuple[bytes, int]]] = []
        self._absent = absent

    async def merge(self, request: MergeRequest) -> MergeReply:
        self.asked.append([(row[2], row[4]) for row in request.rows])
        gone = [(row[0], row[2]) for row in request.rows if row[2] in self._absent]
        return MergeReply(len(request.rows) - len(gone), len(gone), gone)


async def files_with(*several: list[Frame]) -> MemoryFiles:
    files = MemoryFiles()
    quarantine = Quarantine("a", files, MemoryEngine())
    for frames in several:
        await quarantine.put(frames)
    return files


async def test_changes_of_one_row_in_several_files_go_in_one_part_and_in_their_order() -> None:
    """The first one that is merged is the newest change of its row from then on, and hides what is merged behind it."""
    old, new = a_frame(900), later(a_frame(900, epoch=2), 200)
    files = await files_with([new], [old, a_frame(1000)])
    active = Active()
    await merge_quarantine(files, active.merge, put_absent=False)
    assert active.asked == [[(b"k900", 900), (b"k900", 1100), (b"k1000", 1000)]]
    assert {name.rpartition(".")[2] for name in await files.list(QUARANTINE)} == {"json", "merged"}


async def test_each_file_with_a_row_that_the_active_does_not_have_stays() -> None:
    files = await files_with([a_frame(1)], [a_frame(2), a_frame(3)])
    await merge_quarantine(files, Active(b"k2").merge, put_absent=False)
    assert [name for name in await files.list(QUARANTINE) if name.endswith(".frames")] == ["000000000001-2.frames"]
    manifest = json.loads(await files.read(f"{QUARANTINE}/000000000001-2.json"))
    assert [row["key"] for row in manifest["absent_at_the_active"]] == [b"k2".hex()]
