"""The end of an active's log on the other site's DFS, read from its files.

What always holds: nothing is asked of a gateway, and nothing is written; what cannot be read at one moment, because a segment
comes or goes, is unknown and not "nothing". Written is not synced: a look from outside does not see the difference.
"""

from __future__ import annotations

from pathlib import Path

from chaos.harness.pair.sites import OTHER
from remote_log.layout import RemoteLayout
from storage.log.segment import parse_remote_name, scan_segment
from twinlog.errors import TwinlogError


def written_there(folder: Path, pair: str, site: str, epoch: int) -> int | None:
    """The last sequence of `epoch` in the remote log of `site`; 0: nothing is there; None: unknown.

    `folder` has both sites' folders in it."""
    segments = folder / OTHER[site] / "dfs" / RemoteLayout(pair).epoch_folder(epoch).removeprefix("/")
    try:
        names = sorted((path for path in segments.iterdir() if parse_remote_name(path.name)), key=lambda path: path.name)
        for path in reversed(names):
            if frames := scan_segment(path.read_bytes(), path.name).frames:
                return int(frames[-1].last_seq)
    except FileNotFoundError:
        return None if segments.exists() else 0
    except (OSError, TwinlogError):
        return None
    return 0
