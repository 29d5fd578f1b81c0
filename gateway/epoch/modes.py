"""Changes of mode of an open epoch: degrade, and back to sync.

What always holds:
- a downgrade is recorded at the coordinator, by compare-and-set, before the first asynchronous acknowledgement (P8);
- sync is declared only when the peer follows this epoch and has durably applied everything before the point where the remote
  log was switched on, and the remote log holds everything since; the commit rule is tightened before that is declared;
- once the coordinator may say sync, also when its answer was lost, only a recorded downgrade loosens the commit rule;
- both exclude a takeover that has begun: the compare-and-set fails while another plan is switching.
Source: protocol.md section 6 ("Back to sync"), model step_downgrade and step_resync.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from gateway.epoch.commit_log import CommitLog
from gateway.epoch.commit_rule import CommitMode
from remote_log.fencing.claims import ClaimContent, claim, claimed_epochs
from remote_log.fencing.fence import close_by_recovery
from remote_log.fencing.reading import segments_of
from remote_log.replication.shipper import PeerView
from remote_log.writing.writer import RemoteWriter
from storage.engine import StorageEngine
from storage.log.record import Record, RecordKind
from switchover.register.port import PairState, update
from switchover.register.transitions import downgrade, renew_lease, resync
from switchover.rejoin import ASYNC_EPOCH
from switchover.site_parts import SiteParts
from twinlog.errors import Fenced, PlanSuperseded, Refused, TwinlogError

PINNED = "degraded_by_command"  # in the engine's meta: async until a resync is asked for
POLL_S = 0.05
MARK_TIMEOUT_S = 10.0
RECOVERY_DEADLINE_S = 30.0


@asynccontextmanager
async def pinned(engine: StorageEngine) -> AsyncIterator[None]:
    """Around a degrade by command: it is asynchronous by command before that is recorded, and not when that is refused. Where
    the outcome is unknown it stays so."""
    before = engine.meta(PINNED)
    await engine.set_meta(PINNED, b"1")
    try:
        yield
    except (Fenced, PlanSuperseded, Refused):
        await engine.set_meta(PINNED, before)
        raise


class PeerSource(Protocol):
    @property
    def view(self) -> PeerView: ...

    def ask_flush(self) -> None:
        """Have the peer make what it has applied durable soon."""


class Modes:
    """Changes the mode of one open epoch. `ended`: why it is over; `degrades_waiting`: a resync under way gives way to them."""

    def __init__(
        self, parts: SiteParts, *, epoch: int, commit: CommitLog, peer: PeerSource,
        make_remote: Callable[[int], RemoteWriter], on_mode: Callable[[], None],
    ) -> None:
        self._site, self._coordinator, self._engine, self._clock = parts.site, parts.coordinator, parts.engine, parts.clock
        self._peer_dfs, self._layout, self._failpoints = parts.peer_dfs, parts.layout, parts.failpoints
        self._epoch, self._commit, self._peer, self._make_remote, self._on_mode = epoch, commit, peer, make_remote, on_mode
        self.remote: RemoteWriter | None = None
        self.waiting_for: str | None = None  # what a resync waits for, for the status page
        self.catch_target = 0
        self.ended: TwinlogError | None = None
        self.degrades_waiting = 0
        self.making_remote = False  # from before a new writer's first segment until `remote` names it (trimmer.Writers)
        self._maybe_recorded = False  # the coordinator may say sync although it did not answer so
        self.unsettled = False  # the coordinator may say async, of a degrade that has not taken place here

    async def degrade(self, *, by_command: bool) -> None:
        """Acknowledge with the WAL alone from now on. Raises PlanSuperseded while a takeover runs. `by_command`: also where
        the value is out of reach, so that a takeover that runs is not known of."""
        core = self._commit.core
        if core.mode is CommitMode.ASYNC:
            return
        # no more than both logs hold: a restart of this site that holds less than the register says takes its disk for older
        since, was_sync = min(core.remote, core.committed), core.needs_remote
        if was_sync:
            def change(state: PairState | None) -> PairState:
                return self._downgraded(state, since)

            self.unsettled = True
            await (self._coordinator.force(change) if by_command else update(self._coordinator, change))
            # what waits now was written while the mode was sync: only this note shows a later rejoin that it was acknowledged
            await self._engine.set_meta(ASYNC_EPOCH, str(self._epoch).encode())
            self.unsettled = False
        self._failpoints.hit("degrade.recorded")
        self._maybe_recorded = False
        remote, self.remote, self._commit.remote = self.remote, None, None
        self._change(CommitMode.ASYNC)
        if was_sync:
            self._commit.submit_mark(Record(RecordKind.MODE, value=b"async"), MARK_TIMEOUT_S)
        if remote is not None:
            await remote.close()

    async def settle(self) -> None:
        """A degrade whose answer was lost has not taken place: have the coordinator say so. Only while the mode is sync."""
        await update(self._coordinator, lambda state: resync(state, self._site, self._epoch))
        self.unsettled = False

    def _downgraded(self, state: PairState | None, since: int) -> PairState:
        """Always a new value, so that a resync whose answer was lost cannot take place after it."""
        changed = downgrade(state, self._site, self._epoch, since)
        return renew_lease(state, self._site, self._epoch) if changed is state else changed

    async def resync(self) -> None:
        """Switch the remote log on, catch up, declare sync. Continues until it is done, refused, or the epoch has ended."""
        core = self._commit.core
        if core.mode is CommitMode.ASYNC:
            await self._switch_on()
        if core.mode is CommitMode.CATCHING:
            await self._wait("the other site's storage", self._peer_has_caught_up)
            self._commit.set_mode(CommitMode.TIGHTENING)
        if core.mode is CommitMode.TIGHTENING:
            await self._tightened()
        was_sync = core.mode is CommitMode.SYNC
        self._maybe_recorded = True
        try:
            await update(self._coordinator, lambda state: resync(state, self._site, self._epoch))
        except (Fenced, PlanSuperseded, Refused):  # it said no: this change has not taken place
            self._maybe_recorded = was_sync
            self._loosen()
            raise
        self.waiting_for = None
        if was_sync:
            return
        self._failpoints.hit("resync.recorded")
        self._change(CommitMode.SYNC)
        self._commit.submit_mark(Record(RecordKind.MODE, value=b"sync"), MARK_TIMEOUT_S)
        await self._engine.set_meta(ASYNC_EPOCH, None)

    async def _tightened(self) -> None:
        """Wait until the remote log holds everything that was committed without it."""
        core = self._commit.core
        committed = core.committed
        try:
            await self._wait("the remote log", lambda: core.remote >= committed)
        except BaseException:
            self._loosen()
            raise
        self._failpoints.hit("resync.tightened")

    def _loosen(self) -> None:
        """Back to catching up; not if the coordinator may say sync: then only a degrade may loosen the rule."""
        if self._commit.core.mode is CommitMode.TIGHTENING and not self._maybe_recorded:
            self._commit.set_mode(CommitMode.CATCHING)

    def _change(self, mode: CommitMode) -> None:
        self._commit.set_mode(mode)
        self._on_mode()

    async def _switch_on(self) -> None:
        """Claim this epoch at the peer's DFS, open a segment there, and send every new frame to both logs."""
        self.waiting_for = "the other site's DFS"
        self.making_remote = True
        try:
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
            for path in await segments_of(self._peer_dfs, self._layout, self._epoch):
                # a broken writer left it open, and the trimmer takes only what is closed
                await close_by_recovery(self._peer_dfs, path, self._clock, RECOVERY_DEADLINE_S)
            remote = self._make_remote(self._epoch)
            await remote.open(self._commit.core.next_seq, ())
            if self.ended is not None:  # whoever ended the epoch closed what there was then, and nobody will close this
                await remote.close()
                raise self.ended
            # no await from here to the end: every frame made after this point goes to the remote log
            self.catch_target = self._commit.core.switch_remote_on()
            self.remote = self._commit.remote = remote
        finally:
            self.making_remote = False
        self._peer.ask_flush()

    def _peer_has_caught_up(self) -> bool:
        view = self._peer.view
        if view.state == "following" and view.durable_seq is not None and view.durable_seq >= self._needed():
            return True
        self._peer.ask_flush()
        return False

    def _needed(self) -> int:
        """The catch-up target, as far as it still stands: its last frames may have failed since."""
        return min(self.catch_target, self._commit.core.standing)

    async def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        self.waiting_for = what
        while not ready():
            if self.ended is not None:
                raise self.ended
            if self.degrades_waiting:
                raise Refused("the resync was given up: a degrade is asked for")
            await self._clock.sleep(POLL_S)
