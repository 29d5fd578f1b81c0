"""Activation of a site as the writer of the log: one code for bootstrap, restart, takeover and switchover.

Begin (coordinator) -> claim -> fence -> read along the chain, replay, make durable -> wait out the read lease -> open.
Each step first makes sure of the ones before it and does nothing when it is done, so a plan that is taken up by a new process
starts again from the first with a new epoch: epochs are cheap, and no half-known state is trusted.

What always holds:
- nothing is read before every lower epoch is fenced at the arbiter, the DFS that both followers of an epoch meet at (P2);
- what was read goes to the own WAL before the new epoch opens, and to the storage only when this plan has the last word: the
  end may never have been committed, and a plan that loses must not have applied what another log leaves out (P4, P5);
- the storage is durable with all of it before anything is deleted (P1, P9);
- a gap between what the storage holds and what the log offers stops the plan (nothing acknowledged is skipped silently);
- the coordinator's value is the last word: opening is a compare-and-set on the value that this plan began with.
Source: protocol.md section 5.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import RetryingDfs, retrying
from remote_log.fencing.claims import ClaimContent, check_not_fenced, claim, claimed_epochs
from remote_log.fencing.fence import fence
from remote_log.fencing.reading import missing_from, read_frames
from storage.invariants import InvariantBroken
from storage.log.chain import unbroken
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.prefix import NO_FLOOR, floor_of
from switchover.activation.continuation import (
    check_told,
    ends_before,
    frames_after,
    frames_after_by_force,
    frames_to_copy,
    from_first_of,
    is_broken,
    joined,
    older_wal,
    staying,
    unopened_starts,
)
from switchover.activation.opening import Opening
from switchover.activation.own_log import append_whole, frames_from
from switchover.activation.ports import ActivationRequest, ActivationSettings, MakeRemote, OpenedEpoch, RemoteLogOpener
from switchover.operations.plan import Progress
from switchover.register.homes import UNSEEN_STEP, stale_takeover
from switchover.register.known_epochs import known_epochs, known_pair, opened_here
from switchover.register.lost_value import KnownEpochs
from switchover.register.port import Mode, PairState, pair_begun_by, read_or_known, update
from switchover.register.transitions import abandon_plan, begin_plan
from switchover.site_parts import SiteParts
from twinlog.errors import DamagedLog, DfsError, LeaseNotRecovered, LogGap, PlanSuperseded, Refused


class Activation:
    """One attempt to open the log at this site."""

    def __init__(
        self, request: ActivationRequest, parts: SiteParts, settings: ActivationSettings, make_remote: MakeRemote
    ) -> None:
        self.request, self.parts, self.settings, self._make_remote = request, parts, settings, make_remote
        self.epoch = 0
        self.before: PairState | None = None  # the value that this plan follows
        self.progress = Progress(parts.clock)
        self.replayed: dict[str, object] = {}  # for the document of the steps
        self.unseen_dfs: tuple[str, ...] = ()  # of a pair that begins anew: whose DFS did not answer
        self.fenced_at: str | None = None  # the site on whose DFS every older log is closed
        self._begun: tuple[PairState, bool] | None = None  # the value that this plan began with; whether both DFSs were seen
        self._done: set[str] = set()
        self._high_seq = 0
        self._copies: list[Frame] = []
        self._damaged: list[DamagedLog] = []  # segments of the remote log that this plan leaves out
        self._tail_read: list[Frame] = []  # applied once this plan has the last word, and not before
        self._end = 0  # sequence that the new epoch continues from
        self._proofs_end_s = 0.0  # the old active has no proof that it may serve from a later start (monotonic)

    @property
    def _takes_over(self) -> bool:
        return self.request.kind in ("takeover", "switchover") or self._anew

    @property
    def _anew(self) -> bool:
        """The pair's value was lost, and the operator accepts what nobody can verify then: who was the active, and in which
        mode. It is a takeover that reads what a restart would read, too."""
        return self.request.kind == "bootstrap" and self.request.accept_data_loss

    @property
    def _arbiter(self) -> Dfs:
        """One's own DFS for a takeover, the peer's for a restart: it holds the remote log in question."""
        return self.parts.own_dfs if self._takes_over else self.parts.peer_dfs

    def _retrying(self, dfs: Dfs) -> Dfs:
        """One transient failure must not end the plan."""
        return RetryingDfs(dfs, self.parts.clock)

    @property
    def _pair(self) -> str:
        """The identity of the pair, which every segment of its logs names."""
        return self._begun[0].pair if self._begun is not None else ""

    @property
    def _needs_arbiter(self) -> bool:
        """A restart in an asynchronous mode continues without the peer's DFS; claims are made there at the resync."""
        return self._takes_over or self._mode_before == "sync"

    @property
    def follows_async(self) -> bool:
        """The old active may have acknowledged what only it holds."""
        return self._mode_before == "async"

    @property
    def _mode_before(self) -> Mode:
        return self.before.mode if self.before is not None else "sync"

    @property
    def _applied(self) -> tuple[int, int]:
        """The storage's epoch and sequence."""
        return self.parts.engine.applied.epoch, self.parts.engine.applied.seq

    def _reached(self, step: str) -> None:
        self._done.add(step)
        self.progress.clear()
        self.parts.failpoints.hit(f"activation.{step}")

    async def begin(self) -> None:
        """The compare-and-set that makes this plan the only one, and gives it an epoch."""
        if "begin" in self._done:
            return
        request, parts = self.request, self.parts
        coordinator, by_command = parts.coordinator, request.accept_data_loss and request.continues is None
        self.before = await (read_or_known(coordinator) if by_command else coordinator.read())
        claims = await self._claims_at_arbiter() if self._needs_arbiter else []
        met = [*claims, parts.engine.applied.epoch, *(segment.epoch for segment in parts.wal.segments())]
        coordinator.know(max(met))
        if self._anew:
            seen = await self._known_epochs()
            met += [seen.known, coordinator.met_epoch]
            self.unseen_dfs = seen.unseen
        pair = coordinator.met_pair or await self._pair_here() or pair_begun_by(request.plan_id)
        leaves_room = self._anew or (self._takes_over and coordinator.unseen is not None)

        def begun(state: PairState | None) -> PairState:
            self.before = state
            return begin_plan(
                state, request.plan_id, parts.site, request.kind, parts.clock.wall_ms(), supersede=request.supersede,
                accept_data_loss=request.accept_data_loss, continues=request.continues, highest_claim=max(met),
                epoch_step=UNSEEN_STEP if leaves_room else 1,
                lost_epoch=max(met) if self._anew else 0, pair=pair,
            )

        mode = self._mode_before
        self._check_pair(self.before)
        try:  # an asynchronous active renews its lease meanwhile
            began = await (coordinator.force(begun) if by_command else update(coordinator, begun))
        except Refused:
            if (stale := stale_takeover(self.before, parts.site)) is not None:
                await update(coordinator, lambda state: abandon_plan(state, stale))
            raise
        if self._mode_before != mode:
            raise PlanSuperseded("the mode of the pair changed while this plan began: try again", plan_id=request.plan_id)
        assert began.switching is not None
        self.epoch, self._begun = began.switching.epoch, (began, coordinator.unseen is None)
        self._reached("begin")

    async def _claims_at_arbiter(self) -> list[int]:
        """Returns the epochs that are claimed there. What a coordinator gives away needs no look at them: by command, a restart
        takes the pair from another site's plan also when that site's DFS is gone. It stops at its claim, and a degrade can
        follow."""
        try:
            return await claimed_epochs(self._retrying(self._arbiter), self.parts.layout)
        except DfsError:
            if self._takes_over or not self.request.supersede or self.before is None or self.before.home is not None:
                raise
            return []

    async def _pair_here(self) -> str:
        """Returns the identity of the pair by this site's WAL, and where it begins anew by both remote logs; "": none there."""
        own = self.parts
        return own.wal.pair or (await known_pair((own.own_dfs, own.peer_dfs), own.layout) if self._anew else "")

    def _check_pair(self, state: PairState | None) -> None:
        """Raises DamagedLog when the WAL here is another pair's: so is its storage then, and no accepted loss makes it ours."""
        whose, site = self.parts.wal.pair, self.parts.site
        if state is not None and state.pair and whose not in ("", state.pair):
            raise DamagedLog(
                f"the WAL of site {site} is of pair {whose}, and the register of pair {state.pair}: one of the two is another "
                f"pair's; correct data_dir or coordinator.url, or let site {self.parts.peer} take over",
                file="wal", offset=0,
            )

    async def _known_epochs(self) -> KnownEpochs:
        own = self.parts
        return await known_epochs(own.engine, own.wal, {own.site: own.own_dfs, own.peer: own.peer_dfs}, own.layout)

    def old_has_stopped(self, durable_seq: int) -> None:
        """The old active confirmed that it stopped, with its storage durable up to `durable_seq`."""
        self.request = replace(self.request, old_stopped=True, peer_durable_seq=durable_seq)

    async def claim(self) -> None:
        """The exclusive file at the arbiter that grants the epoch and locks every older one."""
        await self.begin()
        if "claim" in self._done or not self._needs_arbiter:
            return
        await self._claim_at(self._arbiter)
        self._reached("claim")

    async def _claim_at(self, dfs: Dfs) -> None:
        content = ClaimContent(
            site=self.parts.site, plan=self.request.plan_id, kind=self.request.kind, reason=self.request.reason,
            wall_ms=self.parts.clock.wall_ms(), follows_epoch=self.before.epoch if self.before is not None else 0,
        )
        await claim(self._retrying(dfs), self.parts.layout, self.epoch, content)

    async def fence(self) -> None:
        """Close every segment of every lower epoch at the arbiter. Stops with an error at the deadline."""
        await self.claim()
        if "fence" in self._done or not self._needs_arbiter:
            return
        parts, progress, deadline_s = self.parts, self.progress, self.settings.fence_deadline_s
        progress.begin("segments closed")
        still_since_s = await fence(self._arbiter, parts.layout, self.epoch, parts.clock, deadline_s, progress.reach)
        self._proofs_end_s = still_since_s if self._mode_before == "sync" else parts.clock.monotonic_s()
        self.fenced_at = parts.site if self._takes_over else parts.peer
        self._reached("fence")

    async def replay(self) -> None:
        """Read both logs along the chain, bring storage and WAL up to it, make the storage durable."""
        await self.fence()
        if "replay" in self._done:
            return
        remote = await self._read_remote()
        await self.parts.wal.settle()
        wal = self.parts.wal
        local = await (wal.read_all() if self._needs_arbiter else frames_from(wal, self.parts.engine.applied.seq))
        local = [frame for frame in local if frame.epoch < self.epoch]
        if self._takes_over:
            await self._check_remote_log_is_there(remote, local)
        self._high_seq = max([frame.last_seq for frame in [*remote, *local]] + [self.parts.engine.applied.seq])
        if self._takes_over:
            for start in unopened_starts(local, remote, self.parts.site, self.parts.engine.applied.epoch):
                await self.parts.wal.withdraw(start)  # behind it, a copy of what the old active continued from would be cut off
                local.remove(start)
        tail = self._tail(remote, local)
        self._check_own_epoch(tail)
        end = (tail[-1].epoch, tail[-1].last_seq) if tail else self._applied
        self._tail_read, self._end = tail, end[1]
        log = self._for_wal(remote, tail, local, end)
        if not self._takes_over and self._mode_before == "sync":
            self._copies = frames_to_copy(log, remote, whole=not self._damaged)
        self._check_old_active()
        if not self._takes_over and not self.request.accept_data_loss and self.before is not None:
            check_told(self.parts.site, self.before, self._end)
            await self._check_remote_log_is_there(remote, local)
        await self.parts.engine.flush()  # what was shipped may be in no log here, and what a hole leaves out is in none
        await self._write_wal(log, local, end)
        self.replayed = {"replayed_frames": len(tail), "replayed_records": sum(f.count for f in tail)}
        if self._damaged:
            self.replayed["damaged"] = list(dict.fromkeys(error.message for error in self._damaged))
        self._reached("replay")

    async def wait_lease(self) -> None:
        """From the last append on that may have renewed it. What the old active still answers until then is in the files that
        were closed, so they were read meanwhile."""
        await self.replay()
        if "wait_lease" in self._done:
            return
        if self._takes_over and not self.request.old_stopped:
            clock = self.parts.clock
            await clock.sleep(max(0.0, self._proofs_end_s + self.settings.lease.fencer_wait_s - clock.monotonic_s()))
        self._reached("wait_lease")

    async def _read_remote(self) -> list[Frame]:
        if not self._needs_arbiter:
            return []
        self.progress.begin("segments read")
        try:
            frames = await self._read_fenced(self._arbiter, self._may_lack())
        except DamagedLog as error:
            peer = self.parts.peer
            error.message += f"; site {peer} has everything in its own log: `twinlog failover --to {peer}`, if it comes back"
            raise
        return [*frames, *(await self._read_own_remote() if self._anew else ())]

    async def _read_fenced(self, dfs: Dfs, damaged: list[DamagedLog] | None) -> list[Frame]:
        """Reads what was fenced. An old writer may have made one more segment since then, before it saw the claim: that is
        closed, too."""
        layout, clock, progress = self.parts.layout, self.parts.clock, self.progress.reach
        read = partial(
            read_frames, self._retrying(dfs), layout, self.epoch, damaged, progress, pair=self._pair,
            keys=self.parts.remote_keys,
        )
        try:
            return await read()
        except LeaseNotRecovered:
            await fence(dfs, layout, self.epoch, clock, self.settings.fence_deadline_s)
            return await read()

    def _may_lack(self) -> list[DamagedLog] | None:
        """The list that collects damage in the remote log; None: damage stops the plan. A restart continues, for its own WAL
        has all that was acknowledged and what the other site may need; so does a forced takeover, whose loss is accepted."""
        return self._damaged if not self._takes_over or self.request.accept_data_loss else None

    async def _read_own_remote(self) -> list[Frame]:
        """Reads what this site may have written as the active, as far as the other site's DFS answers."""
        parts = self.parts
        try:
            await fence(parts.peer_dfs, parts.layout, self.epoch, parts.clock, self.settings.fence_deadline_s)
            return await self._read_fenced(parts.peer_dfs, self._damaged)
        except DfsError:
            return []

    def _tail(self, remote: list[Frame], local: list[Frame]) -> list[Frame]:
        """The frames that continue what the storage holds. A takeover trusts the remote log only, unless it is forced."""
        engine = self.parts.engine
        frames = remote if self._takes_over and not self._anew else [*remote, *local]
        try:
            tail = frames_after(frames, engine.applied.seq, engine.applied.epoch)
        except LogGap as error:
            if not self.request.accept_data_loss:
                self._check_own_epoch([])  # a disk that was replaced is called by its name
                peer = self.parts.peer
                error.message += "" if self._takes_over else f"; site {peer} may have them: `twinlog failover --to {peer}`"
                raise
            tail = []  # the operator typed the loss; the manifest in the journal says what
        if not tail and self.request.accept_data_loss:
            tail = frames_after_by_force(frames, local, engine.applied.seq, engine.applied.epoch)
        self._check_floor(tail)
        return tail

    def _check_floor(self, tail: list[Frame]) -> None:
        """After a rejoin that fetched rows, the storage is a prefix of the log again only from the point of that fetch on."""
        engine = self.parts.engine
        end = tail[-1].last_seq if tail else engine.applied.seq
        floor = floor_of(engine)
        if end < floor:
            raise LogGap(
                f"site {self.parts.site} rejoined and was still behind: it holds {engine.applied.seq}, the log leads to {end}, "
                f"and {'an unknown one' if floor == NO_FLOOR else floor} is needed to be consistent; bring site"
                f" {self.parts.peer} back",
                held_seq=engine.applied.seq,
            )

    async def _check_remote_log_is_there(self, remote: list[Frame], local: list[Frame]) -> None:
        """A takeover reads all of what was acknowledged, or stops: a DFS that was emptied looks like a log without a tail. A
        restart needs no such proof: what was acknowledged is in its own WAL, and what the peer lacks is copied from there. But
        it does when its WAL is an older copy; and nothing proves that without a whole remote log."""
        before, epoch = self.before, self._applied[0]
        older = not self._takes_over and ends_before(local, self._applied)
        if before is None or self.request.accept_data_loss or not (older or (self._takes_over and before.mode == "sync")):
            return
        if older and (before.mode == "async" or self._damaged):
            raise older_wal(self.parts.site, local, self._applied)
        missing = await missing_from(self._retrying(self._arbiter), self.parts.layout, before.epoch)
        if missing is None and epoch < before.epoch and all(frame.epoch != before.epoch for frame in remote):
            missing = f"its frames, and the storage ends in epoch {epoch}"
        if missing is not None:
            whose = "this" if self._takes_over else "the other"
            raise LogGap(
                f"the remote log of epoch {before.epoch} is not on {whose} site's DFS (missing: {missing}): acknowledged writes"
                " would be missing too; bring the DFS back, or the old active, or force: --accept-data-loss --count unknown",
                held_seq=self._applied[1],
            )

    def _check_own_epoch(self, tail: list[Frame]) -> None:
        """A restart continues the epoch that this site opened: its start was durable here before the coordinator named it. On
        a new disk that may be a copy, left by an attempt that did not end: without the remote log it proves nothing."""
        before, engine = self.before, self.parts.engine
        if self._takes_over or self.request.accept_data_loss or before is None:
            return
        end = tail[-1].epoch if tail else engine.applied.epoch
        if not self._needs_arbiter and before.epoch not in opened_here(engine, self.parts.wal):
            end = engine.applied.epoch
        if end >= before.epoch:
            return
        raise LogGap(
            f"storage and log of site {self.parts.site} end in epoch {end}, but it opened epoch {before.epoch}: its disk was "
            f"replaced, or is an older copy; give it the right one, or let site {self.parts.peer} take over: `twinlog failover "
            f"--to {self.parts.peer}`",
            held_seq=engine.applied.seq,
        )

    def _for_wal(self, remote: list[Frame], tail: list[Frame], local: list[Frame], end: tuple[int, int]) -> list[Frame]:
        """Returns the frames that the own WAL must hold. After a takeover also what the storage has: that of the old active may
        come back from its crash with less, and is then served from here instead of from base data. A restart takes what its WAL
        lacks of that, too, if it is an older copy. A pair that begins anew at its active adds only what lies behind: what came
        before may be trimmed, and a frame put behind would leave a hole."""
        if not self._takes_over:
            return from_first_of(local, joined([*remote, *local], end))
        if self._anew and local:
            return tail
        # what lies before a hole is left of a trimming; and an attempt that failed must have written no less than the next one
        whole = [frame for frame in unbroken(remote) if (frame.epoch, frame.last_seq) <= end]
        return joined(whole, end) or tail

    async def _write_wal(self, frames: list[Frame], local: list[Frame], end: tuple[int, int]) -> None:
        """Writes what the WAL lacks. Nobody could read across a hole; so what stands before one goes first: it is left of an
        older copy, or of an attempt, and the storage has it durably. What stands behind it stays in its file, for no other
        place may have it. A loss that is accepted takes nothing away."""
        wal, engine, held = self.parts.wal, self.parts.engine, {frame.position for frame in local}
        if engine.durable_seq < engine.applied.seq:
            raise InvariantBroken(
                f"epoch {self.epoch}: the storage is durable before its log goes, and the next one continues from it; it is so "
                f"up to {engine.durable_seq} of {engine.applied.seq}"
            )
        kept = staying(local, frames)
        is_mixed = any(frame.position in held for frame in frames[len(kept) :])
        if not self.request.accept_data_loss and (is_mixed or is_broken([*local, *frames], end)):
            await (wal.drop_before(kept[0]) if kept else wal.clear())
            held = {frame.position for frame in kept}
        self.parts.failpoints.hit("activation.log_begins")
        missing = [frame for frame in frames if frame.position not in held]
        first_seq = min([self._high_seq + 1, *(frame.first_seq for frame in missing)])
        await wal.start(self.epoch, first_seq, self._pair)
        self.progress.begin("frames logged", len(missing))
        await append_whole(wal, missing, self.progress.reach)

    def _check_old_active(self) -> None:
        """Raises LogGap when an asynchronous active committed more than arrived here: no remote log holds that."""
        held, there = self._end, self.request.peer_durable_seq
        if held < there and not self.request.accept_data_loss:
            raise LogGap(
                f"the old active stopped at sequence {there}, but only {held} arrived here: open the old one again "
                "(failover to it), then switch over anew",
                held_seq=held, offered_previous=there,
            )

    async def _apply(self, frames: list[Frame]) -> None:
        """Applies what was read, and the start, and makes the storage durable. From then on what was read may be deleted."""
        self.progress.begin("frames applied", len(frames))
        await self.parts.applier.replay(frames, self.progress.reach)
        self.parts.failpoints.hit("activation.applied")
        await self.parts.engine.flush()

    async def open(self) -> OpenedEpoch:
        """Look once more at claims and coordinator, write the epoch's start into both logs, and open."""
        await self.wait_lease()
        parts = self.parts
        if self._needs_arbiter:
            await check_not_fenced(self._retrying(self._arbiter), parts.layout, self.epoch)
        mode, last = self._opening_mode(), self._opening()
        value = await last.value(mode, self._end)
        start = self._start_frame(mode)
        remote = await self._open_remote(mode, start)
        try:
            await parts.wal.append(start)
            parts.failpoints.hit("activation.started")
            await last.open(value, mode, self._end)
            self._reached("open")
            # only now: the end of what was read may never have been committed, and another plan's log may leave it out
            await self._apply([*self._tail_read, start])
        except BaseException:
            if remote is not None:
                await remote.close()
            raise
        return OpenedEpoch(self.epoch, mode, start, remote, len(self._tail_read), len(self._copies))

    def _opening(self) -> Opening:
        parts, request = self.parts, self.request
        return Opening(
            parts.coordinator, parts.clock, request.plan_id, self.epoch, self._begun,
            lease_wait_s=self.settings.lease.fencer_wait_s if self._takes_over and not request.old_stopped else None,
            bars_async=self._mode_before == "sync" and not request.accept_data_loss,
        )

    def _opening_mode(self) -> Mode:
        """Sync only when the peer, if it had to take over right now, would find everything. A restart keeps the mode, whatever
        the policy: what only this site's log holds is copied first, and then the open epoch may degrade."""
        kind = self.request.kind
        if kind == "takeover" or self._anew or (self.settings.opens_async and kind != "restart"):
            return "async"
        if kind == "switchover":
            return "sync" if self.request.peer_durable_seq >= self._end else "async"
        return self._mode_before

    def _start_frame(self, mode: str) -> Frame:
        engine = self.parts.engine
        mark = EpochStart(self.epoch, self.parts.site, self.request.kind, self.request.plan_id)
        self.parts.hybrid.observe(max([engine.applied.timestamp] + [f.timestamp + f.count - 1 for f in self._tail_read]))
        return make_frame(
            epoch=self.epoch, first_seq=self._high_seq + 1, previous=self._end, committed=self._end,
            timestamp=self.parts.hybrid.reserve(1), flags=Flags.NONE if mode == "sync" else Flags.ASYNC,
            records=[Record(RecordKind.EPOCH_START, value=msgspec.msgpack.encode(mark))],
        )

    async def _open_remote(self, mode: str, start: Frame) -> RemoteLogOpener | None:
        """The new epoch's first remote segment: what only the WAL held goes there before anything else."""
        if mode != "sync":
            return None
        if self._takes_over:
            await self._claim_at(self.parts.peer_dfs)
        remote = self._make_remote(self.epoch)
        await retrying(self.parts.clock, lambda: remote.open(start.first_seq, [*self._copies, start]))
        return remote


