"""Reads the segments that older epochs left in a remote log, before anything of them is deleted.

What always holds: a frame of an older epoch that the history of the active does not contain is kept aside, durably, before its
segment may be deleted: the other logs may never have had it (an active that opened on an older copy of its disk, without this
remote log). So are the bytes of a damaged segment, for nobody knows what stood there.
Source: protocol.md section 7 (what is deleted, and the proof before it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from remote_log.dfs.port import Dfs
from remote_log.fencing.reading import read_segment
from remote_log.layout import RemoteLayout
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.frame import Frame
from storage.log.segment import frames_before_damage
from twinlog.errors import DamagedLog

GATHERED_BYTES = 64 << 20  # some segments of the usual size; the frames that a later one cuts off are then kept, too


class Aside(Protocol):
    """The place of the site for what its log does not contain."""

    def cut_off(self, frames: Sequence[Frame]) -> list[Frame]:
        """Those of `frames`, of older epochs, that the history of the active here does not contain."""

    async def keep(self, cut_off: Sequence[Frame], damaged: Mapping[str, bytes]) -> None:
        """Durable when it returns; may be repeated. `damaged`: whole segments, by path."""


class LeftOut:
    """Gathers what is to be kept of several segments, so that all of it is kept at once; or, above `GATHERED_BYTES`, as often
    as so much has come together."""

    def __init__(self, dfs: Dfs, layout: RemoteLayout, aside: Aside, keys: Keyring = NO_KEYS) -> None:
        self._dfs, self._layout, self._aside, self._keys = dfs, layout, aside, keys
        self._cut_off: list[Frame] = []
        self._damaged: dict[str, bytes] = {}
        self._bytes = 0

    async def look(self, path: str) -> int:
        """Reads a closed segment of an older epoch; its last sequence, 0: it has no frame. Raises DamagedLog, DfsError,
        and KeyUnavailable: it is neither kept aside then, nor to be deleted."""
        return await self._note(await read_segment(self._dfs, self._layout, path, keys=self._keys))

    async def look_at_damaged(self, path: str) -> None:
        """The same of a damaged one, as far as it can be read. Its bytes are kept, too."""
        self._damaged[path] = data = await self._dfs.read(path)
        self._bytes += len(data)
        await self._note(frames_before_damage(data, path, keys=self._keys))

    async def look_anyhow(self, path: str) -> None:
        """The same of one that may be damaged."""
        try:
            await self.look(path)
        except DamagedLog:
            await self.look_at_damaged(path)

    async def keep(self) -> None:
        """From here on what was looked at may be deleted."""
        if self._cut_off or self._damaged:
            await self._aside.keep(self._cut_off, self._damaged)
        self._cut_off, self._damaged, self._bytes = [], {}, 0

    async def _note(self, frames: Sequence[Frame]) -> int:
        cut_off = self._aside.cut_off(frames)
        self._cut_off += cut_off
        self._bytes += sum(len(frame.data) for frame in cut_off)
        if self._bytes >= GATHERED_BYTES:
            await self.keep()
        return max((frame.last_seq for frame in frames), default=0)
