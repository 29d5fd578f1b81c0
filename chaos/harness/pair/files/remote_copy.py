"""The remote log of an active on the other site's DFS, read from its files.

What always holds: nothing is asked of a gateway, and nothing is written; what cannot be read at one moment, because a segment
comes or goes, is unknown and not "nothing". Written is not synced: a look from outside does not see the difference.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec

from chaos.harness.pair.sites import OTHER
from remote_log.layout import RemoteLayout
from storage.log.segment import HEADER_BYTES, parse_header, parse_remote_name, scan_segment
from twinlog.errors import TwinlogError


class RemoteCopy(msgspec.Struct, frozen=True, omit_defaults=True):
    """`last_seq`: of its newest frame; 0: there is none. `older`: name and last sequence of each segment before that one."""

    last_seq: int
    older: tuple[tuple[str, int], ...] = ()


def remote_copy(folder: Path, pair: str, site: str, epoch: int) -> RemoteCopy | None:
    """Returns what is written of `epoch` by `site`; None: unknown. `folder` has both sites' folders in it."""
    segments = folder / OTHER[site] / "dfs" / RemoteLayout(pair).epoch_folder(epoch).removeprefix("/")
    try:
        paths = sorted((path for path in segments.iterdir() if parse_remote_name(path.name)), key=lambda path: path.name)
        for at in range(len(paths) - 1, -1, -1):
            if frames := scan_segment(paths[at].read_bytes(), paths[at].name).frames:
                return RemoteCopy(int(frames[-1].last_seq), _older(paths[: at + 1]))
    except FileNotFoundError:
        return None if segments.exists() else RemoteCopy(0)
    except (OSError, TwinlogError):
        return None
    return RemoteCopy(0)


def _older(paths: list[Path]) -> tuple[tuple[str, int], ...]:
    """A segment ends before the next one begins."""
    return tuple((path.name, _first_seq(after) - 1) for path, after in pairwise(paths))


def _first_seq(path: Path) -> int:
    with path.open("rb") as segment:
        return parse_header(segment.read(HEADER_BYTES)).first_seq
