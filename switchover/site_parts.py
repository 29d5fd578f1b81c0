"""The parts of one site's process: its ports, and the few things that all of them share.

What always holds: a composition root makes one SiteParts for each process (gateway/app.py, the simulator, the tests' pair), and
the site, each activation and each open epoch have that very one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from remote_log.dfs.port import Dfs
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import Transport
from remote_log.replication.understanding import Understanding
from storage.clock import Clock, HybridClock
from storage.disk.port import Files
from storage.engine import StorageEngine
from storage.engines.applying import FrameApplier
from storage.failpoints import Failpoints
from storage.log.cursors import CursorRegistry
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.wal import Wal
from storage.tracing import NO_TRACES, Tracer
from switchover.other_site import OtherSite
from switchover.register.remembering import RememberingCoordinator
from switchover.register.stand_in import StandInCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParts:
    site: str
    peer: str
    clock: Clock
    hybrid: HybridClock
    files: Files
    wal: Wal
    engine: StorageEngine
    applier: FrameApplier  # the one way into the engine
    coordinator: RememberingCoordinator  # nobody here acts on a value that went back
    transport: Transport  # for the shipper; every other call goes through `other_site`
    own_dfs: Dfs
    peer_dfs: Dfs
    layout: RemoteLayout  # of both remote logs
    remote_keys: Keyring = NO_KEYS  # of both remote logs
    cursors: CursorRegistry
    understanding: Understanding  # of formats, with the other site
    failpoints: Failpoints
    new_id: Callable[[], str]  # unique for ever: operation and plan ids
    stand_in: StandInCoordinator | None = None  # the door below `coordinator`, where one is configured that may be given up
    tracer: Tracer = NO_TRACES
    free_bytes: Callable[[], Awaitable[int]] | None = None  # of the disk with the WAL; None: not known

    @property
    def other_site(self) -> OtherSite:
        return OtherSite(self.peer, self.transport, self.coordinator.met_pair, self.understanding)
