"""The pair's values on one DFS: a folder of small numbered files, each made exclusively, the newest one counts.

What always holds:
- an entry goes behind the one that its author had read, or nowhere: the name of the next file is taken once; a file that an
  author with old knowledge makes below the newest, where others were deleted, is found out by its author and counts for nobody;
- each file holds the digest of the one before, by which an author who was overtaken at once sees that it did go in;
- old files are deleted from the lowest on, by whoever added one.
Source: protocol.md section 5, docs/decisions/2026-11-21-a-register-on-two-dfs.md.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import NamedTuple

import msgspec

from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
from storage.clock import Clock
from storage.disk.sealed_json import seal, unseal
from switchover.register.port import PairState
from twinlog.errors import DfsError, DfsExists, DfsNotFound

KEPT = 16
READ_ATTEMPTS = 4
_REMEDY = (
    "it holds who is active: look at the newest file of the register on the other site's DFS, and when its state_id is not "
    "below the one here, delete this file; it is copied anew"
)


class RegisterEntry(msgspec.Struct, frozen=True):
    """One file, as JSON and sealed: operators read it too."""

    after: str  # digest of the file before; empty for the first
    site: str  # whose gateway wrote it
    wall_ms: int
    value: PairState


class Tip(NamedTuple):
    """The newest entry. Number 0 and no value: the folder is empty."""

    number: int
    digest: str
    value: PairState | None


EMPTY = Tip(0, "", None)


class RegisterFolder:
    """The folder on one DFS, for the gateway of `site`. Raises DfsError when that DFS does not answer."""

    def __init__(self, dfs: Dfs, layout: RemoteLayout, site: str, clock: Clock) -> None:
        self._dfs, self._layout, self._site, self._clock = dfs, layout, site, clock

    async def tip(self) -> Tip:
        """Raises DamagedLog for a newest file that cannot be read: it must not look like an older value."""
        for _ in range(READ_ATTEMPTS):
            number = max(await self._numbers(), default=0)
            if number == 0:
                return EMPTY
            with suppress(DfsNotFound):  # newer ones came, and it was deleted
                return await self._read(number)
        raise DfsError(f"the files of {self._layout.register_folder} change too fast to be read")

    async def add(self, tip: Tip, value: PairState) -> Tip | None:
        """`value` behind `tip`; None when something else is there. After a DfsError it may have gone in all the same."""
        number = tip.number + 1
        content = seal(RegisterEntry(tip.digest, self._site, self._clock.wall_ms(), value))
        added = Tip(number, _digest(content), value)
        try:
            await self._dfs.create_file(self._layout.register_file(number), content)
        except DfsExists:
            return None
        numbers = await self._numbers()
        if max(numbers, default=0) > number:
            return added if await self._was_followed(added) else None
        await self._trim(numbers, number)
        return added

    async def _was_followed(self, added: Tip) -> bool:
        """There is a higher one: did it come behind ours, or did ours come where older ones had been deleted?"""
        try:
            follower = self._decoded(added.number + 1, await self._dfs.read(self._layout.register_file(added.number + 1)))
        except DfsNotFound:  # deleted; had it come behind ours, ours would have been deleted before it
            try:
                await self._dfs.read(self._layout.register_file(added.number))
            except DfsNotFound:
                raise DfsError(
                    f"{KEPT} changes came behind number {added.number} before it could be looked at again: it may have taken "
                    "place; read the value", path=self._layout.register_folder,
                ) from None
            return False
        return follower.after == added.digest

    async def _numbers(self) -> list[int]:
        parsed = [self._layout.parse_register(entry.name) for entry in await self._dfs.list(self._layout.register_folder)]
        return sorted(number for number in parsed if number is not None)

    async def _read(self, number: int) -> Tip:
        content = await self._dfs.read(self._layout.register_file(number))
        return Tip(number, _digest(content), self._decoded(number, content).value)

    def _decoded(self, number: int, content: bytes) -> RegisterEntry:
        return unseal(content, RegisterEntry, self._layout.register_file(number), _REMEDY)

    async def _trim(self, numbers: list[int], newest: int) -> None:
        with suppress(DfsError):  # the next author deletes them
            for number in numbers:
                if number <= newest - KEPT:
                    await self._dfs.delete(self._layout.register_file(number))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
