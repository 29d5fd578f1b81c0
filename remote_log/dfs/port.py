"""The DFS port: what the protocol asks of a distributed file system. HDFS, a directory and the simulated one are behind it.

What always holds, and the contract suite (tests/remote_log/dfs/dfs_contract.py) checks on every one:
- `create_file` and `create` are exclusive and atomic: of several callers exactly one succeeds; a file made by
  `create_file` is never seen without its content.
- after `recover_lease` was called and `is_closed` has answered True, no append of an earlier writer succeeds and the
  length never changes again; every append that did succeed is in it, if each one began at a multiple of 512 bytes: on HDFS
  one that is cut off in the middle may take along what stood before it in its checksum chunk.
- a failed append leaves the bytes absent, in part or whole: readers check CRCs.
- a reader sees the synced bytes of a file that is still open.
Source: protocol.md section 5, reference hdfs-clients.md.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from twinlog.errors import InvalidInput


class DfsEntry(msgspec.Struct, frozen=True, gc=False):
    name: str  # last part of the path
    length: int  # 0 for a folder; of a file that is open perhaps less than can be read (HDFS counts finished blocks)
    is_folder: bool


class DfsWriter(Protocol):
    path: str

    def append(self, data: bytes) -> Awaitable[None]:
        """Queue `data` behind what was queued before; resolves when it is synced (hsync). Several may be outstanding.

        Raises (from the awaitable) LeaseLost when the file was closed under us, DfsError otherwise; after one failure
        every later append fails too.
        """

    async def close(self) -> None: ...


class Dfs(Protocol):
    """Absolute paths with `/`, below one root. Every call has its own deadline and raises DfsError after it."""

    async def create_file(self, path: str, content: bytes) -> None:
        """A whole small file, exclusively, atomically, durably; parents are made. Raises DfsExists."""

    async def create(self, path: str) -> DfsWriter:
        """A new file for append, exclusively; parents are made. Raises DfsExists."""

    async def list(self, folder: str) -> list[DfsEntry]:
        """Sorted by name; empty when the folder does not exist."""

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Raises DfsNotFound."""

    async def delete(self, path: str) -> None:
        """File or whole folder; absent is fine. A writer of a file that was not closed may append for another moment (HDFS)."""

    async def recover_lease(self, path: str) -> None:
        """Begin to close the file under its writer, then poll `is_closed`; calling again may begin anew. Raises DfsNotFound."""

    async def is_closed(self, path: str) -> bool:
        """True only when it is proven. Raises DfsNotFound."""

    async def probe(self) -> None:
        """Raises DfsError when the root is missing, not writable, or does not answer."""


def replaced(*, marks: bool) -> str:
    """Returns what to do about a DFS that was replaced on purpose. `marks`: the caller is the gateway whose own it is."""
    return "restart this gateway" if marks else "start or restart the gateway of the site whose own it is, which marks it"


def path_parts(path: str) -> list[str]:
    """The names in `path`. Raises InvalidInput when it is no path of the port: hidden names belong to what is behind it."""
    parts = path.strip("/").split("/")
    if not path.startswith("/") or any(not part or part.startswith(".") or "\0" in part for part in parts):
        raise InvalidInput(f"{path!r} is no absolute DFS path without hidden parts")
    return parts
