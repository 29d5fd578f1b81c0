"""The understanding of two sites: what both can read, so that two releases work together in one pair.

Each site says which versions of each format it reads, and writes at most the version that both read.

What always holds:
- a newer version is written only after both sites have noted, durably, that both read it; from then on no site is followed or
  led that does not read it, and no gateway that does not read it opens this data directory;
- the note outlives the other site, so that a lost one makes nobody forget, and a new one with an older release is refused;
- a call of another version of the protocol is refused, and never half-understood.
The invitation to follow, its answer and the answer to STATUS carry the word of each site (messages.py).
Source: docs/decisions/2026-11-28-rolling-upgrade.md.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from types import MappingProxyType

import msgspec

from remote_log.replication.formats import BOTH, CALLS, FORMATS, NONE, SILENT, conflict, named, shown
from remote_log.replication.messages import Says
from storage.disk.port import Files
from storage.disk.sealed_json import seal, unseal
from twinlog.errors import Incompatible

try:
    RELEASE = importlib.metadata.version("twinlog")
except importlib.metadata.PackageNotFoundError:
    RELEASE = "source"

OWN = Says(RELEASE, dict(FORMATS))
PATH = "formats/written.json"
_REMEDY = (
    "it says which versions of the formats this site may have written: delete it only where both sites run the newest release "
    "that either of them ever ran, and start the gateway again"
)


class Written(msgspec.Struct, frozen=True):
    """The content of the note. `formats`: the highest version of each that may have been written; `release`: the newest that
    noted one."""

    release: str
    formats: dict[str, int]


class Understanding:
    """`own`: what this gateway says of itself. `written`: the note of the last process, whose versions it reads."""

    def __init__(self, files: Files, own: Says = OWN, written: Written | None = None) -> None:
        self._files, self.own = files, own
        self._take(written or Written(own.release, {}))
        self.peer: Says | None = None  # the newest word of the other site; None: this process has not heard it
        self.conflict: str | None = None  # why the other site, as it was last heard, does not fit this one
        self._noting = asyncio.Lock()

    @classmethod
    async def open(cls, files: Files, own: Says = OWN) -> Understanding:
        """Raises Incompatible when another release may have written what this one does not read; DamagedLog for a note that
        cannot be understood. Nothing else of the data directory needs to be read before."""
        folder, _, name = PATH.rpartition("/")
        if name not in await files.list(folder):
            return cls(files, own)
        written = unseal(await files.read(PATH), Written, PATH, _REMEDY)
        for what, version in sorted(written.formats.items()):
            lowest, highest = own.formats.get(what, NONE)
            if not lowest <= version <= highest:
                raise Incompatible(
                    f"{PATH} in the data directory says that version {version} of the format {what!r} is in use since release "
                    f"{written.release} ran at both sites, and {named(own)} reads {shown((lowest, highest))}: start release "
                    f"{written.release} or a later one; nothing was changed",
                    file=PATH, release=written.release,
                )
        return cls(files, own, written)

    @property
    def noted(self) -> Written:
        return self._written

    def writes(self, what: str) -> int:
        """The version of the format `what` that this site writes: at most that one, where a setting chooses among several."""
        return self._writes[what]

    def _take(self, written: Written) -> None:
        self._written = written
        self._writes = MappingProxyType({
            what: max(lowest, SILENT.formats.get(what, NONE)[1], written.formats.get(what, 0))
            for what, (lowest, _) in self.own.formats.items()
        })

    def check_call(self, protocol: int) -> None:
        """Raises Incompatible for a call of a version of the protocol that this release does not read."""
        lowest, highest = self.own.formats[CALLS]
        if not lowest <= protocol <= highest:
            raise Incompatible(
                f"the call is of version {protocol} of the protocol between the sites, and {named(self.own)} here reads "
                f"{shown((lowest, highest))}: {BOTH}", release=self.own.release,
            )

    def check(self, says: Says | None) -> None:
        """Takes the other site's word; None: its release says nothing. Raises Incompatible when it does not fit this one."""
        self.peer = says or SILENT
        self.conflict = conflict(self.own, self.peer, self._written.formats, self._written.release)
        if self.conflict is not None:
            raise Incompatible(self.conflict, release=self.peer.release)

    async def hear(self, says: Says | None) -> None:
        """As `check`; and what both sites can read is noted durably, and may be written when this returns. Raises Incompatible:
        nothing is noted, and nothing may be replicated."""
        self.check(says)
        async with self._noting:
            other, own = (says or SILENT).formats, self.own.formats
            both = {what: min(highest, other.get(what, NONE)[1]) for what, (_, highest) in own.items()}
            newer = {what: version for what, version in both.items() if version > self.writes(what)}
            if newer:
                written = Written(self.own.release, {**self._written.formats, **newer})
                await self._files.write_new(PATH, seal(written))
                self._take(written)
