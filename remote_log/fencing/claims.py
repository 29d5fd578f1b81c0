"""Claims of an epoch: the lock between two sites that both want to write.

What always holds: a claim is an exclusive file; who loses it learns the winner and never takes a higher number by itself. A
writer creates a segment and THEN lists the claims; a fencer creates its claim and THEN lists the segments (fence.py): so one of
them sees the other. A claim may be repeated after a crash. Source: protocol.md section 5.
"""

from __future__ import annotations

import msgspec

from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
from twinlog.decoding import decoded
from twinlog.errors import ClaimLost, DamagedLog, DfsError, DfsExists, Fenced


class ClaimContent(msgspec.Struct, frozen=True):
    """The content of a claim: who took an epoch, and why. JSON in the claim's file, for operators too."""

    site: str
    plan: str
    kind: str
    reason: str
    wall_ms: int
    follows_epoch: int


_decode = msgspec.json.Decoder(ClaimContent).decode


async def claimed_epochs(dfs: Dfs, layout: RemoteLayout) -> list[int]:
    """Every epoch with a claim, ascending, by names alone: one listing."""
    names = [layout.parse_epoch(entry.name) for entry in await dfs.list(layout.claims_folder)]
    return sorted(epoch for epoch in names if epoch is not None)


async def read_claim(dfs: Dfs, layout: RemoteLayout, epoch: int) -> ClaimContent:
    path = layout.claim(epoch)
    return decoded(_decode, await dfs.read(path), lambda what: DamagedLog(
        f"the claim {path} cannot be read: {what}; it still grants the epoch to someone, so do not delete it before you know to"
        " whom",
        file=path, offset=0,
    ))


async def claim(dfs: Dfs, layout: RemoteLayout, epoch: int, content: ClaimContent) -> None:
    """Take `epoch`; taking it again with the same plan is fine. Raises ClaimLost with the winner's content."""
    await _check_none_higher(dfs, layout, epoch)
    try:
        await dfs.create_file(layout.claim(epoch), msgspec.json.encode(content))
    except DfsExists:
        winner = await read_claim(dfs, layout, epoch)
        if winner.plan != content.plan:
            raise _lost(layout, epoch, epoch, winner) from None
    await _check_none_higher(dfs, layout, epoch)


async def check_not_fenced(dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
    """Raises Fenced when a higher epoch is claimed; DfsError when `epoch` itself is not: then this is not the DFS that the
    epoch claimed, or it was emptied since, and that nothing higher is seen there proves nothing."""
    claims = await claimed_epochs(dfs, layout)
    highest = max(claims, default=0)
    if highest > epoch:
        raise Fenced(f"epoch {highest} of pair {layout.pair} was claimed: epoch {epoch} may write or acknowledge nothing now",
                     epoch=epoch, by_epoch=highest)
    if epoch not in claims:
        raise DfsError(f"{layout.claim(epoch)} is gone: the DFS was emptied or replaced, and the remote log with it; bring it"
                       " back, or degrade and resync", path=layout.claim(epoch))


async def _check_none_higher(dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
    highest = max(await claimed_epochs(dfs, layout), default=0)
    if highest > epoch:
        raise _lost(layout, epoch, highest, await read_claim(dfs, layout, highest))


def _lost(layout: RemoteLayout, epoch: int, winner_epoch: int, winner: ClaimContent) -> ClaimLost:
    return ClaimLost(
        f"epoch {epoch} of pair {layout.pair} cannot be claimed: plan {winner.plan} of site {winner.site} ({winner.kind}) holds"
        f" epoch {winner_epoch}; decide anew from what that plan does", epoch=epoch, winner_epoch=winner_epoch,
        winner=msgspec.to_builtins(winner),
    )
