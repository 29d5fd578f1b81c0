"""Gathers the facts of both sites and has them judged: before a plan, when a failover is asked for, and for `twinlog validate`.

What always holds: nothing is changed; a site, DFS or coordinator that does not answer is a fact like another, seen in time.
Source: protocol.md section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from remote_log.replication.messages import StatusReply
from switchover.facts import SiteFacts
from switchover.monitor.views import RoleChange, SiteView
from switchover.preflight.checks import Check, CheckFacts, judge
from switchover.preflight.loss import LossManifest, acceptance_problem, accepted_loss, loss_manifest
from switchover.register.port import PairState
from switchover.site_control import SiteControl
from twinlog.errors import Refused, RegisterWentBack, TwinlogError

CALL_TIMEOUT_S = 3.0  # the other site waits for both DFSs and the register
STATUS_TIMEOUT_S = 1.0  # it waits for nobody: its process answers, or hangs
OwnFacts = Callable[[PairState | None, str | None], Awaitable[SiteFacts]]


class ChecksDocument(msgspec.Struct, frozen=True, rename={"kind": "for"}):
    """The verdict of the checks on a role change of this kind to site `to`. `ok`: no check failed. `loss`: what a failover
    may lose; null: nothing that was acknowledged."""

    kind: str
    to: str
    ok: bool
    checks: list[Check]
    loss: LossManifest | None


@dataclass(frozen=True)
class PreflightResult:
    """The checks as judged, and what a failover may lose."""

    kind: str
    site: str
    checks: list[Check]
    manifest: LossManifest | None
    peer: SiteFacts | None  # as it answered

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.status == "failed"]

    def document(self) -> ChecksDocument:
        return ChecksDocument(self.kind, self.site, not self.failed, self.checks, self.manifest)

    def require(self) -> dict[str, Any]:
        """Returns what a plan's journal keeps of the checks. Raises Refused, with the manifest, when one failed."""
        if self.failed:
            words = "; ".join(f"{check.id}: {check.seen} ({check.fix})" if check.fix else f"{check.id}: {check.seen}"
                              for check in self.failed)
            raise Refused(words, checks=msgspec.to_builtins(self.failed), manifest=msgspec.to_builtins(self.manifest))
        return {
            "ok": sum(check.status == "ok" for check in self.checks), "warnings": self._ids("warning"),
            "cannot_verify": self._ids("unknown"), "manifest": msgspec.to_builtins(self.manifest),
            "not_ok": msgspec.to_builtins([check for check in self.checks if check.status != "ok"]),
        }

    def _ids(self, status: str) -> list[str]:
        return [check.id for check in self.checks if check.status == status]


class Preflight:
    """`own_facts(state, coordinator_error)` collects this site's facts: `state` is the coordinator's value, or the error says
    why there is none. `unfinished` names the last operation of this site if it stopped half-way."""

    def __init__(self, control: SiteControl, own_facts: OwnFacts, unfinished: Callable[[], Awaitable[str | None]]) -> None:
        self._control, self._own_facts, self._unfinished = control, own_facts, unfinished

    async def look(self, kind: str, options: Mapping[str, Any]) -> PreflightResult:
        """Raises InvalidInput for a kind or an option that there is not."""
        control, accepted = self._control, accepted_loss(options)
        coordinator = control.parts.coordinator
        (state, coordinator_error), (peer, peer_error, skew_s), unfinished, _ = await asyncio.gather(
            self._pair_state(), self._peer(), self._unfinished(), self._control.known_epochs()
        )
        if state is not None and coordinator_error is None and coordinator.met_epoch > state.epoch_allocated:
            state, coordinator_error = await self._pair_state()  # read after what is known now, it must say so too
        own = await self._own_facts(state, coordinator_error)
        manifest = await self._manifest(state) if kind == "failover" and state is not None else None
        checks = judge(CheckFacts(
            kind=kind, own=own, peer_name=control.peer, peer=peer, peer_error=peer_error, state=state, skew_s=skew_s,
            unseen=coordinator.unseen,
            manifest=manifest, accepted=accepted, unfinished=unfinished, automatic=bool(options.get("automatic")),
        ))
        return PreflightResult(kind, control.site, checks, manifest, peer)

    async def view(self, running: str | None, changes: list[RoleChange]) -> SiteView:
        """Returns what this site sees, for the monitor. It asks the other site for its status only, which needs no DFS."""
        async def look() -> tuple[PairState | None, str | None, SiteFacts]:
            state, error = await self._pair_state()
            return state, error, await self._own_facts(state, error)

        # at the same time: a site that hangs, and its DFS with it, costs a look one time-out and not two
        (state, coordinator_error, own), (peer, peer_error) = await asyncio.gather(look(), self._peer_status())
        return SiteView(
            own=own, peer=peer, peer_error=peer_error, register=state if coordinator_error is None else None, running=running,
            changes=changes,
        )

    async def _peer_status(self) -> tuple[StatusReply | None, str]:
        try:
            return await self._control.parts.other_site.status(STATUS_TIMEOUT_S), ""
        except TwinlogError as error:
            return None, error.message

    async def _pair_state(self) -> tuple[PairState | None, str | None]:
        """The value, or why not; where it is out of reach, the highest that is known. One that went back counts as lost."""
        try:
            return await self._control.refresh_pair_state(), None
        except RegisterWentBack:
            return None, None
        except TwinlogError as error:
            return self._control.parts.coordinator.known, error.message

    async def _peer(self) -> tuple[SiteFacts | None, str, float | None]:
        """The other site's facts, why there are none, and how far its clock is ahead at least. One that hangs is given up as
        soon as its status, which needs no DFS, does not come: a failover waits for this."""
        clock = self._control.parts.clock
        if (silence := (await self._peer_status())[1]):
            return None, silence, None
        before_ms = clock.wall_ms()
        try:
            facts = await self._control.parts.other_site.facts(CALL_TIMEOUT_S)
        except TwinlogError as error:
            return None, error.message, None
        after_ms = clock.wall_ms()
        ahead_ms = max(0, facts.wall_ms - after_ms) or min(0, facts.wall_ms - before_ms)
        return facts, "", ahead_ms / 1000

    async def check_loss(self, options: Mapping[str, Any]) -> None:
        """Raises Refused, with the manifest of now, unless a failover may begin with what `options` accept."""
        accepted, (state, _) = accepted_loss(options), await self._pair_state()
        manifest = await self._manifest(state) if state is not None else None
        problem = acceptance_problem(manifest, accepted)
        if problem is not None:
            raise Refused(f"{problem.seen}; {problem.fix}", manifest=msgspec.to_builtins(manifest))

    async def _manifest(self, state: PairState) -> LossManifest | None:
        """The manifest has no count while the active still renews its lease: it would be old before it is read."""
        control, now, growing = self._control, state, False
        if state.mode == "async" and state.active == control.peer and state.beat is not None:
            await control.parts.clock.sleep(state.beat.lease_s)
            now = (await self._pair_state())[0] or state
            growing = now.lease_beats != state.lease_beats
        engine = control.parts.engine
        return loss_manifest(
            now, control.site, applied_seq=engine.applied.seq, applied_epoch=engine.applied.epoch, growing=growing
        )
