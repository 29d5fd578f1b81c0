"""The supervisor: makes a closed site what the coordinator says it is, and keeps the site's housekeeping going.

What always holds: it never takes over from another site (only an operator's command does, which it carries on with after the
death of the process); it starts a plan only when what the plan waits for first answers, so that the journal is not filled with
attempts; a storage that failed is opened anew before anything else is begun. Source: protocol.md sections 6 and 8.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from gateway.service.documents import SiteTrouble
from gateway.site.serving_facts import site_condition
from gateway.site.serving_judgement import KEYS, OWN_DFS, PEER_DFS, WAY
from gateway.site.site import Site
from storage.cancellation import ended, unless_asked
from storage.engines.flushing import FlushNeed, Look
from switchover.register.lost_value import epoch_lost_by_register
from switchover.register.port import Switching
from switchover.register.went_back import advice
from switchover.roles.boot import Action, decide
from switchover.roles.table import Event, Role, permissions
from twinlog.errors import DfsError, EngineFailed, Incompatible, RegisterWentBack, TwinlogError, Unavailable, words

log = structlog.get_logger("twinlog.supervisor")
STATUS_TIMEOUT_S = 2.0
BACKOFF_MAX_S = 5.0
PROBE_INTERVAL_S = 5.0
CONDITION_INTERVAL_S = 0.25
FLUSH_LOOK_S = 1.0
PURGE_INTERVAL_S = 300.0  # old versions and request outcomes stay this much longer at most


class Supervisor:
    """`run_plan(kind)` executes a plan to its end and raises its error; `undo_again` undoes what an abort could not;
    `go_on(plan_id)` takes up what the plan at the coordinator is part of, or says that the operator has to."""

    def __init__(
        self, site: Site, *, run_plan: Callable[[str], Awaitable[object]], undo_again: Callable[[], Awaitable[None]],
        go_on: Callable[[str], Awaitable[bool]], is_busy: Callable[[], bool], poll_interval_s: float = 0.25,
    ) -> None:
        self._site, self._is_busy = site, is_busy
        self._run_plan, self._undo_again, self._go_on = run_plan, undo_again, go_on
        self._poll_interval_s = poll_interval_s
        self._tasks: list[asyncio.Task[None]] = []
        self._said = ""
        self._awaited = ""  # what a round is about to need, as a noun: an error that ends the round says why it is missing
        self._done: tuple[bool, ...] = ()  # what it serves, as it was logged last
        self._has_lost = False  # an epoch is open, and serves less than its role is for
        self._troubles: dict[str, SiteTrouble] = {}
        self._failed = 0  # attempts in a row: plans, and to open the storage anew
        self._flush_need = FlushNeed(site.settings.engine.flush_interval_s)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        upkeep = (
            self._every(lambda: min(FLUSH_LOOK_S, self._site.settings.engine.flush_interval_s), "flush", self._flush),
            self._every(lambda: PURGE_INTERVAL_S, "purge", self._purge),
            self._every(lambda: PROBE_INTERVAL_S, "probe of both DFSs", self._probe),
            self._every(lambda: CONDITION_INTERVAL_S, "look at itself", self._tell_changes),
        )
        self._tasks = [loop.create_task(work) for work in (self._watch(), *upkeep)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await ended(self._tasks)

    async def _watch(self) -> None:
        site = self._site
        while True:
            try:
                await unless_asked(self._round(), "a look at the register")
            except TwinlogError as error:
                if isinstance(error, RegisterWentBack):
                    site.end_by_register(error)
                    self._awaited = "the operator"
                elif isinstance(error, EngineFailed):
                    self._awaited = "its storage"  # whatever the round was about to do
                waits = f"{self._awaited}: {error.message}"
                if waits != self._said:  # once, not at every look
                    log.info("waiting", role=site.role, code=error.code, waiting_for=waits)
                site.waiting_for = self._said = waits
            except Exception as error:  # a fault of ours must not leave a site without its supervisor
                site.waiting_for = f"the operator to fix an internal error: {words(error)}"
                log.error("internal error", traceback=traceback.format_exc())
            pause_s = self._poll_interval_s * 2 ** min(self._failed, 10)
            await site.parts.clock.sleep(max(self._poll_interval_s, min(pause_s, BACKOFF_MAX_S)))

    async def _run(self, kind: str) -> None:
        """A plan that failed is tried again, less and less often: it left an operation, an epoch and a claim behind."""
        self._failed += 1
        await self._run_plan(kind)
        self._failed = 0

    async def _mend_storage(self) -> None:
        """An open epoch ends first. A plan that runs comes to its own end, unless it waits for what a standby applies."""
        site, self._awaited = self._site, "its storage"
        if site.active_epoch is not None:
            site.end_if_storage_failed()
        elif site.role is Role.STANDBY or not self._is_busy():
            self._failed += 1  # that it could be opened proves little: a role that fits does
            await site.mend_storage()
            log.info("the storage was opened anew", applied_seq=site.parts.engine.applied.seq)
            site.touch()

    async def _round(self) -> None:
        """One look at the coordinator, and what follows from it."""
        site = self._site
        if site.parts.engine.failure is not None and not site.ending:
            await self._mend_storage()
        self._awaited = "the register"
        if self._is_busy() and site.active_epoch is not None:
            with suppress(Unavailable):  # however long an operation takes, an active sees that the register went back
                await site.refresh_pair_state()
        if self._is_busy() or site.ending or site.parts.engine.failure is not None:
            return
        if site.role is Role.SWITCHING:  # no plan runs: its journal failed, and it stopped where it stood, as by a crash
            site.event(Event.PLAN_FAILED)
        role = site.role
        state = await site.refresh_pair_state()
        if site.role is not role:
            return  # what was read may be older than the change
        forgotten: int | None = None
        if role in (Role.CLOSED, Role.FENCED) and (state is None or state.active is None):
            seen = await site.known_epochs()
            if epoch_lost_by_register(state, seen) is not None:
                state = await site.refresh_pair_state()  # it may have been opened meanwhile, and be known by that
                forgotten = epoch_lost_by_register(state, seen)
        decision = decide(
            site.site, role, state, site.settings.initial_active, forgotten, site.parts.coordinator.met_active
        )
        self._awaited = decision.waiting_for or f"the end of its {decision.action.value}"
        if decision.action is Action.NOTHING:
            refused = site.standing_at_refusal()
            if refused is None and site.storage_error() is None:
                self._failed = 0  # else: a database that refuses a change or a row is asked less and less often
            site.waiting_for = None if refused is None else str(refused)
            return
        if decision.action is Action.UNDRAIN:
            site.undrain()
            return
        if decision.action is Action.UNDO:
            await self._undo_again()
            return
        if decision.action is Action.RESUME and state is not None and state.switching is not None:
            await self._resume(state.switching, decision.waiting_for)
            return
        site.waiting_for = decision.waiting_for
        if decision.action in (Action.BOOTSTRAP, Action.RESTART):
            await self._look_for_later_epochs()
            if state is None or state.mode == "sync":
                await self._probe_arbiter(may_go_without=state is not None and state.active == site.site)
            if site.role is Role.FENCED:
                site.event(Event.REJOIN_STARTED)
            if decision.action is Action.RESTART:
                await self._hear_other_site()
            await self._run(decision.action.value)
        elif decision.action is Action.REJOIN:
            reply = await site.parts.other_site.status(STATUS_TIMEOUT_S)
            site.parts.understanding.check(reply.says)
            if reply.role in (Role.ACTIVE, Role.DOWNGRADE_ACTIVE):
                await self._look_for_later_epochs()
                await self._run("rejoin")

    async def _look_for_later_epochs(self) -> None:
        """Raises RegisterWentBack when an epoch is known here that the register, read after that, never gave away."""
        await self._site.known_epochs()
        await self._site.refresh_pair_state()

    async def _hear_other_site(self) -> None:
        """Raises RegisterWentBack when the other site has met what the register does not lead on from: it would follow no
        epoch that began now. A site that does not answer says nothing."""
        site = self._site
        try:
            facts = await site.parts.other_site.facts(STATUS_TIMEOUT_S)
        except TwinlogError as error:
            log.debug("the other site says nothing of the register", detail=error.message)
            return
        if facts.register_went_back is not None:
            way = advice(site.site, facts.met_active)
            raise RegisterWentBack(f"site {facts.site} says that {facts.register_went_back}; {way}")

    async def _resume(self, plan: Switching, else_waiting_for: str | None) -> None:
        """Resumes or undoes a plan; what cannot be done now is tried again, less and less often."""
        self._failed += 1
        if await self._go_on(plan.plan_id):
            self._site.waiting_for = f"its own {plan.kind}, which stopped half-way and is taken up again"
        else:
            self._site.waiting_for, self._failed = else_waiting_for, 0

    async def _probe_arbiter(self, *, may_go_without: bool) -> None:
        """The other site's DFS, without which nobody knows whether that site has taken over."""
        try:
            await self._site.parts.peer_dfs.probe()
        except DfsError as error:
            if may_go_without:
                error.message += "; if that DFS is lost for good, `twinlog degrade` opens this site without it"
            raise

    async def _every(self, interval_s: Callable[[], float], name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Housekeeping: what fails is logged, and tried again at the next round."""
        while True:
            await self._site.parts.clock.sleep(interval_s())
            try:
                await unless_asked(work(), name)
            except TwinlogError as error:
                log.error("housekeeping failed", work=name, code=error.code, detail=error.message)
            except Exception:
                log.error("housekeeping failed by an internal error", work=name, traceback=traceback.format_exc())

    async def _flush(self) -> None:
        """Make what is applied durable when that is due: the logs can be trimmed behind it. And let go of barriers whose time
        is over."""
        engine, applier = self._site.parts.engine, self._site.applier
        self._flush_need.age_s = self._site.settings.engine.flush_interval_s
        look = Look(self._site.parts.clock.monotonic_s(), engine.applied.seq, engine.durable_seq, applier.log_bytes)
        if self._flush_need.is_due(look) and engine.failure is None:
            await engine.flush()
        await applier.expire()

    async def _probe(self) -> None:
        """A standby needs its own DFS only at the takeover, and an active the other one only for its next segment: what is
        wrong must be seen before, and be over when it is."""
        parts = self._site.parts
        probes = {OWN_DFS: parts.own_dfs.probe, PEER_DFS: parts.peer_dfs.probe}
        if self._site.role is Role.STANDBY:  # what the active ships arrives, but no call of this site may
            probes[WAY] = self._ask_other_site
        if self._looks_at_keys():
            probes[KEYS] = partial(self._site.key_look.look, self._site.peer_log_key)
        elif self._site.words.of(KEYS).error is not None:
            self._site.words.answered(KEYS, parts.clock.monotonic_s())
        await asyncio.gather(*(self._probe_one(subject, probe) for subject, probe in probes.items()))

    async def _ask_other_site(self) -> None:
        reply = await self._site.parts.other_site.status(STATUS_TIMEOUT_S)
        self._site.peer_log_key = reply.log_key
        with suppress(Incompatible):  # the way is there, and what does not fit is a trouble of its own
            self._site.parts.understanding.check(reply.says)

    def _looks_at_keys(self) -> bool:
        """Only a standby may need them; where neither site has any, there is nothing to look for."""
        return self._site.role is Role.STANDBY and bool(self._site.parts.remote_keys or self._site.peer_log_key)

    async def _probe_one(self, subject: str, probe: Callable[[], Awaitable[None]]) -> None:
        words, clock = self._site.words, self._site.parts.clock
        try:
            await probe()
            words.answered(subject, clock.monotonic_s())
        except TwinlogError as error:
            words.failed(subject, clock.monotonic_s(), error)

    async def _tell_changes(self) -> None:
        """Logs each change of what the site serves, and of what keeps it from being whole."""
        serving, troubles, *_ = site_condition(self._site)
        done = serving.reads, serving.writes, serving.follows
        is_open = self._site.active_epoch is not None and permissions(self._site.role).reads
        has_lost = is_open and serving.why is not None  # also before the first look, and between two
        if done != self._done or (has_lost and not self._has_lost):
            served = serving.reads or serving.follows or (self._done and self._done != (False, False, False))
            if serving.why is not None and (served or has_lost):  # a site that boots is not in trouble
                log.warning("serves", **msgspec.to_builtins(serving))
                self._site.happenings.serving(serving)
            else:
                log.info("serves", **msgspec.to_builtins(serving))
                if self._has_lost and not has_lost:
                    self._site.happenings.over("serving")
            self._done = done
            self._site.touch()
        self._has_lost = has_lost
        now = {one.about: one for one in troubles}
        for about in [about for about in self._troubles if about not in now]:
            log.info("trouble is over", about=about)
            self._site.happenings.over(about)
        for about, one in now.items():
            if about not in self._troubles:
                log.warning("trouble", **msgspec.to_builtins(one))
                self._site.happenings.trouble(one)
        self._troubles = now

    async def _purge(self) -> None:
        """Old versions and request outcomes go, at the active and at the standby alike; dropped tables by the active's word."""
        if self._site.parts.engine.failure is None:
            await self._site.parts.engine.purge(self._site.parts.clock.wall_ms())
        await self._site.tables.purge_dropped()
