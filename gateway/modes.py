"""Changes of mode of an open epoch: degrade, and back to sync.

What always holds:
- a downgrade is recorded at the coordinator, by compare-and-set, before the first asynchronous acknowledgement (P8);
- sync is declared only when the peer follows this epoch and has durably applied everything before the point where the remote
  log was switched on, and the remote log holds everything since; the commit rule is tightened before that is declared;
- both exclude a takeover that has begun: the compare-and-set fails while another plan is switching.
Source: protocol.md section 6 ("Back to sync"), model step_downgrade and step_resync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.commit import CommitLog
from gateway.commit_core import Mode
from remote_log.claims import ClaimContent, claim, claimed_epochs
from remote_log.dfs import Dfs
from remote_log.layout import RemoteLayout
from remote_log.shipper import PeerView
from remote_log.writer import RemoteWriter
from storage.clock import Clock
from storage.errors import Fenced
from storage.record import Kind, Record
from switchover.coordinator import Coordinator, update
from switchover.failpoints import Failpoints
from switchover.register import downgrade, resync

POLL_S = 0.05
MARK_TIMEOUT_S = 10.0


class PeerSource(Protocol):
    @property
    def view(self) -> PeerView: ...

    def ask_flush(self) -> None:
        """Have the peer make what it has applied durable soon."""


class Modes:
    """Mode changes of one open epoch."""

    def __init__(
        self, *, site: str, epoch: int, commit: CommitLog, coordinator: Coordinator, peer_dfs: Dfs, layout: RemoteLayout,
        clock: Clock, peer: PeerSource, make_remote: Callable[[int], RemoteWriter], failpoints: Failpoints,
    ) -> None:
        self._site, self._epoch, self._commit, self._coordinator = site, epoch, commit, coordinator
        self._peer_dfs, self._layout, self._clock, self._peer = peer_dfs, layout, clock, peer
        self._make_remote, self._failpoints = make_remote, failpoints
        self.remote: RemoteWriter | None = None
        self.waiting_for: str | None = None  # what a resync waits for, for the status page
        self.catch_target = 0

    async def degrade(self) -> None:
        """Acknowledge with the WAL alone from now on. Raises Refused while a takeover runs."""
        if self._commit.core.mode is Mode.ASYNC:
            return
        since = self._commit.core.remote
        was_sync = self._commit.core.mode is Mode.SYNC
        if was_sync:
            await update(self._coordinator, lambda state: downgrade(state, self._site, self._epoch, since))
        self._failpoints.hit("degrade.recorded")
        self._commit.set_mode(Mode.ASYNC)
        remote, self.remote, self._commit.remote = self.remote, None, None
        if remote is not None:
            await remote.close()
        if was_sync:
            await self._commit.submit_mark(Record(Kind.MODE, value=b"async"), MARK_TIMEOUT_S)

    async def resync(self) -> None:
        """Switch the remote log on, catch up, declare sync. Goes on until it is done, refused or cancelled."""
        core = self._commit.core
        if core.mode is Mode.SYNC:
            return
        if core.mode is Mode.ASYNC:
            await self._switch_on()
        await self._wait("the other site's storage", self._peer_has_caught_up)
        self._commit.set_mode(Mode.TIGHTENING)
        try:
            committed = core.committed
            await self._wait("the remote log", lambda: core.remote >= committed)
            self._failpoints.hit("resync.tightened")
            await update(self._coordinator, lambda state: resync(state, self._site, self._epoch))
        except BaseException:
            self._commit.set_mode(Mode.CATCHING)
            raise
        self._failpoints.hit("resync.recorded")
        self._commit.set_mode(Mode.SYNC)
        self.waiting_for = None
        await self._commit.submit_mark(Record(Kind.MODE, value=b"sync"), MARK_TIMEOUT_S)

    async def _switch_on(self) -> None:
        """Claim this epoch at the peer's DFS, open a segment there, and send every new frame to both logs."""
        self.waiting_for = "the other site's DFS"
        claims = await claimed_epochs(self._peer_dfs, self._layout)
        higher = [epoch for epoch in claims if epoch > self._epoch]
        if higher:
            raise Fenced(f"epoch {max(higher)} was claimed: this site is no longer the writer", epoch=self._epoch,
                         by_epoch=max(higher))
        if self._epoch not in claims:
            content = ClaimContent(
                site=self._site, plan=f"resync-{self._epoch}", kind="resync", reason="the remote log is switched on again",
                wall_ms=self._clock.wall_ms(), follows_epoch=self._epoch,
            )
            await claim(self._peer_dfs, self._layout, self._epoch, content)
        remote = self._make_remote(self._epoch)
        await remote.open(self._commit.core.next_seq, ())
        # no await from here to the end: every frame made after this point goes to the remote log
        self.catch_target = self._commit.core.switch_remote_on()
        self.remote = self._commit.remote = remote
        self._peer.ask_flush()

    def _peer_has_caught_up(self) -> bool:
        view = self._peer.view
        if view.state == "following" and view.durable_seq is not None and view.durable_seq >= self.catch_target:
            return True
        self._peer.ask_flush()
        return False

    async def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        self.waiting_for = what
        while not ready():
            await self._clock.sleep(POLL_S)
