"""Names of the remote log on a DFS: claims, segments and the register, both ways between name and meaning.

    /<pair>/<log>/claims/<epoch>                12 digits
    /<pair>/<log>/register/<number>             12 digits; only in a pair without a coordinator
    /<pair>/<log>/<epoch>/<wal-name>.<n>        as storage/log/segment.py names remote segments

What always holds: `parse` is the inverse of `claim` and `segment`; anything else in these folders parses to None and is
nobody's business; names sort as their numbers do. Source: protocol.md section 5.
This module is pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from storage.log.segment import parse_remote_name, remote_name
from twinlog.errors import InvalidInput

EPOCH_MAX = 10**12 - 1
_PAIR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_EPOCH = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class ClaimName:
    epoch: int


@dataclass(frozen=True, slots=True)
class SegmentName:
    epoch: int
    wal_name: str
    n: int


class RemoteLayout:
    """The paths of one log of one pair. Absolute below the DFS's own root, which the Dfs knows and nobody else."""

    def __init__(self, pair: str, log: int = 0) -> None:
        if not _PAIR.fullmatch(pair):
            raise InvalidInput(f"the pair name {pair!r} must match {_PAIR.pattern}: it names a folder")
        self.pair, self.log = pair, log
        self.folder = f"/{pair}/{log}"
        self.claims_folder = f"{self.folder}/claims"
        self.register_folder = f"{self.folder}/register"

    def claim(self, epoch: int) -> str:
        return f"{self.claims_folder}/{_epoch_name(epoch)}"

    def register_file(self, number: int) -> str:
        return f"{self.register_folder}/{_epoch_name(number)}"

    def epoch_folder(self, epoch: int) -> str:
        return f"{self.folder}/{_epoch_name(epoch)}"

    def segment(self, epoch: int, wal_name: str, n: int) -> str:
        name = remote_name(wal_name, n)
        if parse_remote_name(name) != (wal_name, n):
            raise InvalidInput(f"{name!r} cannot name a remote segment")
        return f"{self.epoch_folder(epoch)}/{name}"

    def parse(self, path: str) -> ClaimName | SegmentName | None:
        """Returns what `path` names; None when it is neither a claim nor a segment of this log."""
        return _parsed(self.folder, path)

    @staticmethod
    def parse_epoch(name: str) -> int | None:
        """The epoch that a claim, or a folder beside `claims`, is named after; None for `claims` itself and strangers."""
        return int(name) if _EPOCH.fullmatch(name) and int(name) > 0 else None

    @staticmethod
    def parse_register(name: str) -> int | None:
        """The number of a file in the register's folder; None for strangers."""
        return RemoteLayout.parse_epoch(name)


@lru_cache(maxsize=1024)  # the same few files are listed again and again
def _parsed(log: str, path: str) -> ClaimName | SegmentName | None:
    folder, _, name = path.rpartition("/")
    if folder == f"{log}/claims":
        epoch = RemoteLayout.parse_epoch(name)
        return None if epoch is None else ClaimName(epoch)
    epoch = RemoteLayout.parse_epoch(folder.removeprefix(log + "/"))
    parts = parse_remote_name(name)
    return None if epoch is None or parts is None else SegmentName(epoch, *parts)


def _epoch_name(epoch: int) -> str:
    if not 0 < epoch <= EPOCH_MAX:
        raise InvalidInput(f"epoch {epoch} is not between 1 and {EPOCH_MAX}")
    return f"{epoch:012d}"
