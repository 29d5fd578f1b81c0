"""Two doors to the register on two DFSs in memory, each of the four ways between them open or cut."""

from __future__ import annotations

from remote_log.layout import RemoteLayout
from storage.clock import SystemClock
from switchover.register.port import PairState, update
from switchover.register.transitions import begin_plan, downgrade, open_plan
from switchover.register.two_dfs import DfsCoordinator
from tests.remote_log.dfs.memory_dfs import MemoryDfs, MemoryDisk

OTHER = {"a": "b", "b": "a"}
LAYOUT = RemoteLayout("pair")


class RegisterWorld:
    """`ways[site, dfs]`: what the gateway of `site` has of the DFS of site `dfs`; `doors[site]` is its register."""

    def __init__(self) -> None:
        disks = {site: MemoryDisk() for site in OTHER}
        self.ways = {(site, dfs): MemoryDfs(disks[dfs]) for site in OTHER for dfs in OTHER}
        self.doors = {site: self.door(site) for site in OTHER}
        self.disks = disks

    def door(self, site: str) -> DfsCoordinator:
        """A new one, as after a restart of that gateway."""
        return DfsCoordinator(
            site=site, peer=OTHER[site], own_dfs=self.ways[site, site], peer_dfs=self.ways[site, OTHER[site]], layout=LAYOUT,
            initial_active="a", clock=SystemClock(), deadline_s=120.0,  # a busy machine is not a DFS that is away
        )

    def cut(self, dfs: str, *, sites: str = "ab", down: bool = True) -> None:
        for site in sites:
            self.ways[site, dfs].down = down

    def files(self, dfs: str) -> list[str]:
        return sorted(path for path in self.disks[dfs].files if path.startswith(LAYOUT.register_folder))

    async def open_at_a(self, mode: str = "sync") -> PairState:
        """The pair in its first epoch."""
        door = self.doors["a"]
        await update(door, lambda now: begin_plan(now, "first", "a", "bootstrap", 1))
        state = await update(door, lambda now: open_plan(now, "first", "sync"))
        if mode == "async":
            state = await update(door, lambda now: downgrade(now, "a", state.epoch, 0))
        return state
