"""The composition root: opens the real parts of one site, wires them, serves until it is told to stop.

What always holds: the data directory is locked first and let go last; whatever was opened is closed, in reverse order, also
when the start fails; SIGINT and SIGTERM end the open epoch cleanly. This is the only place where real ports are chosen.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from gateway.config.dfs_choice import open_dfs
from gateway.config.logs import configure_logs
from gateway.config.model import SiteConfig
from gateway.epoch.active_epoch import ActiveSettings
from gateway.epoch.commit_log import CommitSettings
from gateway.http.app import build_app
from gateway.http.peer_transport import HttpTransport
from gateway.http.server import serving
from gateway.service.admission import AdmissionLimits
from gateway.site.facade import Facade
from gateway.site.operations import Operations
from gateway.site.site import Site, SitePorts, SiteSettings
from gateway.site.supervisor import Supervisor
from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
from remote_log.replication.shipper import ShipperSettings
from remote_log.writing.writer import RemoteWriterSettings
from storage.clock import Clock, SystemClock
from storage.disk.data_dir import open_data_dir
from storage.disk.os_files import OsFiles, make_folders
from storage.engine import StorageEngine
from storage.engines.applying import BarrierLimits
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.failpoints import Failpoints
from storage.log.cursors import CursorRegistry
from storage.log.wal import Wal, WalSettings
from switchover.operations.sql_journal import SqlJournal
from switchover.register.port import Coordinator
from switchover.register.sql import SqlCoordinator
from switchover.register.two_dfs import DfsCoordinator
from twinlog.errors import Unavailable

log = structlog.get_logger("twinlog.app")
TRIM_INTERVAL_S = 1.0
SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLDS = (20_000, 20, 50)  # requests leave few cycles behind; the defaults collect some hundred times a second


def site_settings(config: SiteConfig) -> SiteSettings:
    """What the site's own code is told; nothing of it names a file or an address of the machine but the two gateways'."""
    policy = config.policy
    return SiteSettings(
        pair=config.pair, site=config.site, peer=config.peer.site, url=config.http.url, peer_url=config.peer.url,
        initial_active=config.initial_active, policy=policy, request_deadline_s=config.http.request_deadline_s,
        flush_interval_s=config.engine.flush_interval_s, fence_deadline_s=config.remote_log.lease_recovery_deadline_s,
        admission=AdmissionLimits(config.commit.queue_bytes_max, config.commit.requests_max),
        barriers=BarrierLimits(config.barriers.kept_max, config.barriers.kept_s), audit_recent_s=config.audits.recent_s,
        active=ActiveSettings(
            lease_s=config.lease.lease_s, drift_margin=config.lease.drift_margin,
            noop_interval_s=config.lease.noop_interval_s, trim_interval_s=TRIM_INTERVAL_S,
            degrade_after_s={"protect": None, "available": config.available.degrade_after_s, "performance": 0.0}[policy],
            resync_after_s={"protect": 0.5, "available": config.available.resync_after_s, "performance": None}[policy],
            commit=CommitSettings(
                frames_in_flight_max=config.commit.frames_in_flight_max, frame_bytes_max=config.commit.frame_bytes_max
            ),
            shipper=ShipperSettings(batch_bytes_max=config.replication.batch_bytes_max),
            remote=RemoteWriterSettings(
                segment_bytes=config.remote_log.segment_bytes, in_flight_max=config.remote_log.in_flight_max,
                retry_first_s=config.remote_log.retry_first_s, retry_max_s=config.remote_log.retry_max_s,
                lease_recovery_deadline_s=config.remote_log.lease_recovery_deadline_s,
            ),
        ),
    )


def new_id() -> str:
    """Unique for ever, and in the order of time."""
    return f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(4)}"


@asynccontextmanager
async def opened_site(config: SiteConfig, failpoints: Failpoints) -> AsyncIterator[tuple[Site, Operations]]:
    """The site on its real parts, running but without a door."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        data_dir = open_data_dir(config.data_dir, config.pair, config.site)
        stack.callback(data_dir.close)
        files = OsFiles(config.data_dir)
        stack.push_async_callback(files.close)
        engine = await _engine(config)
        stack.push_async_callback(engine.close)
        wal = await Wal.open(files, "wal", WalSettings(config.wal.segment_bytes, config.wal.tail_bytes_max))
        stack.push_async_callback(wal.close)
        own_dfs = open_dfs(config, "own", stack)
        peer_dfs = open_dfs(config, "peer", stack)
        coordinator = _coordinator(config, clock, own_dfs, peer_dfs)
        stack.push_async_callback(coordinator.close)
        journal = SqlJournal(config.journal_url)
        transport = HttpTransport(config.peer.url)
        stack.push_async_callback(transport.close)
        cursors = await CursorRegistry.open(files)
        site = Site(
            site_settings(config),
            SitePorts(
                clock=clock, files=files, wal=wal, engine=engine, coordinator=coordinator, transport=transport,
                own_dfs=own_dfs, peer_dfs=peer_dfs, cursors=cursors, failpoints=failpoints, new_id=new_id,
                free_bytes=files.free_bytes,
            ),
        )
        operations = Operations(site, journal)
        supervisor = Supervisor(
            site, run_plan=operations.run_own, undo_again=operations.undo_again, go_on=operations.go_on,
            is_busy=lambda: operations.running_id is not None,
        )
        stack.push_async_callback(_stop, site, supervisor, operations)
        supervisor.start()
        yield site, operations


async def _engine(config: SiteConfig) -> StorageEngine:
    if config.engine.kind == "rocksdb":
        return await RocksEngine.open(config.engine_path, RocksSettings())
    if config.engine.kind == "sqlite":
        make_folders(config.engine_path)
    return await SqlEngine.open(SqlSettings(config.engine_url, config.pair, config.site, config.engine.password or None))


def _coordinator(config: SiteConfig, clock: Clock, own_dfs: Dfs, peer_dfs: Dfs) -> Coordinator:
    """The database that is configured; without one the two DFSs keep the pair's value themselves."""
    if config.coordinator is not None:
        return SqlCoordinator(config.coordinator.url, config.pair, clock)
    return DfsCoordinator(
        site=config.site, peer=config.peer.site, own_dfs=own_dfs, peer_dfs=peer_dfs, layout=RemoteLayout(config.pair),
        initial_active=config.initial_active, clock=clock,
    )


def _settle_interpreter() -> None:
    """Two settings of the interpreter, each worth a third of the throughput and more (docs/performance.md).

    What the imports made lives for ever: looking through it again and again held the loop for many milliseconds. And a log
    thread whose sync has ended must not wait five milliseconds for a busy loop to give it the interpreter.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _stop(site: Site, supervisor: Supervisor, operations: Operations) -> None:
    await supervisor.stop()
    await operations.close()
    await site.close_epoch(Unavailable(f"site {site.site} is stopping: try again at the other site, or later", retry_after_s=1))


async def serve(config: SiteConfig, failpoints: Failpoints | None = None) -> None:
    """Run one site until SIGINT or SIGTERM. Raises DataDirectoryError and ConfigError when it cannot start."""
    configure_logs(config.log, pair=config.pair, site=config.site)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with opened_site(config, failpoints or Failpoints()) as (site, operations):
        app = build_app(Facade(site, operations), config.http, now_s=time.perf_counter, new_id=new_id)
        async with serving(app, config.http.host, config.http.port):
            log.info("serving", url=config.http.url)
            _settle_interpreter()
            await stop.wait()
            log.info("stopping")
