"""Deletes remote segments that the peer does not need any more: what it has durably applied.

What always holds: only a segment that is proven closed, of this epoch or an older one, goes, and only when no frame in it
is above `durable_seq`; what cannot be read is kept; what cannot be deleted is tried again at the next call, and the call
says so. As long as there is a writer, the newest of its segments that has a header stays, closed or not: a takeover takes
that, and the claim, as the proof that it sees the remote log of this epoch (claims.missing_from). Claims below this epoch
go too, its own and higher ones never.
The caller is the active, holds the cursor registry's lock, and got `durable_seq` from a peer that follows this epoch. In
the steady state a call costs two listings, whatever the remote log holds. Source: protocol.md section 7 (P7, P9).
"""

from __future__ import annotations

from remote_log.claims import claimed_epochs, read_segment, segments_of
from remote_log.dfs import Dfs
from remote_log.layout import RemoteLayout
from remote_log.writer import RemoteWriter
from storage.errors import DfsError, TwinlogError


class Trimmer:
    """Of one epoch of one log, which is open. Remembers the last sequence of each segment that another writer left."""

    def __init__(self, dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
        self._dfs, self._layout, self._epoch = dfs, layout, epoch
        self._recovering: set[str] = set()
        self._last_seqs: dict[str, int] = {}
        self._claims_left = True

    async def trim(self, writer: RemoteWriter | None, durable_seq: int) -> list[str]:
        """The paths of the segments deleted. `writer` None: there is none in this epoch now, and none is made before this
        call ends; so a segment of this epoch that is open was left by one that is gone, and is closed by lease recovery.

        Raises DfsError after everything else was tried when a segment could not be read or deleted, or at once when the
        folders cannot be listed."""
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
        if writer is not None and self._claims_left:
            await self._delete_old_claims()
        return deleted

    async def _trim_paths(
        self, paths: list[str], epoch: int, writer: RemoteWriter | None, durable_seq: int, failures: list[TwinlogError]
    ) -> list[str]:
        segments = writer.segments if writer is not None else []
        own = {segment.path: segment for segment in segments}
        kept = next((segment.path for segment in reversed(segments) if segment.begun), None)
        if writer is not None and epoch == self._epoch:
            for segment in segments:
                if segment.closed and segment.path not in paths:  # deleted by a call whose answer was lost
                    writer.forget(segment.path)
        gone = []
        for path in paths:
            try:
                if path in own:
                    last_seq = own[path].last_seq if own[path].closed else None
                else:
                    last_seq = await self._last_seq(path, recover=epoch < self._epoch or writer is None)
                if last_seq is None or last_seq > durable_seq or path == kept:
                    continue
                await self._dfs.delete(path)
            except TwinlogError as error:
                failures.append(error)
                continue
            if writer is not None:
                writer.forget(path)
            self._last_seqs.pop(path, None)
            self._recovering.discard(path)
            gone.append(path)
        return gone

    async def _last_seq(self, path: str, *, recover: bool) -> int | None:
        """Of a segment that another writer left; None while it is open. With `recover`, one that has no writer any more gets
        its lease recovered; a later call finds it closed."""
        if path in self._last_seqs:
            return self._last_seqs[path]
        if not await self._dfs.is_closed(path):
            if recover and path not in self._recovering:
                await self._dfs.recover_lease(path)
                self._recovering.add(path)
            return None
        frames = await read_segment(self._dfs, self._layout, path)
        self._last_seqs[path] = max((frame.last_seq for frame in frames), default=0)
        return self._last_seqs[path]

    async def _delete_old_claims(self) -> None:
        """Once in an epoch, after its opening fenced every older one. Only below its own claim, so that whoever lists the
        claims to see whether it is fenced still meets a higher one."""
        claims = await claimed_epochs(self._dfs, self._layout)
        if self._epoch not in claims:
            raise DfsError(f"{self._layout.claim(self._epoch)} is gone: older claims are left as they are")
        for epoch in claims:
            if epoch < self._epoch:
                await self._dfs.delete(self._layout.claim(epoch))
        self._claims_left = False
