"""The supervisor: makes a closed site what the coordinator says it is, and keeps the site's housekeeping going.

What always holds: it never takes over from another site (only an operator's command does); it starts a plan only when what
the plan waits for first answers, so that the journal is not filled with attempts. Source: protocol.md section 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from gateway.site import Site
from remote_log.messages import STATUS, StatusReply, from_message
from storage.errors import TwinlogError
from switchover.decide import Action, decide
from switchover.roles import Event, Role

log = structlog.get_logger("twinlog.supervisor")
STATUS_TIMEOUT_S = 2.0


class Supervisor:
    """`run_plan(kind)` executes a plan to its end and raises its error."""

    def __init__(
        self, site: Site, *, run_plan: Callable[[str], Awaitable[dict[str, Any]]], is_busy: Callable[[], bool],
        poll_interval_s: float = 0.25,
    ) -> None:
        self._site, self._run_plan, self._is_busy = site, run_plan, is_busy
        self._poll_interval_s = poll_interval_s
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._flush_loop())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        site = self._site
        while True:
            try:
                await self._round()
            except TwinlogError as error:
                site.waiting_for = error.message
                log.info("waiting", role=site.role, code=error.code, detail=error.message)
            except Exception as error:  # a fault of ours must not leave a site without its supervisor
                site.waiting_for = f"a mend of an internal error: {error}"
                log.exception("internal error")
            await site.ports.clock.sleep(self._poll_interval_s)

    async def _round(self) -> None:
        """One look at the coordinator, and what follows from it."""
        site = self._site
        if self._is_busy() or site.ending:
            return
        state = await site.refresh_pair_state()
        decision = decide(site.site, site.role, state, site.settings.initial_active)
        if decision.action is Action.NOTHING:
            return
        site.waiting_for = decision.waiting_for
        if decision.action in (Action.BOOTSTRAP, Action.RESTART):
            if state is None or state.mode == "sync":
                await site.ports.peer_dfs.probe()
            if site.role is Role.FENCED:
                site.event(Event.REJOIN_STARTED)
            await self._run_plan(decision.action.value)
        elif decision.action is Action.REJOIN:
            reply = await site.ports.transport.call(STATUS, {}, STATUS_TIMEOUT_S)
            if from_message(StatusReply, reply).role in (Role.ACTIVE, Role.DOWNGRADE_ACTIVE):
                await self._run_plan("rejoin")

    async def _flush_loop(self) -> None:
        """Make what is applied durable from time to time: the logs can be trimmed behind it."""
        site, engine = self._site, self._site.ports.engine
        while True:
            await site.ports.clock.sleep(site.settings.flush_interval_s)
            if engine.applied_seq == engine.durable_seq:
                continue
            try:
                await engine.flush()
            except TwinlogError as error:
                log.error("flush failed", code=error.code, detail=error.message)
