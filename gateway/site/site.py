"""One site: its role, and what runs in each role. The routes, the peer's calls and the plans all act through it.

What always holds: every change of role goes through the one table (switchover/roles/table.py); a site that boots is CLOSED
until coordinator and peer say what it is; an open epoch exists exactly in the roles ACTIVE, DOWNGRADE_ACTIVE and DRAINING.
Everything outside comes in through ports, so that the same code runs in a simulation. Source: protocol.md sections 5, 6, 8.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import structlog

from gateway.audits.notes import AuditNotes
from gateway.backup.holding import BackupHolds
from gateway.backup.sending import BackupService
from gateway.epoch.active_epoch import ENGINE_HOLDER, PEER_HOLDER, ActiveEpoch, RemoteReports
from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import PINNED, pinned
from gateway.epoch.words import Words
from gateway.service.admission import Admission
from gateway.service.barriers import BarrierService
from gateway.service.catalog import Catalog
from gateway.service.histogram import Histogram
from gateway.service.rows import RowsService
from gateway.service.serving import Serving
from gateway.service.tables import TablesService
from gateway.site.remote_log_mark import RemoteLogMark
from gateway.site.schema_trial import SchemaTrial
from gateway.site.serving_judgement import COORDINATOR, LOST_REGISTER, REGISTER, Refusal
from gateway.site.settings import SiteSettings
from gateway.table_figures.sizes import TableSizes
from gateway.ui.happenings import Happenings
from remote_log.fencing.key_look import KeyLook
from remote_log.fencing.read_lease import ReadLease
from remote_log.replication.sink import Sink
from remote_log.replication.verification import Verifier
from remote_log.writing.writer import RemoteWriter
from storage.backup.kept_log import KeptLog
from storage.engines.unshown import standing_at
from storage.log.record import Record, RecordKind
from switchover.activation.activation import Activation
from switchover.activation.alone import check_whole_alone
from switchover.activation.ports import ActivationRequest, ActivationSettings, OpenedEpoch
from switchover.register.known_epochs import known_epochs, opened_here
from switchover.register.lost_value import KnownEpochs
from switchover.register.port import PairState
from switchover.register.transitions import downgrade_closed
from switchover.rejoin import Rejoin, RejoinReport
from switchover.roles.table import Event, Role, permissions, step
from switchover.site_parts import SiteParts
from twinlog.errors import Conflict, EngineFailed, NotActive, RegisterWentBack, TwinlogError, Unavailable

CANARY_TIMEOUT_S = 10.0
MENDED_S = 10.0  # longer than a supervisor waits between two attempts (supervisor.BACKOFF_MAX_S), so nothing flaps
RETRY_SWITCHING_S = 0.1  # a change of roles is a matter of tenths of a second: clients ask again soon
log = structlog.get_logger("twinlog.site")


class _Mended(NamedTuple):
    """A storage that was opened anew: why it had failed, and where it stood then."""

    why: str
    seq: int
    at_s: float


class Site:
    """State of one site's process."""

    def __init__(self, settings: SiteSettings, parts: SiteParts) -> None:
        self.settings, self.parts = settings, parts
        self.notices: Callable[[], list[str]] = list  # what to know of its listeners; the composition root sets it
        self.site, self.peer = parts.site, parts.peer
        self.role = Role.CLOSED
        self.reason = "the gateway has started and does not know yet what it is"
        self.waiting_for: str | None = "the register"
        self._mended: _Mended | None = None
        self.words = Words()  # the newest of both DFSs and the coordinator
        self.active_epoch: ActiveEpoch | None = None
        self.pair_state: PairState | None = None  # the last value read from the coordinator
        self.remote_appends = Histogram()  # that succeeded, from handing over to the DFS's answer
        self.fence_rejections = 0  # calls of the other site in an epoch that is over; not the probe of a plan
        self.epochs_ended = {"fenced": 0, "fault": 0}  # without a command
        self.collections = Histogram()  # of the interpreter's garbage: everything else stands still meanwhile
        self.layout, self.applier = parts.layout, parts.applier
        self.catalog = Catalog(parts.engine)
        self.serving = Serving(self._refusal, lambda: self.sink.is_prefix)
        self.sink = Sink(
            parts.engine, parts.clock, self.applier, Verifier((self.site, self.peer)), refusal=self._shipping_refusal,
            on_applied=self.catalog.applied, confirm=self._confirm_epoch, new_nonce=parts.new_id,
            drift_margin=settings.lease.drift_margin, tracer=parts.tracer,
        )
        self.admission = Admission(settings.commit)
        engine, clock, deadline_s = parts.engine, parts.clock, settings.http.request_deadline_s
        self.rows = RowsService(
            self.serving, self.catalog, self.admission, engine=engine, clock=clock, deadline_s=deadline_s, new_id=parts.new_id
        )
        self.tables = TablesService(
            self.serving, self.catalog, engine=engine, clock=clock, deadline_s=deadline_s, settings=settings.tables,
            try_change=SchemaTrial(engine, parts.other_site, site=self.site, peer=self.peer).check,
        )
        self.barrier_calls = BarrierService(
            self.serving, self.applier, site=self.site, engine=engine, clock=clock, deadline_s=deadline_s
        )
        self.kept_log = KeptLog(parts.files, parts.wal, parts.cursors)
        self.backup_holds = BackupHolds(engine, parts.cursors, self.kept_log, clock, lambda: self.epoch)
        self.backups = BackupService(
            self.serving, self.backup_holds, pair=settings.pair, site=self.site, engine=engine, wal=parts.wal,
            kept=self.kept_log, encrypted=bool(parts.wal.is_encrypted or parts.remote_keys),
            identity=lambda: parts.coordinator.met_pair, sizes=TableSizes(engine, clock),
        )
        self.audits = AuditNotes(parts.engine, parts.clock)
        self.remote_log_mark = RemoteLogMark(parts.own_dfs, parts.layout)
        self.trail_fault: Callable[[], str | None] = lambda: None  # why the audit trail cannot be written
        self.on_role: Callable[[Event | str, Role, str], None] = lambda cause, before, why: None  # the trail notes each step,
        self.on_fenced: Callable[[int, str], None] = lambda epoch, dfs: None  # and each fencing by this site
        self.key_look = KeyLook(parts.own_dfs, parts.layout, parts.remote_keys)
        self.peer_log_key = ""  # that the other site encrypts its remote log with, as it said last; "": none, or not known
        self.happenings = Happenings(parts.clock)
        self.changed = asyncio.Event()  # something that the cluster document shows has changed
        self._reports: RemoteReports | None = None
        self._ending: asyncio.Task[None] | None = None

    def apply(self, settings: SiteSettings) -> None:
        """Takes what may change while a gateway runs (RUN_TIME in storage/settings.py); the rest is as before."""
        self.settings = settings
        self.admission.apply(settings.commit)
        if self.active_epoch is not None:
            self.active_epoch.apply(settings)
        self.touch()

    # ---- roles
    def event(self, event: Event, why: str = "") -> None:
        """One step in the role table. `why`: more than the table says. Raises IllegalTransition: nothing has changed."""
        before, transition = self.role, step(self.role, event)
        self.role, self.reason = transition.role, transition.reason
        self.serving.set(self.role, self.active_epoch)
        more = {"why": why} if why else {}
        log.info("role", role=self.role, cause=event, reason=transition.reason, epoch=self.epoch, **more)
        self.on_role(event, before, why or transition.reason)
        self.happenings.role(self.role, why or transition.reason)
        self.touch()

    def touch(self) -> None:
        self.changed.set()

    def follower_silence_s(self) -> float | None:
        """At a standby: seconds since the active was last heard. None: unknown."""
        if self.role is not Role.STANDBY or self.sink.heard_s is None:
            return None
        return self.parts.clock.monotonic_s() - self.sink.heard_s

    def vouched_s(self) -> float | None:
        """At a standby: the moment of the own clock before which no acknowledged write is missing here. None: unknown."""
        return self.sink.as_of_s if self.role is Role.STANDBY else None

    def age_s(self, vouched_s: float) -> float:
        """Returns how many seconds, at most, have passed since that moment."""
        return (self.parts.clock.monotonic_s() - vouched_s) * (1 + self.settings.lease.drift_margin)

    @property
    def epoch(self) -> int:
        return self.active_epoch.epoch if self.active_epoch is not None else self.sink.followed_epoch

    @property
    def mode(self) -> str:
        if self.active_epoch is not None:
            return self.active_epoch.core.mode.label
        return self.pair_state.mode if self.pair_state is not None else "unknown"

    def _shipping_refusal(self) -> str | None:
        if not permissions(self.role).accepts_shipped:
            return f"it is {self.role}: {self.reason}"
        failure = self.parts.engine.failure
        return None if failure is None else f"its storage failed and waits to be opened anew: {failure}"

    def active_address(self) -> dict[str, Any] | None:
        """Returns where the active is, as far as this site knows."""
        if self.active_epoch is not None:
            return {"site": self.site, "url": self.settings.http.url, "epoch": self.active_epoch.epoch}
        state = self.pair_state
        if state is None or state.active is None:
            return None
        url = self.settings.http.url if state.active == self.site else self.settings.peer.public_url
        return {"site": state.active, "url": url, "epoch": state.epoch}

    def _refusal(self, is_write: bool) -> TwinlogError:
        """Returns why this site does not serve a request now."""
        if is_write and self.role is Role.DRAINING:
            return Unavailable(
                f"a switchover to {self.peer} is under way: nothing was logged, try again", retry_after_s=RETRY_SWITCHING_S
            )
        address = self.active_address()
        if address is not None and address["site"] != self.site:
            return NotActive(f"site {self.site} is {self.role}: the active is {address['site']}", active=address)
        return Unavailable(  # what it waits for may name addresses, which are the operators' affair
            f"site {self.site} is {self.role}: nothing was logged, try again; `twinlog status` shows what it waits for",
            retry_after_s=RETRY_SWITCHING_S, active=address,
        )

    # ---- an epoch begins and ends
    def _make_remote(self, reports: RemoteReports, epoch: int) -> RemoteWriter:
        """A writer of the remote log, which reports to the epoch of `reports`."""
        return RemoteWriter(
            self.parts.peer_dfs, self.layout, epoch, self.parts.clock, self.settings.remote_log,
            on_synced=reports.on_synced, on_ended=reports.on_ended, numbers=reports.numbers,
            pair=self.parts.wal.pair, keys=self.parts.remote_keys,
            wal_name=lambda: self.parts.wal.segments()[-1].name,
        )

    def new_activation(self, request: ActivationRequest) -> Activation:
        settings = self.settings
        lease = ReadLease(settings.lease.lease_s, settings.lease.drift_margin)
        self._reports = reports = RemoteReports(lease, self.remote_appends, self.parts.clock)
        return Activation(
            request, self.parts,
            ActivationSettings(lease, settings.remote_log.lease_recovery_deadline_s, settings.policy == "performance"),
            partial(self._make_remote, reports),
        )

    async def install(self, opened: OpenedEpoch) -> None:
        """Begins to serve the epoch that a plan has opened. One that was degraded by command waits for a command to resync."""
        reports, parts = self._reports, self.parts
        assert reports is not None
        assert self.active_epoch is None
        try:
            for holder in (ENGINE_HOLDER, PEER_HOLDER):  # nothing is trimmed before both say what they hold
                await parts.cursors.register(holder, holder)
            await self.sink.set_followed_epoch(opened.epoch)
        except BaseException:
            if opened.remote is not None:
                await opened.remote.close()
            raise
        self.catalog.reload()
        auto_resync = parts.engine.meta(PINNED) is None
        self.active_epoch = epoch = ActiveEpoch(
            opened, reports, parts, self.settings, kept=self.kept_log, make_remote=partial(self._make_remote, reports),
            on_applied=self.catalog.applied, on_end=self._epoch_ended, on_mode=self._mode_changed, auto_resync=auto_resync,
        )
        # no await from here to the end: an open epoch and its role come together, whatever fails meanwhile
        self._reports = None  # else they would keep the epoch, and the frames that it never wrote, behind its end
        self.waiting_for = None
        self.event(Event.OPENED_SYNC if opened.mode == "sync" else Event.OPENED_ASYNC)
        epoch.start()
        if reports.early is not None:
            self._epoch_ended(reports.early)

    def _mode_changed(self) -> None:
        if self.active_epoch is None:
            return  # the epoch ended meanwhile
        sync, why = self.active_epoch.core.mode is CommitMode.SYNC, self.active_epoch.mode_why
        if sync and self.role is Role.DOWNGRADE_ACTIVE:
            self.event(Event.RESYNCED, why)
        elif not sync and self.role is Role.ACTIVE:
            self.event(Event.DOWNGRADE_RECORDED, why)
        else:  # it drains, and its role stays
            self.on_role(Event.RESYNCED if sync else Event.DOWNGRADE_RECORDED, self.role, why)
            self.happenings.mode("sync" if sync else "async", why)

    def _epoch_ended(self, error: TwinlogError) -> None:
        """Fenced or broken: stop at once, from inside any callback."""
        if self.active_epoch is None or self._ending is not None:
            return
        fenced = error.code == "fenced"
        self.epochs_ended["fenced" if fenced else "fault"] += 1
        log.warning("epoch ended", epoch=self.active_epoch.epoch, code=error.code, detail=error.message)
        self.event(Event.MET_HIGHER_EPOCH if fenced else Event.HALTED, f"{error.code}: {error.message}")
        if not fenced:
            self.waiting_for = f"its restart: {error.message}"  # the supervisor begins it, or says what it waits for instead
        self._ending = asyncio.get_running_loop().create_task(self._end(error))

    async def _end(self, error: TwinlogError) -> None:
        try:
            text = f"site {self.site} is no longer the active ({error.code}; its log has the details): try again"
            await self.close_epoch(Unavailable(text, retry_after_s=1))
        except Exception:  # what could not be closed or flushed is the next activation's or rejoin's to find
            log.error("the end of an epoch failed", traceback=traceback.format_exc())
        finally:
            self._ending = None

    async def close_epoch(self, reason: TwinlogError) -> None:
        epoch, self.active_epoch = self.active_epoch, None
        self.serving.set(self.role, None)
        if epoch is not None:
            await epoch.stop(reason)
            if self.parts.engine.failure is None:  # else: what it lost is in the log
                await self.parts.engine.flush()
        self.touch()

    def end_if_storage_failed(self) -> None:
        """Nothing can be written any more, and a clean start of the storage needs it closed."""
        failure = self.parts.engine.failure
        if failure is not None:
            self._epoch_ended(EngineFailed(f"the storage failed: {failure}"))

    def end_by_register(self, error: RegisterWentBack) -> None:
        """An epoch that the register does not know has lost its proof: another site may have been given the pair."""
        self._epoch_ended(error)

    async def halt(self, why: str) -> None:
        """End the open epoch, if there is one, for a plan of this site itself."""
        if self.active_epoch is not None:
            self.event(Event.HALTED, why)
            await self.close_epoch(Unavailable(f"site {self.site} begins a new epoch ({why})", retry_after_s=1))

    @property
    def ending(self) -> bool:
        return self._ending is not None

    # ---- as a follower
    async def rejoin(self, accepted: int | str | None = None) -> RejoinReport:
        """Become a clean follower of the active. Raises PeerError when it does not answer, Diverged."""
        rejoin = Rejoin(
            site=self.site, peer=self.peer, engine=self.parts.engine, applier=self.applier, wal=self.parts.wal,
            files=self.parts.files, other=self.parts.other_site, sink=self.sink, failpoints=self.parts.failpoints,
            clear_wal=self.kept_log.take, accepted=accepted,
        )
        report = await rejoin.run()
        self.catalog.reload()
        self.event(Event.FOLLOW)
        self.waiting_for = None
        return report

    def diverged(self, why: str) -> None:
        """The active's log is not a continuation of this site's: rejoin before anything else is applied."""
        if self.role is Role.STANDBY:
            self.event(Event.REJOIN_STARTED, why)
            self.waiting_for = f"the rejoin ({why})"

    def takeover_blocker(self) -> str | None:
        """Returns why this site's storage cannot stand in for the active now; None when it can."""
        refused, failure = self.standing_at_refusal(), self.storage_error()
        if refused is not None:
            return f"it waits for {refused}"
        if failure is not None:
            return f"its storage failed and waits to be opened anew: {failure}"
        if self.sink.needs_base:
            return "its base data is not complete: wait until the active has filled this site"
        return None

    def storage_error(self) -> str | None:
        """Returns why the storage takes nothing. That it could be opened anew proves little: until it has applied something,
        or for MENDED_S, the reason of its last failure stands."""
        engine, mended = self.parts.engine, self._mended
        if engine.failure is not None or mended is None:
            return engine.failure
        is_sound = engine.applied.seq > mended.seq or self.parts.clock.monotonic_s() - mended.at_s > MENDED_S
        return None if is_sound else mended.why

    async def mend_storage(self) -> None:
        """Opens the storage anew. Raises EngineFailed."""
        engine = self.parts.engine
        why = engine.failure or ""
        await self.sink.reopen_storage()
        self._mended = _Mended(why, engine.applied.seq, self.parts.clock.monotonic_s())

    def standing_at_refusal(self) -> Refusal | None:
        """Returns the operator's ways on where the storage stands at a schema change that its database refuses."""
        change = standing_at(self.parts.engine)
        if change is None:
            return None
        return Refusal(
            f"its database, which refuses a change of {change.problem}",
            "bring the database to take the change, or "
            f"`twinlog log skip {self.site} --epoch {change.epoch} --seq {change.seq}`",
        )

    async def refresh_pair_state(self) -> PairState | None:
        clock, in_pair = self.parts.clock, self.active_epoch is not None or self.role is Role.STANDBY
        try:
            self.pair_state = await self.parts.coordinator.read()
        except TwinlogError as error:
            self.words.failed(COORDINATOR, clock.monotonic_s(), error)
            if isinstance(error, Unavailable):
                self.pair_state = self.parts.coordinator.known or self.pair_state
            raise
        self.words.answered(COORDINATOR, clock.monotonic_s())
        self.words.said(REGISTER, clock.monotonic_s(), LOST_REGISTER if in_pair and self.pair_state is None else None)
        return self.pair_state

    async def known_epochs(self) -> KnownEpochs:
        """Returns which epochs this site knows of, whatever the coordinator says."""
        parts = self.parts
        dfs_by_site = {self.site: parts.own_dfs, self.peer: parts.peer_dfs}
        seen = await known_epochs(parts.engine, parts.wal, dfs_by_site, self.layout)
        parts.coordinator.know(seen.known)
        return seen._replace(known=max(seen.known, parts.coordinator.met_epoch))

    async def _confirm_epoch(self, epoch: int) -> None:
        """An epoch counts that the register names, or a claim on one of the two DFSs: whoever follows one that nobody gave away
        would refuse the real active for ever. Raises Unavailable."""
        state = self.pair_state
        if state is None or state.epoch < epoch:
            with suppress(Unavailable):
                state = await self.refresh_pair_state()
        if state is not None and state.epoch >= epoch:
            return
        seen = await self.known_epochs()
        if seen.known < epoch:
            raise Unavailable(
                f"the other site names epoch {epoch}, and neither the register nor a claim in sight does: it is asked again",
                retry_after_s=1, waiting_for=f"a sign of epoch {epoch}",
            )

    # ---- what plans do at the active
    async def canary(self) -> int:
        record = Record(RecordKind.BARRIER, key=f"canary-{self.epoch}".encode())
        return (await self.serving.for_reads().commit.submit_mark(record, CANARY_TIMEOUT_S)).seq

    async def degrade(self, automatic: bool) -> None:
        if automatic:
            await self.serving.for_writes().degrade(by_command=False)
            return
        if self.role in (Role.CLOSED, Role.FENCED):
            await self._degrade_closed()
            return
        active = self.serving.for_writes()
        async with pinned(self.parts.engine):
            await active.degrade(by_command=True)

    async def _degrade_closed(self) -> None:
        """Degrades an active that cannot open, because the other site's DFS is gone: its restart asks nothing of that DFS."""
        engine = self.parts.engine
        epochs = opened_here(engine, self.parts.wal)
        if self.pair_state is not None and self.pair_state.epoch in epochs:  # else it is refused by the register's value
            await check_whole_alone(self.parts)
        async with pinned(engine):
            await self.parts.coordinator.force(lambda state: downgrade_closed(state, self.site, engine.applied.seq, epochs))
        await self.refresh_pair_state()

    async def resync(self) -> None:
        active = self.serving.for_writes()
        await self.parts.engine.set_meta(PINNED, None)
        await active.resync(by_command=True)

    # ---- the drain of a planned switchover
    async def drain(self) -> int:
        """No new writes; everything admitted settled; the last sequence that stands."""
        if self.active_epoch is None:
            raise self._refusal(False)
        if self.role is not Role.DRAINING:
            self.event(Event.DRAIN)
        return await self.active_epoch.drain()

    def undrain(self) -> None:
        if self.active_epoch is not None and self.role is Role.DRAINING:
            sync = self.active_epoch.core.mode is CommitMode.SYNC
            self.event(Event.DRAIN_CANCELLED_SYNC if sync else Event.DRAIN_CANCELLED_ASYNC)

    async def step_down(self) -> int:
        """Stop for good, and make the storage durable; its last durable sequence. Idempotent."""
        if self.role is Role.DRAINING and self.active_epoch is not None:
            await self.active_epoch.drain()  # the last noop for the lease too: nothing is left that only the remote log has
        if self.role is Role.DRAINING:
            self.event(Event.STEPPED_DOWN)
            await self.close_epoch(NotActive(
                f"site {self.site} has handed over to {self.peer}",
                active={"site": self.peer, "url": self.settings.peer.public_url, "epoch": self.epoch + 1},
            ))
        if self.active_epoch is not None:
            raise Conflict(f"site {self.site} is {self.role}: it must be drained before it steps down")
        return await self.parts.engine.flush()


def not_kept(name: str, why: str) -> None:
    """Logs what a FrameApplier refuses to keep."""
    log.warning("a barrier's snapshot is not kept", barrier=name, why=why)
