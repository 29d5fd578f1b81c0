"""The plans that do not make a site the active: rejoin, degrade, resync.

What always holds: a rejoin runs at the site that comes back, the others at the active; each step may be repeated.
Source: protocol.md sections 6 and 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from remote_log.replication.messages import StatusReply
from storage.cancellation import ended
from switchover.operations.plan import Plan, Step
from switchover.preflight.loss import accepted_loss
from switchover.preflight.preflight import Preflight
from switchover.roles.table import Event, Role, permissions
from switchover.site_control import SiteControl
from twinlog.errors import Refused

CALL_TIMEOUT_S = 3.0
POLL_S = 0.05
STALL_S = 30.0
RESYNC_STALL_S = 120.0  # as long as a request is valid: the other site may be starting
Merge = Callable[[bool], Awaitable[dict[str, Any]]]  # of the quarantined rows; the argument: put those that are absent


class Follow:
    """Rejoin this site to the active; `merge` also puts quarantined rows back where nothing newer is, and `put_absent` also
    those that the active does not have: it may have deleted them."""

    def __init__(
        self, control: SiteControl, options: dict[str, Any], preflight: Preflight, merge_quarantine: Merge
    ) -> None:
        self._control, self._options, self._preflight = control, options, preflight
        self._merge_quarantine = merge_quarantine

    def plan(self) -> Plan:
        merge = Step("merge", self._merge, "put quarantined rows back where nothing newer is")
        if self._options.get("merge") and permissions(self._control.role).writes:
            return Plan("rejoin", [merge])  # an active has nothing to rejoin: the quarantine of what its remote log held
        steps = [
            Step("preflight", self._check, "check both sites", abortable=True, dry=True),
            Step("rejoin", self._rejoin, "learn the active's history, cut what diverges, follow", abortable=True),
        ]
        if self._options.get("merge"):
            steps.append(merge)
        if self._options.get("wait"):
            steps.append(Step("catch_up", self._catch_up, "apply what the active has committed", abortable=True, waits=True))
        return Plan("rejoin", steps)

    async def _active(self) -> StatusReply:
        reply = await self._control.parts.other_site.status(CALL_TIMEOUT_S)
        if reply.role not in (Role.ACTIVE, Role.DOWNGRADE_ACTIVE):
            raise Refused(f"site {reply.site} is {reply.role}: there is no active to rejoin; see `twinlog status`")
        return reply

    async def _check(self) -> dict[str, Any]:
        return (await self._preflight.look("rejoin", self._options)).require()

    async def _rejoin(self) -> dict[str, Any]:
        control = self._control
        if control.role is Role.STANDBY and not self._options.get("again"):
            return {"note": "this site follows the active already"}
        if control.role in (Role.STANDBY, Role.FENCED):
            control.event(Event.REJOIN_STARTED)
        return asdict(await control.rejoin(accepted_loss(self._options)))

    async def _merge(self) -> dict[str, Any]:
        return await self._merge_quarantine(bool(self._options.get("put_absent")))

    async def _catch_up(self) -> dict[str, Any]:
        """However long it takes, as long as it moves."""
        control = self._control
        target = (await self._active()).committed_seq
        seen, seen_s = control.parts.engine.applied.seq, control.parts.clock.monotonic_s()
        while control.parts.engine.applied.seq < target:
            await control.parts.clock.sleep(POLL_S)
            if control.parts.engine.applied.seq != seen:
                seen, seen_s = control.parts.engine.applied.seq, control.parts.clock.monotonic_s()
            elif control.parts.clock.monotonic_s() - seen_s >= STALL_S:
                raise Refused(
                    f"site {control.site} stands still at {seen} of {target} for {STALL_S:.0f} s: see `twinlog status` for "
                    "what replication waits for, and run this again"
                )
        return {"applied_seq": control.parts.engine.applied.seq}


def degrade_plan(control: SiteControl, options: dict[str, Any]) -> Plan:
    async def run() -> dict[str, Any]:
        await control.degrade(bool(options.get("automatic")))
        if control.role in (Role.CLOSED, Role.FENCED):
            return {"mode": "async", "writes": f"not yet: site {control.site} is closed, and opens by itself after this"}
        return {"mode": "async"}

    return Plan("degrade", [Step("degrade", run, "record it, then acknowledge with the local log alone")])


def resync_plan(control: SiteControl, waits_for: Callable[[], str | None], moved: Callable[[], object]) -> Plan:
    """`waits_for`: what the resync waits for at this moment, for people. `moved`: another value whenever it has come closer.

    It gives up where it stands still: no other operation runs at this site meanwhile, nor what it does by itself.
    """
    async def run() -> dict[str, Any]:
        clock = control.parts.clock
        working = asyncio.get_running_loop().create_task(control.resync())
        seen, seen_s = moved(), clock.monotonic_s()
        try:
            while not working.done():
                await clock.sleep(POLL_S)
                if moved() != seen:
                    seen, seen_s = moved(), clock.monotonic_s()
                elif clock.monotonic_s() - seen_s >= RESYNC_STALL_S and not working.done():
                    raise Refused(
                        f"site {control.site} waits for {waits_for() or 'the other site'}, and nothing has moved for"
                        f" {RESYNC_STALL_S:.0f} s: it stays asynchronous; `twinlog status` shows what replication waits for,"
                        f" and site {control.site} becomes synchronous by itself once the other site follows again"
                    )
            await working
        finally:
            working.cancel()
            await ended([working])
        return {"mode": "sync"}

    def progress() -> dict[str, Any]:
        what = waits_for()
        return {"waiting_for": what} if what else {}

    what = "switch the remote log on, catch up, declare sync"
    return Plan("resync", [Step("resync", run, what, abortable=True, progress=progress)])
