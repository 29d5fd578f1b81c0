"""The simulated pair: two machines, two DFSs, a witness and the network between them, and the product's site on top.

What always holds: this is the composition root of a simulation as gateway/app.py is of a real site; every port that a site
gets is a simulated twin; a site's life ends by `kill` between any two of its steps, and the next life begins with what its
machine kept. Source: protocol.md 1 and 5, layout.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from chaos.simulate.engines.engines import REAL, SimStorage
from chaos.simulate.plan import SITES, Knobs, SeedPlan
from chaos.simulate.twins.clock import SimClock
from chaos.simulate.twins.coordinator import SimCoordinator, SimRegister
from chaos.simulate.twins.dfs import SimDfs, SimDfsCluster, SimDfsWriter
from chaos.simulate.twins.disk import SimDisk, SimLogFile
from chaos.simulate.twins.engine import SimEngine, SimSnapshot
from chaos.simulate.twins.hearing import Hearing, Note
from chaos.simulate.twins.http_door import HttpDoor
from chaos.simulate.twins.journal import MemoryJournal
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import Network
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import StepFailpoints, Stepped, Steps
from chaos.simulate.twins.transport import Listening, Served, SimTransport, Wire
from chaos.simulate.twins.watch import DfsWatch, Watch
from gateway.api.api_context import ApiContext
from gateway.audits.notes import AuditSettings
from gateway.epoch.active_epoch import AvailableSettings
from gateway.epoch.commit_rule import CommitSettings
from gateway.http.app import build_app
from gateway.service.http_settings import HttpSettings
from gateway.service.port import SiteService
from gateway.site.operations import SiteOperations
from gateway.site.peer_api import PeerApi
from gateway.site.service import site_service
from gateway.site.settings import PeerSettings, SiteSettings
from gateway.site.site import Site, not_kept
from gateway.site.supervisor import Supervisor
from gateway.traces.requests import RequestTraces
from remote_log.fencing.read_lease import LeaseSettings
from remote_log.layout import RemoteLayout
from remote_log.replication.base_sender import BaseSettings
from remote_log.replication.shipper import ShipperSettings
from remote_log.replication.understanding import Understanding
from remote_log.writing.writer import RemoteWriterSettings
from storage.clock import HybridClock
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.settings import EngineSettings
from storage.failpoints import Failpoints
from storage.log.cursors import CursorRegistry
from storage.log.wal import Wal, WalSettings
from storage.tracing import NO_TRACES, Tracer
from switchover.register.port import Coordinator, PairState
from switchover.register.remembering import RememberingCoordinator, last_met
from switchover.register.two_dfs import DfsCoordinator
from switchover.site_parts import SiteParts
from twinlog.errors import TwinlogError
from twinlog.wire.exchange import Reply, SiteRequest

Replied = Callable[[str, Site, SiteRequest, Reply, float], None]
OTHER = {"a": "b", "b": "a"}
REQUEST_DEADLINE_S = 3.0
DRIFT_MARGIN = 0.1
BOOT_RETRY_S = 1.0
DFS_TIMEOUT_S = 4.0
PAIR, INITIAL_ACTIVE = "sim", "a"


@dataclass(slots=True)
class Machine:
    """The parts of a site that outlive its processes. `lost`: its disk was replaced, and whoever works there knows. `hollow`:
    that, or its storage is an older copy, and it was not seen whole again since; `led_to`: how far it alone led when it was;
    `told`: how far its storage was durable before it went back. `rotten`: paths on its disk and its DFS where a bit
    turned. `restored`: the files of its DFS when that went back; None once the active has written two new ones there."""

    clock: SimClock
    disk: SimDisk
    dfs: SimDfsCluster
    engine: SimStorage
    journal: MemoryJournal
    lost: bool = False
    hollow: bool = False
    led_to: int = 0
    told: int = 0
    restored: frozenset[str] | None = None
    rotten: set[str] = field(default_factory=set)

    def is_rotten(self) -> tuple[bool, bool]:
        """Returns whether a rotten file is still there, on its disk and on its DFS."""
        return not self.rotten.isdisjoint(self.disk.stored), not self.rotten.isdisjoint(self.dfs.files)


@dataclass(slots=True)
class Life:
    """One process of a site. Its parts are None until it has opened its files."""

    process: Process
    site: Site | None = None
    operations: SiteOperations | None = None
    service: SiteService | None = None
    context: ApiContext | None = None
    door: HttpDoor | None = None  # in a run in which requests pass it
    peer_api: Served | None = None
    fault: TwinlogError | None = None  # why it does not start


class World:
    """`home`: an empty folder, for engines that need one."""

    tracer: Tracer = NO_TRACES  # of every site; a test sets another one

    def __init__(self, plan: SeedPlan, loop: VirtualLoop, home: Path | None = None) -> None:
        self.plan, self.loop, self._home = plan, loop, home
        self.network = Network(loop, self.stream("network"))
        drift = {"a": plan.knobs.drift_a, "b": plan.knobs.drift_b}
        self.machines = {site: self._machine(site, 1.0 + drift[site]) for site in SITES}
        self.register = SimRegister()
        clusters = {site: machine.dfs for site, machine in self.machines.items()}
        self.watch: Watch = self.register if plan.knobs.coordinator else DfsWatch(clusters, RemoteLayout(PAIR))
        self.lives: dict[str, Life] = {}
        self.before_kill: Callable[[], None] = lambda: None
        self.heard: Note = lambda line: None  # what a site asked of the register in vain, or blind; answers by old proofs
        self.before_wipe: Callable[[str], None] = lambda name: None
        self.wire = Wire()
        self.replied: Replied = lambda name, site, request, reply, decided_s: None  # of each answer that took no HTTP
        self.steps: dict[str, Steps] = {}  # of each site, in a run with faults at steps
        self._ids = 0
        self.set_links()

    def stream(self, name: str) -> Random:
        """Randomness of its own for each use, so that leaving one thing out changes nothing in the others."""
        return Random(f"{self.plan.seed} {name}")

    def _machine(self, site: str, rate: float) -> Machine:
        loop = self.loop
        disk = SimDisk(loop, self.stream(f"disk {site}"))
        disk.slow = self.plan.knobs.disk_slow
        engine = self._engine(site)
        engine.slow_reads = self.plan.knobs.slow_reads
        return Machine(
            SimClock(loop, rate=rate), disk, SimDfsCluster(loop, self.stream(f"dfs {site}")), engine, MemoryJournal(),
        )

    def _engine(self, site: str) -> SimStorage:
        kind, chance = self.plan.knobs.engine, self.stream(f"engine {site}")
        if kind == "simulated" or self._home is None:
            return SimEngine(chance)
        return REAL[kind](self._home / site, chance)

    def end(self) -> None:
        """The run is over: engines let their files go."""
        for machine in self.machines.values():
            machine.engine.end()

    def set_links(self, *, well: bool = False) -> None:
        """Every link as the knobs say; `well`: nothing is lost or repeated."""
        knobs = self.plan.knobs
        for pair in (("a", "b"), ("a", "w"), ("b", "w"), ("c", "a"), ("c", "b")):
            for link in self.network.between(*pair):
                link.base_s, link.jitter_s = knobs.link_s, knobs.link_s * knobs.link_jitter
                link.loss, link.repeat = (0.0, 0.0) if well else (knobs.loss, knobs.duplicate)

    # ---- lives of the sites
    def boot(self, name: str) -> Life:
        """A new process; it opens its files, and its supervisor does the rest."""
        old = self.lives.get(name)
        if old is not None:
            self._end(old)
        self._ids += 1
        life = Life(Process(f"{name}.{self._ids}"))
        self.lives[name] = life
        life.process.spawn(self._open(name, life), "boot")
        return life

    def _end(self, life: Life) -> None:
        if not life.process.killed:
            self.loop.kill(life.process)

    def kill(self, name: str, *, machine: bool) -> None:
        """SIGKILL of the gateway, or of the machine under it: then what was not synced may be gone."""
        life = self.lives.get(name)
        if life is None or life.process.killed:
            return
        self.before_kill()
        self._end(life)
        here = self.machines[name]
        if machine:
            here.disk.power_loss(flips=True)
        else:
            self.network.reset(life.process)
        here.engine.killed(machine=machine)

    def wipe(self, name: str) -> None:
        """A new disk for a site whose machine does not run: data directory, storage, journal."""
        self.before_wipe(name)
        here = self.machines[name]
        here.rotten.difference_update(here.disk.stored)
        here.disk.wipe()
        here.engine.wipe()
        here.journal = MemoryJournal(here.journal.told)
        here.lost = here.hollow = True

    def alive(self, name: str) -> Life | None:
        """Its life, when it runs and has opened its files."""
        life = self.lives.get(name)
        return life if life is not None and not life.process.killed and life.site is not None else None

    def open_by(self, name: str, process: Process) -> list[SimLogFile | SimDfsWriter | SimSnapshot]:
        """Returns what the living `process` of this site has open: logs on its disk and on both DFSs, snapshots."""
        here, remote = self.machines[name], [each for one in self.machines.values() for each in one.dfs.open_by(process)]
        return [*here.disk.open_logs(), *remote, *here.engine.open_snapshots()]

    def _listening(self, name: str) -> Listening | None:
        life = self.alive(name)
        return None if life is None or life.peer_api is None else (life.process, life.peer_api)

    def find(self, target: str) -> str | None:
        """The site that `target` means now; what is neither "active" nor "standby" means itself."""
        if target not in ("active", "standby"):
            return target
        state = self.watch.remembered
        if state is None or state.active is None:
            return None
        return state.active if target == "active" else OTHER[state.active]

    async def _open(self, name: str, life: Life) -> None:
        """The site on its ports. What fails is tried again, as an init system would."""
        here = self.machines[name]
        while True:
            try:
                await self._compose(name, life)
                life.fault = None
                return
            except TwinlogError as error:
                life.fault = error
                await here.clock.sleep(BOOT_RETRY_S)

    async def _compose(self, name: str, life: Life) -> None:
        here, there = self.machines[name], self.machines[OTHER[name]]
        process, network, find = life.process, self.network, partial(self._listening, OTHER[name])
        stepped = partial(self._stepped, name, process)
        files = stepped("files", here.disk.files(process))
        own_dfs = stepped("own_dfs", here.dfs.client(process, name, name, network, DFS_TIMEOUT_S))
        peer_dfs = stepped("peer_dfs", there.dfs.client(process, name, OTHER[name], network, DFS_TIMEOUT_S))
        engine, journal = stepped("engine", here.engine), stepped("journal", here.journal)
        settings, met = site_settings(name, self.plan.knobs), await last_met(files)
        door = stepped("coordinator", self._coordinator(name, own_dfs, peer_dfs, met))
        door = Hearing(door, name, process, lambda: self.loop.now_s, self.heard)
        site = Site(
            settings,
            SiteParts(
                site=name, peer=OTHER[name], clock=here.clock, hybrid=HybridClock(here.clock, here.engine.applied.timestamp),
                files=files, engine=engine, layout=RemoteLayout(PAIR),
                applier=FrameApplier(engine, here.clock, settings.barriers, on_refused=not_kept),
                wal=await Wal.open(files, "wal", WalSettings(segment_bytes=self.plan.knobs.segment_bytes)),
                coordinator=RememberingCoordinator(door, name, files, met),
                transport=stepped("transport", SimTransport(name, OTHER[name], network, find, self.wire)),
                own_dfs=own_dfs, peer_dfs=peer_dfs,
                cursors=await CursorRegistry.open(files), understanding=Understanding(files),  # of one release: none is noted
                failpoints=StepFailpoints(self.steps[name], process, self.loop) if self.steps else Failpoints(),
                new_id=partial(self._new_id, name), tracer=self.tracer,
            ),
        )
        operations = SiteOperations(site, journal)
        supervisor = Supervisor(
            site, run_plan=operations.run_own, undo_again=operations.undo_again, go_on=operations.go_on,
            is_busy=lambda: operations.running_id is not None, poll_interval_s=0.5,
        )
        life.service = site_service(site, operations)
        now_s, new_id = here.clock.monotonic_s, partial(self._new_id, name)
        if self.plan.knobs.http:
            traces = None if self.tracer is NO_TRACES else RequestTraces(self.tracer)
            life.door = HttpDoor(build_app(life.service, settings.http, now_s=now_s, new_id=new_id, traces=traces))
        life.context = life.door.context if life.door else ApiContext(life.service, settings.http, now_s=now_s, new_id=new_id)
        life.site, life.operations, life.peer_api = site, operations, PeerApi(site)
        supervisor.start()

    def _stepped(self, name: str, process: Process, port_name: str, port: Any) -> Any:
        """Returns the port, with its points in a run with faults at steps."""
        return Stepped(port, port_name, self.steps[name], process) if self.steps else port

    def _coordinator(self, name: str, own_dfs: SimDfs, peer_dfs: SimDfs, met: PairState | None) -> Coordinator:
        if self.plan.knobs.coordinator:
            return SimCoordinator(self.register, name, self.network)
        return DfsCoordinator(
            site=name, peer=OTHER[name], own_dfs=own_dfs, peer_dfs=peer_dfs, layout=RemoteLayout(PAIR),
            initial_active=INITIAL_ACTIVE, clock=self.machines[name].clock, known=met,
        )

    def _new_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}{self._ids}"


def site_settings(name: str, knobs: Knobs) -> SiteSettings:
    """Returns the settings that a site's file would hold, with short times."""
    return SiteSettings(
        pair=PAIR, site=name, peer=PeerSettings(site=OTHER[name], url=f"http://{OTHER[name]}"), initial_active=INITIAL_ACTIVE,
        http=HttpSettings(advertised_url=f"http://{name}", request_deadline_s=REQUEST_DEADLINE_S),
        engine=EngineSettings(flush_interval_s=knobs.flush_interval_s),
        barriers=BarrierLimits(kept_max=16), audits=AuditSettings(recent_s=0.0),
        policy=knobs.policy, available=AvailableSettings(degrade_after_s=knobs.degrade_after_s, resync_after_s=0.5),
        lease=LeaseSettings(lease_s=knobs.lease_s, drift_margin=DRIFT_MARGIN, noop_interval_s=knobs.noop_interval_s),
        commit=CommitSettings(sweep_interval_s=0.25),
        replication=ShipperSettings(
            idle_poll_s=0.25, batch_interval_s=0.02, batch_bytes_max=4096, base=BaseSettings(part_entries=7),
        ),
        remote_log=RemoteWriterSettings(
            segment_bytes=knobs.segment_bytes, retry_max_s=0.5, lease_recovery_deadline_s=6.0
        ),
    )


async def until(condition: Any, timeout_s: float, poll_s: float = 0.1) -> bool:
    """Returns whether the condition came true in time, by the run's own clock."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    while not condition():
        if loop.time() >= end_s:
            return False
        await asyncio.sleep(poll_s)
    return True
