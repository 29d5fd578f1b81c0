"""An open epoch: the write path with everything that lives as long as it does.

Commit log, remote writer, shipper, trimmer, lease keeper, mode changes. Made from what activation opened, stopped once.

What always holds: the lease is proved only by what proves "not fenced": a remote append while frames go to the remote log, a
renewal at the coordinator while they do not; nothing is trimmed above what every blocking holder has durably (P9).
Source: protocol.md sections 4 to 7.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated

import structlog

from gateway.epoch.commit_log import CommitLog
from gateway.epoch.commit_rule import CommitCore, CommitMode, CommitSettings
from gateway.epoch.modes import PINNED, Modes
from gateway.epoch.words import Words
from gateway.epoch.write_traces import WriteTraces
from gateway.service.histogram import Histogram
from remote_log.fencing.read_lease import LeaseSettings, ReadLease
from remote_log.replication.shipper import PeerView, Shipper, ShipperPorts, ShipperSettings
from remote_log.writing.trimmer import Trimmer
from remote_log.writing.writer import RemoteWriter, RemoteWriterSettings
from storage.backup.kept_log import BACKUP_HOLDER, KeptLog
from storage.cancellation import ended, unless_asked
from storage.clock import Clock
from storage.log.record import Record, RecordKind
from storage.settings import MIB, RUN_TIME, NotInFile, OneOf, Within
from storage.tracing import NO_TRACES
from switchover.activation.ports import OpenedEpoch
from switchover.quarantine import Quarantine
from switchover.register.port import Beat, PairState
from switchover.roles.table import Role
from switchover.site_parts import SiteParts
from twinlog.errors import Fenced, Incompatible, LogGap, PeerError, Refused, TwinlogError, Unavailable, named

ENGINE_HOLDER, PEER_HOLDER = "engine", "peer"
SHIPPING, LEASE, DEGRADE, RESYNC, PROBE, TRIMMING = (  # background work, as the screens name it
    "shipping", "lease", "degrade", "resync", "look at the other site's DFS", "trimming",
)
PEER_TIMEOUT_S = 2.0
FLUSH_ROOM_BYTES = 256 * MIB  # a flush that fails for want of room closes the site
POLICIES = ("protect", "available", "performance")
log = structlog.get_logger("twinlog.active")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableSettings:
    """The policy `available`: when it leaves the synchronous mode, and how long all must be well before it returns."""

    degrade_after_s: Annotated[float, Within(0.1, 3600), RUN_TIME] = 5.0
    resync_after_s: Annotated[float, Within(0.0, 3600), RUN_TIME] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSettings:
    """The settings of an open epoch, as sections of the site's configuration."""

    policy: Annotated[str, OneOf(POLICIES), RUN_TIME] = "protect"
    available: AvailableSettings = field(default_factory=AvailableSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    commit: CommitSettings = field(default_factory=CommitSettings)
    replication: ShipperSettings = field(default_factory=ShipperSettings)
    remote_log: RemoteWriterSettings = field(default_factory=RemoteWriterSettings)
    protect_resync_after_s: Annotated[float | None, NotInFile()] = 0.5  # after a failover; None: by command only
    trim_interval_s: Annotated[float, NotInFile()] = 1.0

    @property
    def degrade_after_s(self) -> float | None:
        """None: the policy never degrades by itself. 0: it is asynchronous by choice, however well all is."""
        return {"protect": None, "available": self.available.degrade_after_s, "performance": 0.0}[self.policy]

    @property
    def resync_after_s(self) -> float | None:
        """None: the pair does not become synchronous by itself."""
        after_s = {"protect": self.protect_resync_after_s, "available": self.available.resync_after_s, "performance": None}
        return after_s[self.policy]


class RemoteReports:
    """Receives a remote writer's reports, which begin before the commit log exists: activation opens the writer."""

    def __init__(self, lease: ReadLease, appends: Histogram, clock: Clock) -> None:
        """`appends` counts how long each append took that has succeeded, from handing over to the DFS's answer."""
        self.lease = lease
        self.appends, self._clock = appends, clock
        self.commit: CommitLog | None = None
        self.ended: Callable[[TwinlogError], None] | None = None
        self.early: TwinlogError | None = None
        self.numbers = count()  # of the segments that the writers of this epoch make

    def on_synced(self, seq: int, started_s: float) -> None:
        self.appends.observe(self._clock.monotonic_s() - started_s)
        if self.commit is not None:
            self.commit.remote_synced(seq, started_s)
        else:
            self.lease.proof(started_s)

    def on_ended(self, error: TwinlogError) -> None:
        if self.ended is not None:
            self.ended(error)
        else:
            self.early = error


class ActiveEpoch:
    """`on_end` is called once when this epoch must end: fenced, or broken by an error that nothing here can repair."""

    def __init__(
        self, opened: OpenedEpoch, reports: RemoteReports, parts: SiteParts, settings: ActiveSettings, *, kept: KeptLog,
        make_remote: Callable[[int], RemoteWriter], on_applied: Callable[[], None],
        on_end: Callable[[TwinlogError], None], on_mode: Callable[[], None], auto_resync: bool,
    ) -> None:
        self.epoch = opened.epoch
        self.parts, self.settings = parts, settings
        self.lease = reports.lease
        traces = None if parts.tracer is NO_TRACES else WriteTraces(parts.tracer, opened.epoch, parts.clock)
        self.auto_resync = auto_resync
        self._on_end, self._kept_log = on_end, kept
        start = opened.start
        mode = CommitMode.SYNC if opened.mode == "sync" else CommitMode.ASYNC
        self.core = CommitCore(epoch=opened.epoch, standing=start.last_seq, next_seq=start.last_seq + 1, mode=mode)
        self.commit = CommitLog(
            self.core, wal=parts.wal, applier=parts.applier, clock=parts.clock, hybrid=parts.hybrid, lease=self.lease,
            settings=settings.commit, on_applied=on_applied, on_broken=on_end,
            failpoints=parts.failpoints, traces=traces, remote_appends=reports.appends,
        )
        self.shipper = Shipper(
            ShipperPorts(parts.transport, parts.wal, parts.engine, parts.clock, parts.understanding), self.commit,
            site=parts.site, pair=parts.wal.pair, epoch=opened.epoch, on_position=self._peer_moved,
            settings=settings.replication, traces=traces,
        )
        self.modes = Modes(
            parts, epoch=opened.epoch, commit=self.commit, peer=self.shipper, make_remote=make_remote, on_mode=on_mode
        )
        if isinstance(opened.remote, RemoteWriter):
            self.modes.remote = self.commit.remote = opened.remote
        reports.commit, reports.ended = self.commit, on_end
        self.quarantine = Quarantine(parts.site, parts.files, parts.engine)
        self._trimmer = Trimmer(parts.peer_dfs, parts.layout, opened.epoch, start.first_seq, self.quarantine, parts.remote_keys)
        self._mode_lock = asyncio.Lock()
        self._well_since_s: float | None = None
        self.mode_why = ""  # of the newest change of mode
        self.work = Words()  # of the background work below: an error stays until that work succeeds, or has nothing to do
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        loops = {
            SHIPPING: self.shipper.run, LEASE: self._keep_lease, DEGRADE: self._degrade_loop, TRIMMING: self._trim_loop,
            RESYNC: self._resync_loop,
        }
        self._tasks = {subject: loop.create_task(self._kept(subject, work)) for subject, work in loops.items()}

    def apply(self, settings: ActiveSettings) -> None:
        """Takes what may change while the epoch is open (RUN_TIME in storage/settings.py)."""
        self.settings = settings
        self.commit.apply(settings.commit)
        self.shipper.apply(settings.replication)
        if settings.degrade_after_s is not None and self._tasks[DEGRADE].done():  # the policy before degraded nothing by itself
            self._tasks[DEGRADE] = asyncio.get_running_loop().create_task(self._kept(DEGRADE, self._degrade_loop))

    async def _kept(self, subject: str, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` until it is fenced, which ends the epoch. A fault of ours must not leave it without lease or shipper."""
        while True:
            try:
                await unless_asked(work(), subject)
            except Fenced as error:
                self._on_end(error)
                return
            except Exception as error:
                self._failed(subject, f"internal error: {named(error)}")
                log.error("internal error", work=subject, traceback=traceback.format_exc())
                await self.parts.clock.sleep(self.settings.lease.noop_interval_s)
            else:
                return  # there is none under this policy

    def _failed(self, subject: str, error: TwinlogError | str) -> None:
        self.work.failed(subject, self.parts.clock.monotonic_s(), error)

    def _went_well(self, subject: str) -> None:
        """The newest round of this work found nothing wrong, or nothing to do: what it said before is over."""
        self.work.answered(subject, self.parts.clock.monotonic_s())

    @property
    def remote(self) -> RemoteWriter | None:
        return self.modes.remote

    @property
    def damaged(self) -> tuple[str, ...]:
        """Says what is wrong with each segment of the remote log that cannot be read, and so not be trimmed."""
        return self._trimmer.damaged

    def _peer_moved(self, view: PeerView) -> None:
        known = view.state == "following" and view.durable_seq is not None
        if known:
            self._went_well(SHIPPING)
            self.commit.marks.forget_before(view.durable_seq or 0)
        self.parts.cursors.advance(PEER_HOLDER, self.epoch if known else 0, (view.durable_seq or 0) if known else 0)

    # ---- the lease
    @property
    def proof_age_s(self) -> float:
        """Returns the age of the newest proof that this epoch is not fenced."""
        return self.parts.clock.monotonic_s() - (self.lease.expires_s - self.settings.lease.lease_s)

    async def _keep_lease(self) -> None:
        """Proofs while idle."""
        settings, clock = self.settings, self.parts.clock
        while True:
            await clock.sleep(settings.lease.noop_interval_s / 2)
            try:
                if not self.core.needs_remote:
                    await self._renew()
                    self._went_well(LEASE)
                    continue
                if self.proof_age_s >= settings.lease.noop_interval_s and not self.core.frames_in_flight:
                    self.commit.submit_mark(Record(RecordKind.NOOP), settings.lease.lease_s)
                if self.lease.aside_s is not None:
                    await self._confirm_lease(self.lease.aside_s)
                elif self.proof_age_s >= settings.lease.lease_s:
                    await self._read_own_state()  # no proof for a whole lease: perhaps a later epoch has opened
                self._went_well(LEASE)
            except Fenced:
                raise
            except TwinlogError as error:
                self._failed(LEASE, error)  # it runs out by itself; status shows why

    async def _degrade_loop(self) -> None:
        """The policy's degrade, when there is no proof by the remote log for too long. At once where async is the choice:
        a restart opens as it was, and that was synchronous if the policy was another one.

        A process that stood still for a lease may have been replaced meanwhile. It asks the remote log for as long as it would
        have, before it continues without it: the register may have forgotten who took over."""
        clock, lease_s = self.parts.clock, self.settings.lease.lease_s
        looked_s = awake_since_s = clock.monotonic_s()
        while (after_s := self.settings.degrade_after_s) is not None:
            await clock.sleep(self.settings.lease.noop_interval_s / 2)
            now_s = clock.monotonic_s()
            if now_s - looked_s >= lease_s:
                awake_since_s = now_s
            try:
                stuck = self.commit.local_trouble is not None  # then no proof is asked for, and the other log is not to blame
                if self.core.needs_remote and min(self.proof_age_s, now_s - awake_since_s) >= after_s and not stuck:
                    await self.degrade(by_command=False, unproved_s=after_s)
                self._went_well(DEGRADE)
            except Fenced:
                raise
            except TwinlogError as error:
                self._failed(DEGRADE, error)
            looked_s = clock.monotonic_s()  # a degrade may take its time

    async def _read_own_state(self) -> PairState:
        """The coordinator's value. Raises Fenced when it names a later epoch, or the other site."""
        state = await self.parts.coordinator.read()
        if state is None:
            raise Refused("the coordinator has no record of this pair: it may have been replaced; restore it")
        if state.epoch > self.epoch or (state.active is not None and state.active != self.parts.site):
            raise Fenced(f"the coordinator names epoch {state.epoch} at {state.active}", epoch=self.epoch, by_epoch=state.epoch)
        return state

    async def _confirm_lease(self, started_s: float) -> None:
        """An append succeeded again after the lease had run out: the DFS may have forgotten what fenced this epoch. A register
        that is on that DFS may have forgotten it, too, so then the other site is asked as well; and alone, if the register
        does not answer. Raises Fenced, Refused, PeerError."""
        try:
            state: PairState | None = await self._read_own_state()
        except (Unavailable, Refused):  # a register that has lost the pair has named nobody else
            state = None
        if state is not None and state.switching is not None and state.switching.site != self.parts.site:
            plan = state.switching
            raise Refused(f"plan {plan.plan_id} of site {plan.site} has the pair, and may have fenced epoch {self.epoch}")
        if state is None or state.home is not None:
            try:
                reply = await self.parts.other_site.status(PEER_TIMEOUT_S)
            except (PeerError, Incompatible):  # a release that does not fit says as little as one that is away
                if state is None:
                    raise
            else:
                follows = (reply.role, reply.epoch) == (Role.STANDBY, self.epoch)
                if reply.epoch > self.epoch or (state is None and not follows):
                    seen = f"site {reply.site} is {reply.role} in epoch {reply.epoch}"
                    raise Refused(f"{seen}, and may have fenced epoch {self.epoch}")
        self.commit.lease_confirmed(started_s)

    async def _renew(self) -> None:
        started_s = self.parts.clock.monotonic_s()
        beat = Beat(self.core.committed, self.parts.clock.wall_ms(), self.settings.lease.lease_s)
        await self.parts.coordinator.renew(self.parts.site, self.epoch, beat)
        self.commit.lease_confirmed(started_s)

    # ---- modes
    async def degrade(self, *, by_command: bool, unproved_s: float = 0.0) -> None:
        """`unproved_s`: not if there is a younger proof by the time that another change of mode has ended; 0: somebody asks."""
        self.modes.degrades_waiting += 1
        try:
            async with self._mode_lock:
                if self.proof_age_s < unproved_s:
                    return
                was_async = self.core.mode is CommitMode.ASYNC
                if by_command:
                    self.auto_resync = False
                self.mode_why = self._why_degraded(by_command=by_command, unproved_s=unproved_s)
                await self.modes.degrade(by_command=by_command)
                self._well_since_s = None
                if not (by_command or was_async or self.auto_resync):  # a command of old failed: it does not bind this degrade
                    self.auto_resync = True
                    await self.parts.engine.set_meta(PINNED, None)
        finally:
            self.modes.degrades_waiting -= 1

    def _why_degraded(self, *, by_command: bool, unproved_s: float) -> str:
        if by_command:
            return "by command"
        if self.settings.policy == "performance":
            return "the policy performance: asynchronous by choice"
        age = f"nothing has proved for {self.proof_age_s:.1f} s that the remote log is written"
        return f"the policy {self.settings.policy}: {age}" if unproved_s else f"asked for by a monitor; {age}"

    async def resync(self, *, by_command: bool) -> None:
        """Back to sync; waits for as long as it takes, gives way to a degrade, and ends with the epoch."""
        async with self._mode_lock:
            if by_command:
                self.auto_resync = True
            elif not self.auto_resync:
                return  # a person has degraded it while all was looked at
            self.mode_why = "by command" if by_command else f"all was well for {self.settings.resync_after_s:g} s"
            await self.modes.resync()

    async def _resync_loop(self) -> None:
        """After a failover or the policy's degrade: back to sync by itself once all has been well for a while."""
        while True:
            await self.parts.clock.sleep(self.settings.lease.noop_interval_s)
            try:
                if self.modes.unsettled:
                    await self._settle()
                await self._resync_when_well()
            except Fenced as error:
                self._on_end(error)
                return
            except TwinlogError as error:
                self._well_since_s = None
                self._failed(RESYNC, error)

    async def _resync_when_well(self) -> None:
        """An attempt's error is over when the next one succeeds, or when nothing is left to do."""
        after_s = self.settings.resync_after_s
        if after_s is None or not self.auto_resync or self.core.mode is CommitMode.SYNC:
            for subject in (RESYNC, PROBE):
                self._went_well(subject)
            return
        if self._mode_lock.locked():
            return
        if not await self._is_well():
            self._well_since_s = None
            return
        now = self.parts.clock.monotonic_s()
        self._well_since_s = self._well_since_s if self._well_since_s is not None else now
        if now - self._well_since_s >= after_s:
            await self.resync(by_command=False)
            self._went_well(RESYNC)

    async def _settle(self) -> None:
        """Whatever the policy: as long as the coordinator says async, nobody may take over without force."""
        async with self._mode_lock:
            if self.modes.unsettled and self.core.mode is CommitMode.SYNC:
                await self.modes.settle()

    async def _is_well(self) -> bool:
        if self.shipper.view.state != "following":
            return False
        try:
            await self.parts.peer_dfs.probe()
        except TwinlogError as error:
            self._failed(PROBE, error)
            return False
        self._went_well(PROBE)
        return True

    # ---- trimming
    async def _trim_loop(self) -> None:
        while True:
            await self.parts.clock.sleep(self.settings.trim_interval_s)
            try:
                await self.trim()
                self._went_well(TRIMMING)
            except LogGap as error:  # the remote log lost what nobody deleted: a new epoch copies it there
                self._on_end(error)
            except TwinlogError as error:
                self._failed(TRIMMING, error)  # tried again at the next round

    async def trim(self) -> None:
        """Delete what every blocking holder has durably: WAL segments, and the peer's part of the remote log."""
        cursors = self.parts.cursors
        if self.commit.local_trouble is not None:
            await self._make_room()
        cursors.advance(ENGINE_HOLDER, self.epoch, self.parts.engine.durable_seq)
        too_long = cursors.of_kind(BACKUP_HOLDER) if self.parts.wal.is_too_long_for_backups else []
        for name in too_long:
            await cursors.remove(name)
            log.warning("the log is too long to be kept for a backup: its next one needs a new base", holder=name)
        if too_long:
            await self._kept_log.release(self.epoch)
        async with cursors.trimming(self.epoch) as safepoint:
            await self.parts.wal.trim(safepoint + 1)
        view = self.shipper.view  # no lock is held from here on: the other site's DFS may not answer
        if view.state == "following" and view.durable_seq is not None:
            await self._trimmer.trim(self.modes, view.durable_seq)

    async def _make_room(self) -> None:
        """The WAL takes nothing, perhaps for want of room: what is durable in both storages need not stay in it. The own one is
        flushed only where its disk has the room."""
        self.shipper.ask_flush()
        free = self.parts.free_bytes
        if free is None or await free() >= FLUSH_ROOM_BYTES:
            await self.parts.engine.flush()

    # ---- the end
    async def drain(self) -> int:
        """Everything admitted is settled; the last sequence that stands."""
        await self.commit.drain()
        return self.core.standing

    async def stop(self, reason: TwinlogError) -> None:
        self.modes.ended = reason
        self.lease.revoke()  # reads on other threads end after this, and the next active may not have waited
        for task in self._tasks.values():
            task.cancel()
        await ended(self._tasks.values())
        await self.commit.stop(reason)
        if self.remote is not None:
            await self.remote.close()
