"""Small helpers for tests of the remote writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.log.frame import Frame
from storage.log.segment import scan_segment, wal_name
from tests.remote_log.dfs.memory_dfs import MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, NotingWriter

Make = Callable[..., NotingWriter]


def held(dfs: MemoryDfs) -> dict[str, list[int]]:
    """Segment number -> first sequences of its frames, as a reader finds them."""
    return {
        path[-6:]: [frame.first_seq for frame in scan_segment(bytes(file.data), path).frames]
        for path, file in sorted(dfs.disk.files.items()) if "/claims/" not in path
    }


def path_of(n: int) -> str:
    return LAYOUT.segment(1, wal_name(1, 1), n)


async def submit_all(writer: NotingWriter, frames: list[Frame]) -> None:
    """Each in a turn of its own, so that each may become an append of its own."""
    for frame in frames:
        writer.submit(frame)
        await asyncio.sleep(0)
