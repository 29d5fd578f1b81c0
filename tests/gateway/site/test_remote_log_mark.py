"""Guards that the mark of a remote log changes with each append, also where a DFS does not know the length of an open file."""

from __future__ import annotations

from gateway.site.remote_log_mark import MARKED_BYTES, RemoteLogMark
from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.fencing.segments import segment
from tests.remote_log.writing.remote_rig import LAYOUT


class CountingDfs(MemoryDfs):
    """Counts the bytes that it gives."""

    read_bytes = 0

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = await super().read(path, offset, length)
        self.read_bytes += len(data)
        return data


async def test_each_append_changes_it_and_nothing_else_does() -> None:
    dfs = CountingDfs()
    writer = await dfs.create(segment(1))
    mark = RemoteLogMark(dfs, LAYOUT)
    seen = [await mark.look(1)]
    for size in (1, 512, 3 * MARKED_BYTES, 1, MARKED_BYTES):
        await writer.append(bytes(size))
        seen.append(await mark.look(1))
        assert await mark.look(1) == seen[-1]
        assert await RemoteLogMark(dfs, LAYOUT).look(1) == seen[-1], "whoever looks for the first time sees the same"
    assert len(set(seen)) == len(seen)
    await writer.close()
    assert await mark.look(1) == seen[-1]


async def test_a_file_that_was_looked_at_before_is_read_from_near_its_end() -> None:
    dfs = CountingDfs()
    await (await dfs.create(segment(1))).append(bytes(100 * MARKED_BYTES))
    mark = RemoteLogMark(dfs, LAYOUT)
    await mark.look(1)
    dfs.read_bytes = 0
    await mark.look(1)
    assert dfs.read_bytes == MARKED_BYTES


async def test_a_file_that_went_back_has_another_mark_and_is_followed_again() -> None:
    dfs = CountingDfs()
    await (await dfs.create(segment(1))).append(bytes(5 * MARKED_BYTES))
    mark = RemoteLogMark(dfs, LAYOUT)
    before = await mark.look(1)
    del dfs.disk.files[segment(1)].data[1000:]
    for _ in range(6):
        after = await mark.look(1)
    assert after == await RemoteLogMark(dfs, LAYOUT).look(1) != before
