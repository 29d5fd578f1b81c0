"""Segments of a remote log for tests: their names, and closed ones with given bytes."""

from __future__ import annotations

from remote_log.dfs.port import Dfs
from storage.log.segment import wal_name
from tests.remote_log.writing.remote_rig import LAYOUT


def segment(epoch: int, n: int = 0, index: int = 1) -> str:
    return LAYOUT.segment(epoch, wal_name(epoch, index), n)


async def closed_segment(dfs: Dfs, path: str, data: bytes) -> None:
    writer = await dfs.create(path)
    await writer.append(data)
    await writer.close()
