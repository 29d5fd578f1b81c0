"""Deletes remote segments that the peer does not need any more: what it has durably applied.

What always holds: only a segment that is proven closed, of this epoch or an older one, goes, and only when no frame in it
is above `durable_seq`; what cannot be read is kept; what cannot be deleted is tried again at the next call, and the call
says so. The caller is the active, holds the cursor registry's lock, and got `durable_seq` from a peer that follows this
epoch. Source: protocol.md section 7 (P7, P9).
"""

from __future__ import annotations

from remote_log.claims import read_segment, segments_of
from remote_log.dfs import Dfs
from remote_log.layout import RemoteLayout
from remote_log.writer import RemoteWriter
from storage.errors import DfsError, TwinlogError


class Trimmer:
    """Of one epoch of one log. Remembers the last sequence of each segment that another writer left."""

    def __init__(self, dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
        self._dfs, self._layout, self._epoch = dfs, layout, epoch
        self._recovering: set[str] = set()
        self._last_seqs: dict[str, int] = {}

    async def trim(self, writer: RemoteWriter, durable_seq: int) -> list[str]:
        """The paths deleted. Raises DfsError after everything else was tried when a segment could not be read or deleted,
        or at once when the folders cannot be listed."""
        deleted: list[str] = []
        failures: list[TwinlogError] = []
        for folder in await self._dfs.list(self._layout.folder):
            epoch = self._layout.parse_epoch(folder.name) if folder.is_folder else None
            if epoch is None or epoch > self._epoch:
                continue
            paths = await segments_of(self._dfs, self._layout, epoch)
            gone = await self._trim_paths(paths, epoch, writer, durable_seq, failures)
            deleted += gone
            if len(gone) == len(paths) and epoch < self._epoch:
                await self._dfs.delete(self._layout.epoch_folder(epoch))
        if failures:
            raise DfsError(
                f"{len(failures)} segments of the remote log could not be trimmed, and will be tried again: {failures[0]}",
                failures=[str(failure) for failure in failures],
            )
        return deleted

    async def _trim_paths(
        self, paths: list[str], epoch: int, writer: RemoteWriter, durable_seq: int, failures: list[TwinlogError]
    ) -> list[str]:
        own = {segment.path: segment for segment in writer.segments}
        gone = []
        for path in paths:
            try:
                if path in own:
                    last_seq = own[path].last_seq if own[path].closed else None
                else:
                    last_seq = await self._last_seq(path, epoch)
                if last_seq is None or last_seq > durable_seq:
                    continue
                await self._dfs.delete(path)
            except TwinlogError as error:
                failures.append(error)
                continue
            writer.forget(path)
            self._last_seqs.pop(path, None)
            self._recovering.discard(path)
            gone.append(path)
        return gone

    async def _last_seq(self, path: str, epoch: int) -> int | None:
        """Of a segment that another writer left; None while it is open. One of an older epoch, made by a writer that was
        fenced before it wrote anything, gets its lease recovered; a later call finds it closed."""
        if path in self._last_seqs:
            return self._last_seqs[path]
        if not await self._dfs.is_closed(path):
            if epoch < self._epoch and path not in self._recovering:
                await self._dfs.recover_lease(path)
                self._recovering.add(path)
            return None
        frames = await read_segment(self._dfs, self._layout, path)
        self._last_seqs[path] = max((frame.last_seq for frame in frames), default=0)
        return self._last_seqs[path]
