"""The operator: commands at any time, as the nemesis says, and, once all faults are healed, what the handbook says.

What always holds: a command goes to a site over the network as the CLI's does, and its answer may be lost; a loss of data is
accepted by a plan's explicit command, and by the handbook only when the disk of an asynchronous active is gone.
Source: docs/operations.md, protocol.md 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from chaos.simulate.actors.disasters import CURSORS
from chaos.simulate.plan import SITES
from chaos.simulate.twins.disk import SimDisk
from chaos.simulate.twins.network import CallInFlight
from chaos.simulate.twins.process import Process
from chaos.simulate.world import OTHER, PAIR, Life, World
from gateway.service.documents import BarrierDocument
from gateway.site.operations import SiteOperations
from gateway.site.site import Site
from remote_log.layout import RemoteLayout
from storage.engines.unshown import standing_at
from storage.log.chain import standing
from storage.log.frame import Frame
from storage.log.segment import scan_segment
from switchover.preflight.loss import at_risk
from twinlog.errors import LogError, TwinlogError, Unavailable

COMMAND_TIMEOUT_S = 10.0
PATIENCE_S = 5.0  # how long the handbook lets the pair repair itself before a command


class Operator:
    def __init__(self, world: World, note: Callable[[str], None], taken: Callable[[BarrierDocument], None]) -> None:
        self._world, self._note, self._taken = world, note, taken
        self._barriers = 0
        self._process = Process("operator")
        self._resumed = False
        self._asking: list[asyncio.Task[None]] = []

    # ---- commands
    def command(self, kind: str, site: str, *, accept_data_loss: bool = False) -> None:
        """Give a command to a site, and do not wait for it."""
        works: dict[str, Callable[[Life], Coroutine[Any, Any, Any]]] = {
            "abort": partial(self._last, "abort"), "resume": partial(self._last, "resume"),
            "barrier": self._take_barrier, "skip": partial(self._skip, site),
        }
        work = works.get(kind, partial(self._start, kind, site, accept_data_loss))
        self._asking.append(self._process.spawn(self._ask(kind, site, work), "command"))

    async def idle(self) -> None:
        """Until every command has been answered, or given up."""
        for asking in self._asking:
            await asking

    async def _ask(self, kind: str, site: str, work: Callable[[Life], Coroutine[Any, Any, Any]]) -> None:
        try:
            said = await self._world.network.call("c", site, partial(self._serve, site, work), COMMAND_TIMEOUT_S, _failed)
        except TwinlogError as error:
            said = error.code
        self._note(f"{kind} at {site}: {said}")

    def _serve(self, site: str, work: Callable[[Life], Coroutine[Any, Any, Any]], call: CallInFlight) -> None:
        life = self._world.alive(site)
        if life is None:
            call.refuse()
            return
        call.run_in(life.process, partial(work, life))

    async def _start(self, kind: str, site: str, accept_data_loss: bool, life: Life) -> str:
        operations = _of(life)
        to = site if kind in ("failover", "switchover", "rejoin") else None
        options: dict[str, Any] = {}
        if accept_data_loss:
            options = await _accepted(operations, to)
        document = await operations.start(kind, to, options, False, "operator")
        return document.id

    async def _skip(self, site: str, life: Life) -> str:
        """The command that `status` names, at a site that stands at a schema change which its database refuses."""
        change = None if life.site is None else standing_at(life.site.parts.engine)
        if change is None:
            return "none"
        options = {"epoch": change.epoch, "seq": change.seq}
        return (await _of(life).start("skip", site, options, False, "operator")).id

    async def _take_barrier(self, life: Life) -> str:
        if life.service is None:
            raise Unavailable("the gateway is starting", retry_after_s=1)
        self._barriers += 1
        document, _ = await life.service.barriers.take(f"n{self._barriers}")
        self._taken(document)
        return document.name

    async def _last(self, what: str, life: Life) -> str:
        """Abort or resume the last operation that can be."""
        operations = _of(life)
        for document in await operations.all():
            can = document.resumable if what == "resume" else document.abortable
            if can and not document.dry_run and not document.never_began:
                await (operations.abort if what == "abort" else operations.resume)(document.id)
                return document.id
        return "none"

    # ---- the handbook
    async def on_call(self, healthy: Callable[[], bool], within_s: float) -> bool:
        """Repairs what does not repair itself; whether the pair became healthy in time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        last_command_s = loop.time()
        while loop.time() < end_s:
            for site in SITES:
                self._restore_register(site)
                self._restore_holders(site)
            if healthy() and not any(self._is_damaged(site) for site in SITES):
                return True
            if loop.time() - last_command_s > PATIENCE_S and await self._repair():
                last_command_s = loop.time()
            await asyncio.sleep(0.25)
        return healthy() and not any(self._is_damaged(site) for site in SITES)

    async def _repair(self) -> bool:
        """One command, if there is one to give."""
        state, last = self._world.watch.value, self._world.watch.remembered
        is_lost = state is None or (state.active is None and not state.switching) or self._went_back()
        lost_at = last.active if last is not None and is_lost else None  # the register was lost for good: go on where it was
        for site in SITES:
            if state is not None and state.active == OTHER[site] and self._is_damaged(site):
                self._empty(site)
                return True
        for site in SITES:
            life = self._world.alive(site)
            if life is not None and life.site is not None and standing_at(life.site.parts.engine) is not None:
                self.command("skip", site)
                return True
        for site in SITES:
            life = self._world.alive(site)
            if life is None or life.operations is None or life.site is None:
                continue
            if life.operations.running_id is not None:
                # a resync waits for a site that cannot follow: without the register, or while that one's plan has the pair
                plan = state.switching if state is not None else None
                in_vain = lost_at is not None or (plan is not None and plan.site != site)
                if in_vain:
                    self.command("abort", site)
                return in_vain
        if lost_at is not None:
            self.command("failover", lost_at, accept_data_loss=True)
            return True
        for site in SITES:
            if state is not None and state.active == site and (self._is_damaged(site) or self._is_empty(site)):
                # a new disk, or one that is no good: the other site has everything, or all that there is
                self.command("failover", OTHER[site], accept_data_loss=state.mode == "async" and self._is_empty(site))
                return True
            if state is not None and state.active == site and self._gives_way(site):
                # what an asynchronous active alone acknowledged was on that disk, and nobody has a newer copy of it
                self.command("failover", OTHER[site], accept_data_loss=state.mode == "async")
                return True
            life = self._world.alive(site)
            if life is None or life.operations is None or life.site is None:
                continue
            if state is not None and state.switching is not None and state.switching.site == site:
                self._unfinish(site, state.active)
                return True
            held_up = state is not None and state.switching is not None
            if life.site.role == "ACTIVE" and not held_up and not self.has_proof(life.site):
                self.command("degrade", site)  # writes hang: the DFS with its remote log was emptied
                return True
            epoch, by_choice = life.site.active_epoch, life.site.settings.policy == "performance"
            if life.site.role == "DOWNGRADE_ACTIVE" and epoch is not None and not (epoch.auto_resync or by_choice):
                self.command("resync", site)
                return True
        return False

    def _went_back(self) -> bool:
        """A site says that the register is older than what it has met."""
        lives = [self._world.alive(site) for site in SITES]
        return any(life is not None and life.site is not None and life.site.parts.coordinator.finding for life in lives)

    def has_proof(self, site: Site) -> bool:
        """An append, or the coordinator, has said of late that it is not fenced: it answers reads and acknowledges writes."""
        return site.active_epoch is not None and site.active_epoch.lease.valid_at(site.parts.clock.monotonic_s())

    def _is_empty(self, site: str) -> bool:
        """Its disk was replaced, and nothing has filled it since."""
        here = self._world.machines[site]
        return here.lost and not here.engine.applied.epoch

    def _gives_way(self, site: str) -> bool:
        """It is closed, for its disk or a part of it is an older copy, and says which site has what it lacks."""
        life = self._world.alive(site)
        if life is None or life.site is None or life.site.role != "CLOSED":
            return False
        return f"`twinlog failover --to {OTHER[site]}`" in (life.site.waiting_for or "")

    def _is_damaged(self, site: str) -> bool:
        """Its gateway does not start, and says so; or `twinlog log verify` does, of its WAL."""
        life = self._world.lives[site]
        if life.fault is not None and life.fault.code in ("damaged-log", "log-error"):
            return True
        return self._world.machines[site].is_rotten()[0] and not _is_sound(self._world.machines[site].disk)

    def _restore_register(self, site: str) -> None:
        """Delete a damaged file of the register that the other DFS has a copy of."""
        here = self._world.machines[site]
        for path in sorted(here.rotten & here.dfs.files.keys()):
            if path.startswith(RemoteLayout(PAIR).register_folder):
                self._note(f"the damaged {path} of site {site} is deleted")
                here.dfs.delete(path)
                here.rotten.discard(path)
                self._world.watch.lost(site)

    def _restore_holders(self, site: str) -> None:
        """Delete a damaged note of who needs the log, over which the gateway does not start, and start it."""
        here, life = self._world.machines[site], self._world.lives[site]
        if CURSORS in here.rotten and life.fault is not None and life.fault.code == "damaged-log":
            self._note(f"the damaged {CURSORS} of site {site} is deleted")
            del here.disk.stored[CURSORS]
            here.rotten.discard(CURSORS)
            self._world.boot(site)

    def _empty(self, site: str) -> None:
        """An empty data directory for a site that is not the active."""
        self._note(f"an empty data directory at {site}")
        self._world.kill(site, machine=False)
        self._world.wipe(site)
        self._world.boot(site)

    def _unfinish(self, site: str, active: str | None) -> None:
        """An operation that stopped half-way at `site` continues; one that cannot gives way to the active before it."""
        if self._resumed and active not in (None, site):
            self.command("failover", str(active))
        else:
            self.command("resume", site)
        self._resumed = not self._resumed


def _is_sound(disk: SimDisk) -> bool:
    """Returns the judgement of `twinlog log verify --place wal`."""
    frames: list[Frame] = []
    try:
        for path, stored in sorted(disk.stored.items()):
            if path.startswith("wal/"):
                frames += scan_segment(bytes(stored.data), path, frames[-1].last_seq if frames else 0).frames
        standing(frames)
    except LogError:
        return False
    return True


async def _accepted(operations: SiteOperations, to: str | None) -> dict[str, Any]:
    """The options of a failover whose operator has read the loss manifest and typed what it says."""
    document = await operations.start("failover", to, {}, True, "operator")
    manifest = (document.error.fields.get("manifest") if document.error is not None else None) or {}
    return {"accept_data_loss": at_risk(manifest)}


def _of(life: Life) -> SiteOperations:
    if life.operations is None:
        raise Unavailable("the gateway is starting", retry_after_s=1)
    return life.operations


def _failed(why: str, sent: bool) -> Unavailable:
    return Unavailable(f"no answer: {why}")
