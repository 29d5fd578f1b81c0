"""Role changes at this site: which plans there are, who may run them here, and the executor that runs them.

What always holds: one operation at a time; a plan runs only at the site that will be active (a rejoin: at the one that comes
back; a change of mode: at the active), any other site says which one to ask. Source: protocol.md section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from gateway.epoch.commit_rule import CommitMode
from gateway.site.facts import site_facts
from gateway.site.peer_api import PeerApi
from gateway.site.quarantine import merge_quarantine
from gateway.site.site import Site
from remote_log.replication.messages import MergeReply, MergeRequest
from switchover.monitor.views import RoleChange, SiteView
from switchover.operations.document import Lasted, OperationDocument
from switchover.operations.executor import Executor
from switchover.operations.journal import Journal
from switchover.operations.plan import Plan
from switchover.plans.follow import Follow, degrade_plan, resync_plan
from switchover.plans.skip import check_standing, skip_plan
from switchover.plans.takeover import Takeover
from switchover.preflight.loss import UNKNOWN, accepted_loss
from switchover.preflight.preflight import ChecksDocument, Preflight
from switchover.register.port import update
from switchover.register.transitions import abandon_plan
from switchover.roles.table import Role, permissions
from twinlog.errors import InvalidInput, Refused, RegisterWentBack, TwinlogError
from twinlog.operation_ids import operation_of_key

KINDS = {
    "switchover": {"reason"},
    "failover": {"reason", "accept_data_loss", "automatic", "without_coordinator"},
    "rejoin": {"reason", "merge", "put_absent", "wait", "again", "accept_data_loss"},
    "degrade": {"reason", "automatic"},
    "resync": {"reason"},
    "skip": {"reason", "epoch", "seq"},
}
VALID_S = 120  # a request that does not say when it expires
VALID_MAX_S = 86_400
LISTED_MAX = 200
STATUS_TIMEOUT_S = 2.0
MERGE_TIMEOUT_S = 60.0
OWN_ATTEMPT_S = 10.0
# What may pass: a DFS, a coordinator or a peer that did not answer, a lease that was not recovered yet. Past the point of no
# return nobody serves until the plan has gone on, and every step that matters asks the coordinator first.
TRANSIENT = ("unavailable", "no-thread", "dfs-error", "lease-lost", "lease-not-recovered", "peer-error")
TAKEN_UP = ("failover", "switchover")  # by the site itself, when it finds their plan at the register
OPERATOR = "operator"
CHANGES_MAX = 50  # operations that a view looks through for those that somebody asked for
LOOKED_BACK = 20  # operations; dry runs among them do not count


class SiteOperations:
    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._preflight = Preflight(site, partial(site_facts, site), self._unfinished)
        self._executor = Executor(journal, site.parts.clock, self._make_plan, site.parts.failpoints, site.parts.tracer)
        self._gone_on: set[str] = set()  # operations that this process has resumed by itself

    @property
    def running_id(self) -> str | None:
        running = self._executor.running
        return None if running is None else running.id

    @property
    def running(self) -> OperationDocument | None:
        return self._executor.running

    @property
    def ended(self) -> Mapping[tuple[str, str], int]:
        """Counts attempts that ended in this process, dry runs left out, by kind and outcome."""
        return self._executor.ended

    @property
    def lasted(self) -> Mapping[str, Lasted]:
        """The newest operation of each kind that succeeded in this process."""
        return self._executor.lasted

    def _make_plan(self, kind: str, to: str | None, options: dict[str, Any], continues: str | None = None) -> Plan:
        if kind in ("bootstrap", "restart", "failover", "switchover"):
            return Takeover(self._site, kind, options, self._preflight, self._site.settings.switchover, continues).plan()
        if kind == "rejoin":
            return Follow(self._site, options, self._preflight, self._merge_quarantine).plan()
        if kind == "skip":
            return skip_plan(self._site.site, self._site.parts.engine, options)
        if kind == "degrade":
            return degrade_plan(self._site, options)
        return resync_plan(self._site, self._resync_waits_for, self._resync_moved)

    def _resync_waits_for(self) -> str | None:
        epoch = self._site.active_epoch
        return None if epoch is None else epoch.modes.waiting_for

    def _resync_moved(self) -> object:
        epoch = self._site.active_epoch
        if epoch is None:
            return None
        core, shipper = epoch.core, epoch.shipper
        logged = core.remote if core.mode is CommitMode.TIGHTENING else None  # before, the other site's storage counts alone
        return core.mode, logged, shipper.view.applied_seq, shipper.view.durable_seq, shipper.base_rows_sent

    async def _merge_quarantine(self, put_absent: bool) -> dict[str, Any]:
        """Into the tables of the active, which may be this site itself."""
        site, other = self._site, self._site.parts.other_site

        async def merge(request: MergeRequest) -> MergeReply:
            if permissions(site.role).writes:
                return await PeerApi(site).merge(request)
            return await other.merge(request, MERGE_TIMEOUT_S)

        found = await merge_quarantine(
            site.parts.files, merge, site.parts.engine.applied.schemas(), put_absent=put_absent
        )
        if site.active_epoch is not None:
            site.active_epoch.quarantine.left_out = None
        return found

    def _check(self, kind: str, to: str | None, options: dict[str, Any]) -> None:
        if kind not in KINDS:
            raise InvalidInput(f"there is no operation {kind!r}: it is one of {', '.join(KINDS)}", kind=kind)
        unknown = sorted(set(options) - KINDS[kind])
        if unknown:
            known = ", ".join(sorted(KINDS[kind]))
            raise InvalidInput(f"{kind} has no option {unknown[0]!r}; it knows {known}", option=unknown[0])
        accepted_loss(options)
        policy = self._site.settings.policy
        if options.get("automatic") and policy != "available":
            said = f"the policy of site {self._site.site} is {policy}: a {kind} is an operator's to decide"
            raise Refused(said, policy=policy)
        if kind == "resync" and policy == "performance":
            said = f"the policy of site {self._site.site} is {policy}, asynchronous by choice: give both sites another one"
            raise Refused(said, policy=policy)
        if kind in ("switchover", "failover", "rejoin", "skip"):
            if to is None:
                raise InvalidInput(f"{kind} needs `to`: the site it is about", kind=kind)
            if to != self._site.site:
                where = {"rejoin": "of", "skip": "at"}.get(kind, "to")
                raise Refused(
                    f"{kind} {where} {to} runs at site {to}: ask {self._site.settings.peer.public_url}",
                    ask=self._site.settings.peer.public_url,
                )
        elif kind != "degrade" or options.get("automatic") or not self._is_closed_active():
            self._site.serving.for_writes()  # NotActive says which site to ask

    def _is_closed_active(self) -> bool:
        state = self._site.pair_state
        return self._site.role in (Role.CLOSED, Role.FENCED) and state is not None and state.active == self._site.site

    async def start(
        self, kind: str, to: str | None, options: dict[str, Any], dry_run: bool, actor: str, key: str | None = None,
        expires_ms: int | None = None,
    ) -> OperationDocument:
        """The operation as it begins; a dry run's as it ended. With the idempotency `key` of one that was begun: that one.
        `expires_ms`: by this site's wall clock; None: in two minutes.

        Refused, with the loss manifest, unless a failover accepts what it may lose: before anything is journaled.
        """
        operation_id = self._site.parts.new_id() if key is None else operation_of_key(key)
        document = None if key is None else await self._executor.begun(operation_id, kind, to, options, dry_run)
        if document is None:
            expires_ms = self._checked_expiry(expires_ms)
            self._check(kind, to, options)
            if options.get("without_coordinator") and not dry_run:
                await self._give_up_coordinator(options)
            if kind == "failover" and not dry_run:
                await self._preflight.check_loss(options)
            if kind == "skip":
                await self._own_attempt_ended()
                check_standing(self._site.site, self._site.parts.engine, options)  # before anything is journaled
            document = await self._executor.start(operation_id, kind, to, options, actor, dry_run, expires_ms)
        self._site.touch()
        return await self._executor.wait(document.id) if dry_run else document

    async def _give_up_coordinator(self, options: dict[str, Any]) -> None:
        """By command, when the coordinator is lost together with the active: from here on this site keeps the register itself.

        Raises Refused while the coordinator answers, at the active, and unless a loss is accepted that nobody can count.
        """
        site, stand_in = self._site, self._site.parts.stand_in
        if stand_in is None:
            raise Refused("this pair has no coordinator: `twinlog failover` without --without-coordinator")
        if options.get("automatic") or options.get("accept_data_loss") != UNKNOWN:
            raise Refused("--without-coordinator needs a loss that is accepted as `unknown`: nobody can count it")
        if permissions(site.role).reads:
            raise Refused(f"site {site.site} is {site.role}: there is nothing to take over")
        if not stand_in.stands_in:
            try:
                await site.refresh_pair_state()
            except RegisterWentBack:
                raise
            except TwinlogError:
                await stand_in.give_up()
            else:
                raise Refused("the coordinator answers: `twinlog failover` without --without-coordinator")

    def _checked_expiry(self, expires_ms: int | None) -> int:
        """Returns when a request expires. Raises Refused when it has: it sat somewhere, and who asked may have given it up."""
        now_ms = self._site.parts.clock.wall_ms()
        if expires_ms is None:
            return now_ms + VALID_S * 1000
        if expires_ms <= now_ms:
            said = f"the request expired {(now_ms - expires_ms) / 1000:.0f} s ago, by the clock of site {self._site.site}"
            raise Refused(f"{said}: nothing was begun, ask again", expires_ms=expires_ms)
        return min(expires_ms, now_ms + VALID_MAX_S * 1000)

    async def _own_attempt_ended(self) -> None:
        """A site that stands at a change which its database refuses tries to open again and again: that leaves little time
        between two attempts for the command that ends it."""
        running = self.running_id
        with suppress(TimeoutError):
            async with asyncio.timeout(OWN_ATTEMPT_S):
                if running is not None:
                    await self._executor.wait(running)

    async def run_own(self, kind: str) -> OperationDocument:
        """A plan that the site starts by itself: to its end, raising the error of the step that failed."""
        options = {"reason": f"site {self._site.site} is {self._site.role}"}
        return await self._executor.run(self._site.parts.new_id(), kind, self._site.site, options, self._actor)

    @property
    def _actor(self) -> str:
        """Names the site as the one that acts by itself."""
        return f"site {self._site.site}"

    async def _begun(self) -> list[OperationDocument]:
        """Newest first."""
        return [one for one in await self._executor.operations(LISTED_MAX) if not one.dry_run and not one.never_began]

    async def go_on(self, plan_id: str) -> bool:
        """Take up the takeover or switchover that left `plan_id` at the coordinator: forward when its process ended, or when
        a transient error stopped it past the point of no return; back when it was being undone, or when it had not got so
        far and the active serves on, or the request has expired. A plan that no operation here can be part of is let go: its
        journal was lost with the disk. False: a step said no, or this process has resumed it once already after its death, and
        the operator decides.
        """
        begun = await self._begun()
        if all(one.kind not in TAKEN_UP or one.state in ("succeeded", "aborted") for one in begun):
            await update(self._site.parts.coordinator, lambda state: abandon_plan(state, plan_id))
            return True
        last = begun[0]
        if last.kind not in TAKEN_UP:
            return False
        given_up = last.abortable and last.state == "interrupted" and (self._has_expired(last) or await self._peer_serves())
        if _is_half_undone(last) or given_up:
            await self._executor.abort(last.id, self._actor)
            return True
        transient = last.state == "failed" and not last.abortable and last.error is not None and last.error.code in TRANSIENT
        once = last.state == "interrupted" and last.id not in self._gone_on
        if not last.resumable or not (transient or once):
            return False  # once only: what ends the process ends it as often as the init system starts it, and no more
        await self._site.parts.own_dfs.probe()  # the claim is made there: without it this one attempt would be wasted
        await self._executor.resume(last.id, self._actor, partial(self._make_plan, continues=plan_id))
        self._gone_on.add(last.id)
        return True

    def _has_expired(self, operation: OperationDocument) -> bool:
        return operation.expires_ms is not None and operation.expires_ms <= self._site.parts.clock.wall_ms()

    async def _peer_serves(self) -> bool:
        """The other site answers as an active: then a takeover that nobody waits for any more would only take writes away."""
        try:
            reply = await self._site.parts.other_site.status(STATUS_TIMEOUT_S)
        except TwinlogError:
            return False
        return permissions(reply.role).reads

    async def undo_again(self) -> None:
        """Abort the last operation that began again, if a step of it could not be undone: what was in the way may be gone."""
        for last in (await self._begun())[:1]:
            if last.abortable and _has_undo_failed(last):
                await self._executor.abort(last.id, self._actor)

    async def all(self) -> list[OperationDocument]:
        return await self._executor.operations(LISTED_MAX)

    async def get(self, operation_id: str) -> OperationDocument:
        return await self._executor.operation(operation_id)

    def follow(self, operation_id: str) -> AsyncIterator[OperationDocument]:
        return self._executor.follow(operation_id)

    async def abort(self, operation_id: str, actor: str = OPERATOR) -> OperationDocument:
        return await self._executor.abort(operation_id, actor)

    async def resume(self, operation_id: str, actor: str = OPERATOR, expires_ms: int | None = None) -> OperationDocument:
        return await self._executor.resume(operation_id, actor, expires_ms=self._checked_expiry(expires_ms))

    async def checks(self, kind: str) -> ChecksDocument:
        """Judges whether a role change of this kind would work here now. Raises InvalidInput."""
        return (await self._preflight.look(kind, {})).document()

    async def view(self) -> SiteView:
        """Shows what this site sees of the pair, for the availability monitor."""
        now_ms = self._site.parts.clock.wall_ms()
        changes = [
            RoleChange(one.id, one.kind, one.actor, max(0, now_ms - one.created_ms) / 1000)
            for one in await self._executor.operations(CHANGES_MAX)
            if one.kind in KINDS and not one.dry_run and one.actor != self._actor
        ]
        return await self._preflight.view(self.running_id, changes)

    async def _unfinished(self) -> str | None:
        for last in await self._executor.operations(LOOKED_BACK):
            was_refused = last.state == "failed" and last.never_began  # it changed nothing, so it stands half-way nowhere
            if not last.dry_run and last.state != "running" and not was_refused:
                stopped = last.resumable or (last.aborting and last.state != "aborted")
                return f"{last.kind} {last.id} {last.state}" if stopped else None
        return None

    async def close(self) -> None:
        await self._executor.close()


def _has_undo_failed(operation: OperationDocument) -> bool:
    return any(step.state == "undo_failed" for step in operation.steps)


def _is_half_undone(operation: OperationDocument) -> bool:
    """Its way back was begun, by command or because a step failed, and did not come to its end."""
    began = operation.aborting or any(step.state in ("undoing", "undone") for step in operation.steps)
    return operation.abortable and ((began and operation.state == "interrupted") or _has_undo_failed(operation))
