"""The epochs that a site knows of by itself: a look at storage, WAL, followed epoch and the claims on both DFSs (judged by
lost_value.py, and by went_back.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import within
from remote_log.fencing.claims import claimed_epochs
from remote_log.fencing.reading import newest_pair
from remote_log.layout import RemoteLayout
from remote_log.replication.sink import FOLLOWED_EPOCH
from storage.engine import StorageEngine
from storage.log.wal import Wal
from switchover.register.lost_value import KnownEpochs
from twinlog.errors import DfsError

LOOK_TIMEOUT_S = 2.0
RESTORED_EPOCH = "restored_epoch"  # a note: the storage came from a backup, and ends in this epoch, which no register gave away


async def known_epochs(engine: StorageEngine, wal: Wal, dfs_by_site: Mapping[str, Dfs], layout: RemoteLayout) -> KnownEpochs:
    """As far as the DFSs answer in time."""
    found = await asyncio.gather(*(_claims(dfs, layout) for dfs in dfs_by_site.values()))
    claims = dict(zip(dfs_by_site, found, strict=True))
    known = [engine.applied.epoch, int(engine.meta(FOLLOWED_EPOCH) or b"0"), *(segment.epoch for segment in wal.segments())]
    for epochs in claims.values():
        known += epochs or ()
    unseen = tuple(site for site, epochs in claims.items() if epochs is None)
    return KnownEpochs(engine.applied.epoch, max(known), unseen, int(engine.meta(RESTORED_EPOCH) or b"0"))


def opened_here(engine: StorageEngine, wal: Wal) -> set[int]:
    """Epochs whose log this disk has in its own right: applied, or begun in a WAL segment of their own. What was copied
    out of a remote log stands in a segment of the epoch that copied it, and may be the beginning only."""
    return {engine.applied.epoch, *(segment.epoch for segment in wal.segments())}


async def known_pair(dfss: Iterable[Dfs], layout: RemoteLayout) -> str:
    """Returns the identity of the pair by the newest segment of a remote log, as far as the DFSs answer in time; "": none."""
    for dfs in dfss:
        with suppress(DfsError):
            if pair := await within(LOOK_TIMEOUT_S, newest_pair(dfs, layout)):
                return pair
    return ""


async def _claims(dfs: Dfs, layout: RemoteLayout) -> list[int] | None:
    try:
        return await within(LOOK_TIMEOUT_S, claimed_epochs(dfs, layout))
    except DfsError:
        return None
