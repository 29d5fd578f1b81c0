"""Deletes remote segments that the peer does not need any more: what it has durably applied.

What always holds: only a segment that is proven closed, of this epoch or an older one, goes, and only when no frame in it
is above `durable_seq`; before one of an older epoch goes, what the history of this site has cut of it is kept aside
(left_out.py); what cannot be read is kept, if it is of an older epoch until the peer has the start of this one durably, and
then its bytes are kept aside; what cannot be deleted is tried again at the next call, and the call says so.
As long as there is a writer, the newest of its segments that has a header stays, closed or not: a takeover takes that, and
the claim, as the proof that it sees the remote log of this epoch (`missing_from`). So does the newest that has a frame: without
one, nothing would show that a storage or a WAL is an older copy. Claims below this epoch go too, its own and higher ones never.
The caller is the active, and got `durable_seq` from a peer that follows this epoch. It holds no lock: a round waits for the
DFS, and the writer may come, go and roll meanwhile. So what depends on the writer is asked again in the very step in which
a call that changes something is sent. In the steady state a round costs two listings, whatever the remote log holds.
Source: protocol.md section 7 (P7, P9).
"""

from __future__ import annotations

from typing import Protocol

from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import claimed_epochs
from remote_log.fencing.reading import read_segment, segments_of
from remote_log.layout import RemoteLayout
from remote_log.writing.left_out import Aside, LeftOut
from remote_log.writing.segments import went_back
from remote_log.writing.writer import RemoteWriter, SegmentInfo
from storage.log.encryption import NO_KEYS, Keyring
from twinlog.errors import DamagedLog, DfsError, TwinlogError


class Writers(Protocol):
    """The writers of the segments of this epoch, as of now."""

    @property
    def remote(self) -> RemoteWriter | None:
        """None: nobody; what was left open is closed by lease recovery."""

    @property
    def making_remote(self) -> bool:
        """One is being made: an open segment that `remote` does not know of may be its first."""


class Trimmer:
    """Trims one epoch of one log, which is open. Remembers the last sequence of each segment that another writer left."""

    def __init__(
        self, dfs: Dfs, layout: RemoteLayout, epoch: int, start_seq: int, aside: Aside, keys: Keyring = NO_KEYS
    ) -> None:
        """`start_seq`: the first sequence of this epoch. `keys`: of what it reads before it deletes it."""
        self._aside, self._keys = aside, keys
        self._dfs, self._layout, self._epoch, self._start_seq = dfs, layout, epoch, start_seq
        self._recovering: set[str] = set()
        self._last_seqs: dict[str, int] = {}
        self._failures: dict[str, int] = {}  # segments with a call that failed, by the number of the last failure
        self._claims_left = True
        self.damaged: tuple[str, ...] = ()  # segments that the last whole round could not read, and so kept

    async def trim(self, writers: Writers, durable_seq: int) -> list[str]:
        """One round, and one at a time; the paths of the segments deleted. Raises DfsError at the first call that fails, so
        that a DFS that does not answer costs one deadline; LogGap when a segment is gone that nobody deleted. What is damaged
        is kept, and named by `damaged`."""
        deleted: list[str] = []
        damaged: list[DamagedLog] = []
        epochs = await self._segments(writers)
        await self._look_at_older(epochs, durable_seq, damaged)
        needed = {path for path, own in _known(writers.remote).items() if not own.closed or own.last_seq > durable_seq}
        segments = [(epoch, path) for epoch, paths in epochs.items() for path in paths if path not in needed]
        for epoch, path in sorted(segments, key=lambda each: self._failures.get(each[1], 0)):  # one holds up no other for ever
            try:
                if await self._is_needless(epoch, path, writers, durable_seq):
                    await self._delete(path, writers.remote)
                    deleted.append(path)
            except DamagedLog as error:
                damaged.append(error)
            except TwinlogError as error:
                self._failures[path] = max(self._failures.values(), default=0) + 1
                raise _given_up(self._layout, str(error)) from error
        for epoch, paths in epochs.items():
            if epoch < self._epoch and not set(paths) - set(deleted):
                await self._dfs.delete(self._layout.epoch_folder(epoch))
        self.damaged = tuple(error.message for error in damaged)
        if writers.remote is not None and self._claims_left and not damaged:
            await self._delete_old_claims()
        return deleted

    async def _segments(self, writers: Writers) -> dict[int, list[str]]:
        """Paths by epoch, of this one and the older ones. What the writer had made before and is not there any more was deleted
        by a call whose answer was lost; or else the DFS went back to an earlier state, and LogGap is raised."""
        writer = writers.remote
        made = list(_known(writer))
        epochs: dict[int, list[str]] = {}
        for folder in await self._dfs.list(self._layout.folder):
            epoch = self._layout.parse_epoch(folder.name) if folder.is_folder else None
            if epoch is not None and epoch <= self._epoch:
                epochs[epoch] = await segments_of(self._dfs, self._layout, epoch)
        there = {path for paths in epochs.values() for path in paths}
        for path in made:
            if writer is not None and path not in there:
                if not writer.lets_go(path):
                    raise went_back(path, None)
                writer.forget(path)
        self._failures = {path: number for path, number in self._failures.items() if path in there}
        return epochs

    async def _look_at_older(self, epochs: dict[int, list[str]], durable_seq: int, damaged: list[DamagedLog]) -> None:
        """Notes the last sequence of each closed segment of an older epoch, once what is to be kept of it is kept aside. A
        damaged one goes to `damaged`, until the peer has all of its epoch anyhow; one that is open gets its lease recovered,
        and a later round finds it closed."""
        older = [path for epoch, paths in epochs.items() if epoch < self._epoch for path in paths]
        left_out, looked = LeftOut(self._dfs, self._layout, self._aside, self._keys), dict[str, int]()
        for path in sorted(set(older) - set(self._last_seqs), key=lambda each: (self._failures.get(each, 0), each)):
            try:
                if not await self._dfs.is_closed(path):
                    await self._recover(path)
                    continue
                try:
                    looked[path] = await left_out.look(path)
                except DamagedLog as error:
                    if durable_seq < self._start_seq:
                        damaged.append(error)
                        continue
                    await left_out.look_at_damaged(path)
                    looked[path] = self._start_seq  # all that an older epoch logged lies below
            except TwinlogError as error:
                self._failures[path] = max(self._failures.values(), default=0) + 1
                raise _given_up(self._layout, str(error)) from error
        await left_out.keep()
        self._last_seqs |= looked

    async def _is_needless(self, epoch: int, path: str, writers: Writers, durable_seq: int) -> bool:
        segment = _known(writers.remote).get(path)
        if segment is not None:
            last_seq = segment.last_seq if segment.closed else None
        else:
            last_seq = await self._last_seq(epoch, path, writers)
        if last_seq is None or last_seq > durable_seq:
            return False
        begun = [each for each in _known(writers.remote).values() if each.begun]
        written = [each for each in begun if each.last_seq >= each.first_seq]
        return path not in {each.path for each in (*begun[-1:], *written[-1:])}

    async def _delete(self, path: str, writer: RemoteWriter | None) -> None:
        """Forgets what is known of it first: as soon as it is deleted, another writer may give its name to another file."""
        self._last_seqs.pop(path, None)
        self._recovering.discard(path)
        if writer is not None:
            writer.let_go(path)
        await self._dfs.delete(path)
        if writer is not None:
            writer.forget(path)

    async def _last_seq(self, epoch: int, path: str, writers: Writers) -> int | None:
        """Returns the last sequence of a segment that another writer left; None while it is open, or is not to go. One that has
        no writer any more gets its lease recovered; a later round finds it closed. Raises DamagedLog."""
        if path in self._last_seqs or epoch < self._epoch:
            return self._last_seqs.get(path)
        if not await self._dfs.is_closed(path):
            if writers.remote is None and not writers.making_remote:
                await self._recover(path)
            return None
        frames = await read_segment(self._dfs, self._layout, path, keys=self._keys)
        self._last_seqs[path] = max((frame.last_seq for frame in frames), default=0)
        return self._last_seqs[path]

    async def _recover(self, path: str) -> None:
        if path not in self._recovering:
            await self._dfs.recover_lease(path)
            self._recovering.add(path)

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


def _known(writer: RemoteWriter | None) -> dict[str, SegmentInfo]:
    """The segments that it has surely made, oldest first."""
    return {segment.path: segment for segment in writer.segments} if writer is not None else {}


def _given_up(layout: RemoteLayout, why: str) -> DfsError:
    return DfsError(f"the remote log of pair {layout.pair} could not be trimmed, and it will be tried again: {why}")
