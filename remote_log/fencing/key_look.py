"""A look at the keys that a remote log is encrypted with, before a takeover needs them.

What always holds: nothing is changed, and no more than the headers of the newest segments is read; a header never changes, so
one that could be opened with these keys is not read again.
"""

from __future__ import annotations

from contextlib import suppress

from remote_log.dfs.port import Dfs
from remote_log.fencing.reading import segments_below
from remote_log.layout import EPOCH_MAX, RemoteLayout
from storage.log.encryption import Keyring
from storage.log.segment import HEADER_BYTES_MAX, cipher_of, parse_header
from twinlog.errors import BrokenHeader, DfsNotFound

LOOKED_AT_MAX = 50


class KeyLook:
    def __init__(self, dfs: Dfs, layout: RemoteLayout, keys: Keyring) -> None:
        self._dfs, self._layout, self._keys = dfs, layout, keys
        self._opened: set[str] = set()

    async def look(self, written_with: str) -> None:
        """`written_with`: the key of the site that writes it, as that says; "": not known. Raises KeyUnavailable, DfsError."""
        if written_with:
            self._keys.require(written_with, "the remote log of the active")
        paths = (await segments_below(self._dfs, self._layout, EPOCH_MAX + 1))[-LOOKED_AT_MAX:]
        self._opened &= set(paths)
        for path in paths:
            if path not in self._opened:
                with suppress(BrokenHeader, DfsNotFound):  # it is just made, or trimmed meanwhile
                    cipher_of(parse_header(await self._dfs.read(path, 0, HEADER_BYTES_MAX)), self._keys, path)
                    self._opened.add(path)
