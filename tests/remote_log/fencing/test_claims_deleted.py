"""Old claims are deleted while claimers, fencers and writers that do not know yet look at them, through listings that are no
snapshots: a name that comes or goes meanwhile may be in them or not. Fencing must hold all the same (P2)."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from remote_log.dfs.port import DfsEntry
from remote_log.fencing.claims import claim, claimed_epochs
from remote_log.fencing.fence import fence
from remote_log.fencing.reading import read_frames
from remote_log.writing.trimmer import Trimmer
from tests.remote_log.dfs.memory_dfs import MemoryDfs, MemoryDisk
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, Kept, NotingWriter, Now, SlowDfs, content_of, turns
from tests.storage.log.frames import run
from twinlog.errors import ClaimLost, DfsError, Fenced, LeaseNotRecovered

PLANS = 6
FRAMES = 12


class TornListings(SlowDfs):
    """HDFS lists in parts, a directory in whatever order: only what is there all the while is surely seen."""

    async def list(self, folder: str) -> list[DfsEntry]:
        before = {entry.name: entry for entry in await MemoryDfs.list(self, folder)}
        await turns(self._rng.randint(0, 3 * self._turns_max))
        after = {entry.name: entry for entry in await MemoryDfs.list(self, folder)}
        return [
            (before | after)[name] for name in sorted(before | after)
            if (name in before and name in after) or self._rng.random() < 0.5
        ]


class Pair:
    """One DFS, and plans that open one epoch after the other at it. `newest` has the pair, as the coordinator says."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.disk = rng, MemoryDisk(recovery_polls=rng.randint(0, 2))
        self.newest = 0
        self.claimed = 0
        self.reported: dict[int, int] = {}  # epoch -> last sequence reported durable
        self.read: dict[int, set[tuple[int, int]]] = {}  # epoch -> what it read when it opened
        self.deleted = 0

    async def plan(self, epoch: int) -> None:
        """It may be given up after any step, and another may have begun meanwhile."""
        dfs = TornListings(self.disk, self.rng)
        self.newest = epoch
        try:
            await claim(dfs, LAYOUT, epoch, content_of(f"plan-{epoch}", epoch))
            self.claimed = max(self.claimed, epoch)
            await fence(dfs, LAYOUT, epoch, JumpingClock(), 60.0)
            frames = await read_frames(dfs, LAYOUT, epoch)
            writer = NotingWriter(dfs, epoch=epoch, segment_bytes=500)
            await writer.open(1)
        except (ClaimLost, Fenced, LeaseNotRecovered, DfsError):
            return
        if self.newest == epoch and self.rng.random() < 0.7:
            self.read[epoch] = {frame.position for frame in frames}
            await asyncio.gather(self.write(writer, epoch), self.trim(dfs, writer, epoch))
        await writer.close()

    async def write(self, writer: NotingWriter, epoch: int) -> None:
        for frame in run(1, FRAMES, epoch=epoch):
            if writer.fenced:
                break
            writer.submit(frame)
            await turns(self.rng.randint(0, 20))
        await turns(100)
        self.reported[epoch] = writer.synced_seq

    async def trim(self, dfs: MemoryDfs, writer: NotingWriter, epoch: int) -> None:
        """Also when it has been fenced, and does not know."""
        trimmer = Trimmer(dfs, LAYOUT, epoch, 10**6, Kept())
        for _ in range(3):
            await turns(self.rng.randint(0, 60))
            try:
                await trimmer.trim(Now(writer), 0)
            except DfsError:
                continue
            claims = await claimed_epochs(MemoryDfs(self.disk), LAYOUT)
            assert claims[-1] >= self.claimed, "the highest claim is gone"
            self.deleted += 1

    async def live(self) -> None:
        plans = []
        for epoch in range(1, PLANS + 1):
            plans.append(asyncio.create_task(self.plan(epoch)))
            await turns(self.rng.choice([5, 60, 300]))
        await asyncio.gather(*plans)
        assert max(await claimed_epochs(MemoryDfs(self.disk), LAYOUT), default=0) == self.claimed
        for later, read in self.read.items():
            for epoch, last_seq in self.reported.items():
                if epoch < later:
                    missed = {(epoch, seq) for seq in range(1, last_seq + 1)} - read
                    assert not missed, f"epoch {later} opened without {missed}"


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_deleting_old_claims_lets_no_fenced_writer_through(seed: int) -> None:
    asyncio.run(Pair(random.Random(seed)).live())


def test_the_property_is_not_empty() -> None:
    deleted = opened = reported = 0
    for seed in range(30):
        pair = Pair(random.Random(seed))
        asyncio.run(pair.live())
        deleted, opened = deleted + pair.deleted, opened + len(pair.read)
        reported += sum(pair.reported.values())
    assert deleted > 30
    assert opened > 30
    assert reported > 300
