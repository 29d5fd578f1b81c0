"""The composition root: opens the real parts of one site, wires them, and serves until it is asked to stop.

What always holds: the data directory is locked first and let go last; whatever was opened is closed, in reverse order, also
when the start fails; SIGINT and SIGTERM end the open epoch cleanly, SIGHUP has the configuration read again. Only here are real
ports chosen.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from gateway.access.gate import Gate
from gateway.access.opening import apply as apply_access
from gateway.access.opening import open_gate
from gateway.access.settings import AccessSettings
from gateway.api.api_context import ApiContext
from gateway.config.model import SiteConfig
from gateway.config.running import RunningConfiguration, reload_on_hangup
from gateway.config.security import missing_protection
from gateway.http.app import DoorApp
from gateway.http.descriptors import fitting
from gateway.http.peer_transport import HttpTransport
from gateway.http.places import Places
from gateway.http.protocol import ConnectionLimits
from gateway.http.server import ServerSettings, serving
from gateway.logs import configure_logs, set_log_level
from gateway.metrics.catalogue import Figures
from gateway.metrics.process import ProcessFigures, process_collector
from gateway.service.histogram import Histogram
from gateway.service.http_settings import HttpSettings
from gateway.site.operations import SiteOperations
from gateway.site.service import site_service
from gateway.site.site import Site, not_kept
from gateway.site.supervisor import Supervisor
from gateway.tls.site_tls import SiteTls
from gateway.traces.requests import RequestTraces
from gateway.trail.events import ACCESS
from gateway.trail.journal import TrailJournal
from gateway.trail.keeping import AccessTrail, configuration_digest, kept_trail
from gateway.trail.peer import PeerTrail
from gateway.trail.roles import RoleTrail
from gateway.trail.trail import Trail
from gateway.ui.pages import Pages
from remote_log.dfs.opening import open_dfs, warm_up
from remote_log.dfs.owner import Owner
from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import TrailNote
from remote_log.replication.understanding import RELEASE, Understanding
from storage.cancellation import ended
from storage.clock import Clock, HybridClock, SystemClock
from storage.disk.data_dir import open_data_dir
from storage.disk.os_files import OsFiles
from storage.disk.port import Files
from storage.engines.applying import FrameApplier
from storage.engines.opening import open_engine
from storage.failpoints import Failpoints
from storage.log.cursors import CursorRegistry
from storage.log.encryption import Keyring
from storage.log.wal import Wal
from storage.tracing import NO_TRACES, Tracer
from switchover.operations.sql_journal import SqlJournal
from switchover.register.remembering import RememberingCoordinator, last_met
from switchover.register.sql import SqlCoordinator
from switchover.register.stand_in import StandInCoordinator, given_up
from switchover.register.two_dfs import DfsCoordinator
from switchover.site_parts import SiteParts
from twinlog.errors import Unavailable

log = structlog.get_logger("twinlog.app")
OWNER_ONLY = 0o077  # what a site writes holds rows: its own user reads it, and nobody else
SWITCH_INTERVAL_S = 0.0005
PEER_CONNECTIONS = ConnectionLimits(connections_max=200, per_address_max=200)  # twice what one site opens
# Requests leave few cycles behind; the defaults collect some hundred times a second. What waits for the last of the three, at
# most half a million objects, is memory: 60 MiB or so.
GC_THRESHOLDS = (20_000, 5, 5)


def new_id() -> str:
    """Unique for ever, and in the order of time."""
    return f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(4)}"


class OpenedSite(NamedTuple):
    site: Site
    operations: SiteOperations
    trail: Trail
    peer_trail: PeerTrail


class Traces(NamedTuple):
    tracer: Tracer
    figures: Callable[[], Figures]


@asynccontextmanager
async def opened_site(
    config: SiteConfig, failpoints: Failpoints, tls: SiteTls | None = None, tracer: Tracer = NO_TRACES
) -> AsyncIterator[OpenedSite]:
    """The site on its real parts, running but without a door."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        data_dir = open_data_dir(config.data_dir, config.pair, config.site)
        stack.callback(data_dir.close)
        files = OsFiles(config.data_dir)
        stack.push_async_callback(files.close)
        understanding = await Understanding.open(files)  # nothing is read or written before
        trail_files = OsFiles(config.data_dir)  # of its own: no line waits while the next segment of the WAL is zeroed
        stack.push_async_callback(trail_files.close)
        trail = Trail(trail_files, clock, pair=config.pair, site=config.site)

        async def ask_other(note: TrailNote, timeout_s: float) -> TrailNote:
            return await site.parts.other_site.trail(note, timeout_s)

        peer_trail = PeerTrail(trail, clock, config.peer.site, ask_other)
        await stack.enter_async_context(
            kept_trail(trail, {"release": RELEASE, "configuration": configuration_digest(config)})
        )
        engine = await open_engine(config.engine, config.data_dir, config.pair, config.site)
        stack.push_async_callback(engine.close)
        wal_keys = Keyring("wal.encryption_keys", config.wal.encryption_keys, secrets.token_bytes)
        wal = await Wal.open(files, "wal", config.wal, wal_keys)
        stack.push_async_callback(wal.close)
        own_dfs = open_dfs(config.dfs, "own", Owner(config.pair, config.site), stack, marks=True)
        peer_dfs = open_dfs(config.dfs, "peer", Owner(config.pair, config.peer.site), stack, apart_from=own_dfs)
        await warm_up(own_dfs, peer_dfs)
        coordinator, stand_in = await _coordinator(config, clock, files, own_dfs, peer_dfs)
        stack.push_async_callback(coordinator.close)
        journal = TrailJournal(SqlJournal(config.journal.address(config.data_dir)), trail)
        transport = HttpTransport(config.peer.url, tls)
        stack.push_async_callback(transport.close)
        cursors = await CursorRegistry.open(files)
        site = Site(
            config,
            SiteParts(
                site=config.site, peer=config.peer.site, clock=clock, hybrid=HybridClock(clock, engine.applied.timestamp),
                files=files, wal=wal, engine=engine, applier=FrameApplier(engine, clock, config.barriers, on_refused=not_kept),
                layout=RemoteLayout(config.pair), coordinator=coordinator, transport=transport,
                remote_keys=Keyring("remote_log.encryption_keys", config.remote_log.encryption_keys, secrets.token_bytes),
                own_dfs=own_dfs, peer_dfs=peer_dfs, cursors=cursors, understanding=understanding, failpoints=failpoints,
                new_id=new_id, free_bytes=files.free_bytes, stand_in=stand_in, tracer=tracer,
            ),
        )
        operations = SiteOperations(site, journal)
        supervisor = Supervisor(
            site, run_plan=operations.run_own, undo_again=operations.undo_again, go_on=operations.go_on,
            is_busy=lambda: operations.running_id is not None,
        )
        site.trail_fault = lambda: trail.fault
        roles = RoleTrail(trail, site, lambda: operations.running_id)
        site.on_role, site.on_fenced = roles.changed, roles.fenced
        stack.push_async_callback(_stop, site, supervisor, operations)
        supervisor.start()
        await stack.enter_async_context(_running(peer_trail.run(), "trail of the other site"))
        yield OpenedSite(site, operations, trail, peer_trail)


async def _coordinator(
    config: SiteConfig, clock: Clock, files: Files, own_dfs: Dfs, peer_dfs: Dfs
) -> tuple[RememberingCoordinator, StandInCoordinator | None]:
    """The database that is configured, or what stands in for it since an operator gave it up; without one the two DFSs keep the
    pair's value themselves."""
    met = await last_met(files)
    if config.coordinator is not None:
        url, own_url = config.coordinator.url, f"sqlite:///{config.data_dir / 'register' / 'stand_in.db'}"
        stand_in = StandInCoordinator(
            SqlCoordinator(url, config.pair, clock), hashlib.blake2b(url.encode(), digest_size=16).hexdigest(),
            lambda: SqlCoordinator(own_url, config.pair, clock), files, await given_up(files),
        )
        return RememberingCoordinator(stand_in, config.site, files, met), stand_in
    door = DfsCoordinator(
        site=config.site, peer=config.peer.site, own_dfs=own_dfs, peer_dfs=peer_dfs, layout=RemoteLayout(config.pair),
        initial_active=config.initial_active, clock=clock, known=met,
    )
    return RememberingCoordinator(door, config.site, files, met), None


def _server_settings(http: HttpSettings, beside: int) -> ServerSettings:
    """The bounds of connections, as far as the open files allow them, `beside` as many of another listener."""
    connections, backlog = fitting(http.connections_max, beside)
    limits = ConnectionLimits(connections_max=connections, per_address_max=http.connections_per_address_max)
    return ServerSettings(limits, backlog)


def _settle_interpreter(collections: Histogram) -> None:
    """Two settings of the interpreter, each worth a third of the throughput and more (docs/performance.md).

    `collections` counts how long the garbage collector takes from here on.

    What the imports made lives for ever: looking through it again and again held the loop for many milliseconds. And a log
    thread whose sync has ended must not wait five milliseconds for a busy loop to give it the interpreter.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(collection_timer(collections))


def collection_timer(collections: Histogram) -> Callable[[str, object], None]:
    """Returns a callback for `gc.callbacks` that counts in `collections` how long each one takes."""
    begun_s = 0.0

    def note(phase: str, _: object) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.perf_counter()
        else:
            collections.observe(time.perf_counter() - begun_s)

    return note


async def _stop(site: Site, supervisor: Supervisor, operations: SiteOperations) -> None:
    await supervisor.stop()
    await operations.close()
    await site.close_epoch(Unavailable(f"site {site.site} is stopping: try again at the other site, or later", retry_after_s=1))


def _outlive_terminal() -> None:
    log.warning("SIGHUP is ignored: the site does not serve yet; SIGTERM stops it")


@asynccontextmanager
async def gate_of(access: AccessSettings | None) -> AsyncIterator[Gate | None]:
    """The gate, which looks at its files again and again inside the block; None without [access]: everybody may do
    everything."""
    if access is None:
        yield None
        return
    gate = open_gate(access)
    try:
        async with _running(gate.run(), "access"):
            yield gate
    finally:
        await gate.close()


@asynccontextmanager
async def traces_of(config: SiteConfig) -> AsyncIterator[Traces]:
    """The tracer of a site, and its figures. OpenTelemetry is imported only where the configuration has [traces]."""
    if config.traces is None:
        yield Traces(NO_TRACES, dict)
        return
    from gateway.traces.otlp import OtlpTracer

    tracer = OtlpTracer(config.traces, pair=config.pair, site=config.site, release=RELEASE)
    try:
        yield Traces(tracer, tracer.figures)
    finally:
        await tracer.close()


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """`work`, which has no end of its own, inside the block."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await ended((task,))


@asynccontextmanager
async def _access_kept(gate: Gate | None, opened: OpenedSite) -> AsyncIterator[None]:
    """Refusals of the gate, and changes of its files, are in the trail."""
    if gate is None:
        yield
        return
    kept = AccessTrail(opened.trail, opened.site.parts.clock, gate)
    try:
        async with _running(kept.run(), "refusals"):
            yield
    finally:
        kept.summarise(anyhow=True)


async def serve(config: SiteConfig, failpoints: Failpoints | None = None, *, file: Path | None = None) -> None:
    """Run one site until SIGINT or SIGTERM. `file`: that of `config`, to be read again; None: it is of none.

    Raises DataDirectoryError and ConfigError when it cannot start.
    """
    os.umask(OWNER_ONLY)
    configure_logs(config.log, pair=config.pair, site=config.site)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _outlive_terminal)
    tls = SiteTls(
        config.pair, config.peer.site, config.http.tls, config.peer_http, now_s=time.monotonic,
        insecure=config.insecure and bool(missing_protection(config)),
        handshakes_per_s=config.http.handshakes_per_address_per_s,
    )
    async with (
        gate_of(config.access) as gate, traces_of(config) as traces,
        opened_site(config, failpoints or Failpoints(), tls, traces.tracer) as opened,
    ):
        site = opened.site
        configuration = None if file is None else RunningConfiguration(config, file, partial(_apply, site, gate))
        site.notices = partial(_notices, tls, gate, configuration)
        tls.on_new_files = partial(_noted, opened.trail)
        async with (
            tls.following(), _access_kept(gate, opened), doors(config, opened, tls, gate, configuration, traces),
            reload_on_hangup(configuration, opened.trail),
        ):
            log.info("serving", url=config.http.url)
            for notice in tls.notices():
                log.warning("notice", text=notice)
            _settle_interpreter(site.collections)
            await stop.wait()
            log.info("stopping")


def _noted(trail: Trail, section: str, changed: set[str]) -> None:
    """New certificates, keys or CAs are in the trail."""
    trail.put(ACCESS, trail.this_site, "noted", {"kind": section, "files": sorted(changed)})


def _notices(*rooms: SiteTls | Gate | RunningConfiguration | None) -> list[str]:
    return [notice for room in rooms if room is not None for notice in room.notices()]


def _apply(site: Site, gate: Gate | None, config: SiteConfig) -> None:
    """Puts what may change while a gateway runs into effect. `config` has passed every check."""
    if gate is not None and config.access is not None:
        apply_access(gate, config.access)
    site.apply(config)
    set_log_level(config.log.level)


@asynccontextmanager
async def doors(
    config: SiteConfig, opened: OpenedSite, tls: SiteTls, gate: Gate | None, configuration: RunningConfiguration | None = None,
    traces: Traces | None = None,
) -> AsyncIterator[None]:
    """The listeners of a site: that of the other site first, so that who is served finds it there. Who reaches that one is the
    other site, which TLS has proven: it has no gate."""
    service = site_service(opened.site, opened.operations, opened.peer_trail.answer)
    context = ApiContext(
        service, config.http, now_s=time.perf_counter, new_id=new_id, trail=opened.trail, configuration=configuration,
        traces=None if traces is None or traces.tracer is NO_TRACES else RequestTraces(traces.tracer),
    )
    context.pages = Pages(service, opened.site.parts.clock, context.closing, partial(secrets.token_urlsafe, 32), gate)
    process = ProcessFigures(opened.site.parts.clock, opened.site.parts.free_bytes, RELEASE)
    places: dict[str, Places] = {}
    of_tables = service.looks.table_figures
    for source in (tls.metrics, opened.trail.figures, process.figures, of_tables, lambda: _of_doors(context, gate, places)):
        context.metrics.add(source)
    context.metrics.disk = process.disk
    if traces is not None:
        context.metrics.add(traces.figures)
    context.metrics.add_collector(process_collector())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_running(process.run(), "figures of the process"))
        peer_http, beside = config.peer_http, 0
        if peer_http is not None:
            beside = PEER_CONNECTIONS.connections_max
            server = await stack.enter_async_context(serving(
                DoorApp(context, "peer"), peer_http.host, peer_http.port, ServerSettings(PEER_CONNECTIONS), tls.peer_gate,
            ))
            tls.on_new_trust, places["peer_http"] = server.let_go, server.places
        public = await stack.enter_async_context(serving(
            DoorApp(context, "all" if peer_http is None else "public", gate=gate), config.http.host, config.http.port,
            _server_settings(config.http, beside), tls.public_gate,
        ))
        tls.on_new_client_trust, places["http"] = public.let_go_certified, public.places
        yield


def _of_doors(context: ApiContext, gate: Gate | None, places: Mapping[str, Places]) -> Figures:
    """Figures of what clients take of the listeners, and what they did not get."""
    refused = {"connections": sum(each.refused for each in places.values()), "bodies": context.bodies.refused}
    if gate is not None:
        refused["identity"] = gate.limited
    return {
        "http_connections": {(name,): float(each.served) for name, each in places.items()},
        "bodies_held_bytes": float(context.bodies.held_bytes),
        "limit_refusals_total": {(limit,): float(count) for limit, count in refused.items()},
    }
