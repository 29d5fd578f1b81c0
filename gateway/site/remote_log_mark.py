"""A mark of the log that the active writes on this site's own DFS: while nobody appends it stays the same.

What always holds: whatever is appended changes it, also while a DFS zeroes a file ahead of its data, or lists an open one with
an earlier length (HDFS: that of its first sync); a file that was looked at before is read from near its end.
"""

from __future__ import annotations

import crc32c

from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout

MARKED_SEGMENTS = 2  # the one that is written, and the one that is made beforehand
MARKED_BYTES = 128 << 10  # more than a DFS zeroes ahead


class RemoteLogMark:
    """Marks the logs on one DFS, and remembers how far its last look went."""

    def __init__(self, dfs: Dfs, layout: RemoteLayout) -> None:
        self._dfs, self._layout = dfs, layout
        self._ends: dict[str, int] = {}

    async def look(self, epoch: int) -> int:
        """Returns the mark of that epoch's log, a checksum. Raises DfsError."""
        folder, mark, ends = self._layout.epoch_folder(epoch), 0, {}
        for entry in (await self._dfs.list(folder))[-MARKED_SEGMENTS:]:
            path = f"{folder}/{entry.name}"
            start = max(0, entry.length - MARKED_BYTES, self._ends.get(path, 0) - MARKED_BYTES)
            data = await self._dfs.read(path, start)
            ends[path] = start + len(data)
            mark = crc32c.crc32c(data[-MARKED_BYTES:], crc32c.crc32c(f"{entry.name} {ends[path]}".encode(), mark))
        self._ends = ends
        return mark
