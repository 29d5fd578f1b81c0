"""The composition root: opens the real parts of one site, wires them, and serves until it is asked to stop.

What always holds: the data directory is locked first and let go last; whatever was opened is closed, in reverse order, also
when the start fails; SIGINT and SIGTERM end the open epoch cleanly, SIGHUP ends nothing. Only here are real ports chosen.
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
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from gateway.config.model import SiteConfig
from gateway.http.app import build_app
from gateway.http.descriptors import fitting
from gateway.http.peer_transport import HttpTransport
from gateway.http.protocol import ConnectionLimits
from gateway.http.server import ServerSettings, serving
from gateway.logs import configure_logs
from gateway.service.histogram import Histogram
from gateway.service.http_settings import HttpSettings
from gateway.site.operations import SiteOperations
from gateway.site.service import site_service
from gateway.site.site import Site, not_kept
from gateway.site.supervisor import Supervisor
from remote_log.dfs.opening import open_dfs, warm_up
from remote_log.dfs.owner import Owner
from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
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
GC_THRESHOLDS = (20_000, 20, 50)  # requests leave few cycles behind; the defaults collect some hundred times a second


def new_id() -> str:
    """Unique for ever, and in the order of time."""
    return f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(4)}"


@asynccontextmanager
async def opened_site(config: SiteConfig, failpoints: Failpoints) -> AsyncIterator[tuple[Site, SiteOperations]]:
    """The site on its real parts, running but without a door."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        data_dir = open_data_dir(config.data_dir, config.pair, config.site)
        stack.callback(data_dir.close)
        files = OsFiles(config.data_dir)
        stack.push_async_callback(files.close)
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
        journal = SqlJournal(config.journal.address(config.data_dir))
        transport = HttpTransport(config.peer.url)
        stack.push_async_callback(transport.close)
        cursors = await CursorRegistry.open(files)
        site = Site(
            config,
            SiteParts(
                site=config.site, peer=config.peer.site, clock=clock, hybrid=HybridClock(clock, engine.applied.timestamp),
                files=files, wal=wal, engine=engine, applier=FrameApplier(engine, clock, config.barriers, on_refused=not_kept),
                layout=RemoteLayout(config.pair), coordinator=coordinator, transport=transport,
                remote_keys=Keyring("remote_log.encryption_keys", config.remote_log.encryption_keys, secrets.token_bytes),
                own_dfs=own_dfs, peer_dfs=peer_dfs, cursors=cursors, failpoints=failpoints, new_id=new_id,
                free_bytes=files.free_bytes, stand_in=stand_in,
            ),
        )
        operations = SiteOperations(site, journal)
        supervisor = Supervisor(
            site, run_plan=operations.run_own, undo_again=operations.undo_again, go_on=operations.go_on,
            is_busy=lambda: operations.running_id is not None,
        )
        stack.push_async_callback(_stop, site, supervisor, operations)
        supervisor.start()
        yield site, operations


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


def _server_settings(http: HttpSettings) -> ServerSettings:
    """The bounds of connections, as far as the open files allow them."""
    connections, backlog = fitting(http.connections_max)
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
    log.warning("SIGHUP is ignored: the site serves on; SIGTERM stops it, and a start reads its configuration anew")


async def serve(config: SiteConfig, failpoints: Failpoints | None = None) -> None:
    """Run one site until SIGINT or SIGTERM. Raises DataDirectoryError and ConfigError when it cannot start."""
    os.umask(OWNER_ONLY)
    configure_logs(config.log, pair=config.pair, site=config.site)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _outlive_terminal)
    async with opened_site(config, failpoints or Failpoints()) as (site, operations):
        app = build_app(site_service(site, operations), config.http, now_s=time.perf_counter, new_id=new_id)
        async with serving(app, config.http.host, config.http.port, _server_settings(config.http)):
            log.info("serving", url=config.http.url)
            _settle_interpreter(site.collections)
            await stop.wait()
            log.info("stopping")
