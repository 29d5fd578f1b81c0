"""Two whole sites in one process, on real small parts: RocksDB or the memory engine, directory DFS, SQLite coordinator.

The transport is a direct call of the other site's peer API, which can be cut. A site can be crashed (its tasks are dropped, its
unflushed storage is lost) and started again on the same folders.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.audits.notes import AuditSettings
from gateway.service.http_settings import HttpSettings
from gateway.service.port import SiteService
from gateway.site.looks import SiteLooks
from gateway.site.operations import SiteOperations
from gateway.site.peer_api import PeerApi
from gateway.site.service import site_service
from gateway.site.settings import PeerSettings, SiteSettings
from gateway.site.site import Site, not_kept
from gateway.site.supervisor import Supervisor
from gateway.trail.journal import TrailJournal
from gateway.trail.keeping import kept_trail
from gateway.trail.peer import PeerTrail
from gateway.trail.roles import RoleTrail
from gateway.trail.trail import Trail
from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.owner import Owner
from remote_log.dfs.port import Dfs
from remote_log.fencing.read_lease import LeaseSettings
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import Says, decode_reply
from remote_log.replication.shipper import ShipperSettings
from remote_log.replication.understanding import OWN, Understanding
from remote_log.writing.writer import RemoteWriterSettings
from storage.cancellation import ended
from storage.clock import Clock, HybridClock, SystemClock
from storage.disk.os_files import OsFiles
from storage.engine import StorageEngine
from storage.engines.applying import FrameApplier
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.settings import EngineSettings
from storage.failpoints import Failpoints
from storage.log.cursors import CursorRegistry
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.wal import Wal, WalSettings
from switchover.operations.document import OperationDocument
from switchover.operations.journal import Journal
from switchover.operations.sql_journal import SqlJournal
from switchover.preflight.loss import at_risk
from switchover.register.port import Coordinator, PairState
from switchover.register.remembering import RememberingCoordinator, last_met
from switchover.register.sql import SqlCoordinator
from switchover.register.stand_in import StandInCoordinator, given_up
from switchover.register.two_dfs import DfsCoordinator
from switchover.site_parts import SiteParts
from tests.pair.faults import Faults, FaultyCoordinator, FaultyDfs, FaultyFiles
from tests.pair.registers import (
    Gate,
    GatedRegister,
    back_up_database,
    back_up_folders,
    change_file,
    lose_database,
    lose_folders,
)
from twinlog.errors import Conflict, DfsError, PeerError, Refused, Unavailable

IMAGE_ATTEMPTS = 50
_ids = itertools.count(1)
OTHER = {"a": "b", "b": "a"}
REGISTER_DEADLINE_S = 30.0  # a register that does not answer is a fault that a test makes; a busy disk is none
BY_ITSELF = ("rejoin", "restart")  # what a site begins without a command
_T = TypeVar("_T")


def settings(site: str, **changes: Any) -> SiteSettings:
    return replace(SiteSettings(
        pair="test", site=site, peer=PeerSettings(site=OTHER[site], url=f"http://{OTHER[site]}"),
        http=HttpSettings(advertised_url=f"http://{site}", request_deadline_s=5.0), engine=EngineSettings(flush_interval_s=0.2),
        audits=AuditSettings(recent_s=0.0), lease=LeaseSettings(lease_s=0.4, drift_margin=0.1, noop_interval_s=0.1),
        replication=ShipperSettings(idle_poll_s=0.05, retry_s=0.05, batch_interval_s=0.005),
        remote_log=RemoteWriterSettings(segment_bytes=64 << 10, lease_recovery_deadline_s=5.0),
        protect_resync_after_s=0.1, trim_interval_s=0.1,
    ), **changes)


def copy_at_one_moment(root: Path, image: Path) -> None:
    """Copies a site's folder without its DFS. When RocksDB compacts in the background, the copy is made again."""
    def files() -> dict[Path, int]:
        return {path: path.stat().st_size for path in root.glob("engine/rocksdb/*") if not path.name.startswith("LOG")}

    for _ in range(IMAGE_ATTEMPTS):
        shutil.rmtree(image, ignore_errors=True)
        with suppress(shutil.Error, FileNotFoundError):
            before = files()
            shutil.copytree(root, image, ignore=shutil.ignore_patterns("dfs"))
            if files() == before:
                return
    raise AssertionError(f"{root} does not stand still")


class SkewedClock(SystemClock):
    """A wall clock that is wrong by so many seconds; durations are right."""

    def __init__(self, ahead_s: float) -> None:
        self.set_ahead(ahead_s)

    def set_ahead(self, ahead_s: float) -> None:
        self._ahead_ms = round(ahead_s * 1000)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


class DirectTransport:
    """Calls of the other site in the same process; `cut` makes it unreachable. A dead process calls nobody."""

    def __init__(self, pair: Pair, to: str, faults: Faults) -> None:
        self._pair, self._to, self._faults = pair, to, faults

    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        running = self._pair.running.get(self._to)
        if running is None or self._pair.cut or self._faults.dead:
            raise PeerError(f"site {self._to} does not answer")
        body = msgspec.msgpack.encode(message)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await running.peer_api.call_bytes(method, body)
        except TimeoutError as error:
            raise PeerError(f"site {self._to} did not answer {method} in {timeout_s} s") from error
        return decode_reply(kind, method, answer)


async def open_rocks(path: Path) -> StorageEngine:
    return await RocksEngine.open(path, RocksSettings())


@dataclass
class Running:
    site: Site
    operations: SiteOperations
    service: SiteService
    peer_api: PeerApi
    supervisor: Supervisor
    stack: AsyncExitStack


@dataclass
class Pair:
    root: Path
    settings: dict[str, dict[str, Any]] = field(default_factory=lambda: {"a": {}, "b": {}})
    running: dict[str, Running] = field(default_factory=dict)
    has_coordinator: bool = True
    coordinator: str = "coordinator.db"
    cut: bool = False
    faults: dict[str, Faults] = field(default_factory=lambda: {"a": Faults(), "b": Faults()})
    own_faults: dict[str, Faults] = field(default_factory=lambda: {"a": Faults(), "b": Faults()})  # of the DFS beside it
    failpoints: dict[str, Failpoints] = field(default_factory=lambda: {"a": Failpoints(), "b": Failpoints()})
    clock_ahead_s: dict[str, float] = field(default_factory=lambda: {"a": 0.0, "b": 0.0})  # as of its next start
    engines: dict[str, Callable[[Path], Awaitable[StorageEngine]]] = field(default_factory=dict)  # other than RocksDB
    open_dfs: Callable[[str], Dfs] | None = None  # of a site; other than a directory
    register_gate: Gate = field(default_factory=Gate)
    remote_keys: dict[str, Keyring] = field(default_factory=dict)  # of a site, as of its next start; none: plain
    wal_keys: dict[str, Keyring] = field(default_factory=dict)
    keeps_trails: bool = False
    says: dict[str, Says] = field(default_factory=dict)  # of the release of a site, as of its next start
    _dead: list[Faults] = field(default_factory=list)

    def _dfs(self, site: str, *, is_own: bool) -> Dfs:
        if self.open_dfs:
            return self.open_dfs(site)
        return DirectoryDfs(self.root / site / "dfs", "own" if is_own else "peer", owner=Owner("test", site), marks=is_own)

    async def start(self, name: str) -> Running:
        root = self.root / name
        (root / "dfs").mkdir(parents=True, exist_ok=True)
        (self.root / OTHER[name] / "dfs").mkdir(parents=True, exist_ok=True)
        stack = AsyncExitStack()
        clock = SkewedClock(self.clock_ahead_s[name])
        os_files = OsFiles(root)
        stack.push_async_callback(os_files.close)
        files = FaultyFiles(os_files, self.faults[name])
        understanding = await Understanding.open(files, self.says.get(name, OWN))
        engine = await self.engines.get(name, open_rocks)(root / "engine")
        stack.push_async_callback(engine.close)
        wal = await Wal.open(files, "wal", WalSettings(segment_bytes=64 << 10), self.wal_keys.get(name, NO_KEYS))
        stack.push_async_callback(wal.close)
        own = FaultyDfs(self._dfs(name, is_own=True), self.own_faults[name])
        peer = FaultyDfs(self._dfs(OTHER[name], is_own=False), self.faults[name])
        met = await last_met(files)
        configured, stand_in = self._coordinator(name, clock, own, peer, met), None
        if self.has_coordinator:
            own_url = f"sqlite:///{root / 'stand_in.db'}"
            configured = stand_in = StandInCoordinator(
                configured, self.coordinator, partial(SqlCoordinator, own_url, "test", clock), files, await given_up(files)
            )
        coordinator = RememberingCoordinator(configured, name, files, met)
        stack.push_async_callback(coordinator.close)
        chosen = settings(name, **self.settings[name])
        site = Site(
            chosen,
            SiteParts(
                site=name, peer=OTHER[name], hybrid=HybridClock(clock, engine.applied.timestamp), layout=RemoteLayout("test"),
                remote_keys=self.remote_keys.get(name, NO_KEYS),
                applier=FrameApplier(engine, clock, chosen.barriers, on_refused=not_kept),
                clock=clock, files=files, wal=wal, engine=engine, coordinator=coordinator, stand_in=stand_in,
                transport=DirectTransport(self, OTHER[name], self.faults[name]), own_dfs=own, peer_dfs=peer,
                cursors=await CursorRegistry.open(files), understanding=understanding, failpoints=self.failpoints[name],
                new_id=lambda: f"id-{next(_ids)}",
            ),
        )
        journal: Journal = SqlJournal(f"sqlite:///{root / 'journal.db'}")
        trail = Trail(os_files, clock, pair="test", site=name) if self.keeps_trails else None
        peer_trail: PeerTrail | None = None
        if trail is not None:
            peer_trail = PeerTrail(
                trail, clock, OTHER[name], lambda note, timeout_s: site.parts.other_site.trail(note, timeout_s)
            )
            await stack.enter_async_context(kept_trail(trail, {}))
            journal = TrailJournal(journal, trail)
        operations = SiteOperations(site, journal)
        if trail is not None and peer_trail is not None:
            roles = RoleTrail(trail, site, lambda: operations.running_id)
            site.on_role, site.on_fenced = roles.changed, roles.fenced
            exchange = asyncio.create_task(peer_trail.run())
            stack.push_async_callback(ended, (exchange,))
            stack.callback(exchange.cancel)
        supervisor = Supervisor(
            site, run_plan=operations.run_own, undo_again=operations.undo_again, go_on=operations.go_on,
            is_busy=lambda: operations.running_id is not None, poll_interval_s=0.02,
        )
        answer = None if peer_trail is None else peer_trail.answer
        peer_api = PeerApi(site, answer, SiteLooks(site, operations).answer)
        running = Running(site, operations, site_service(site, operations), peer_api, supervisor, stack)
        self.running[name] = running
        supervisor.start()
        return running

    def _coordinator(self, name: str, clock: Clock, own: Any, peer: Any, met: PairState | None) -> Coordinator:
        if self.has_coordinator:
            sql = SqlCoordinator(f"sqlite:///{self.root / self.coordinator}", "test", clock, REGISTER_DEADLINE_S)
            return FaultyCoordinator(sql, self.faults[name])
        on_two = DfsCoordinator(
            site=name, peer=OTHER[name], own_dfs=own, peer_dfs=peer, layout=RemoteLayout("test"), initial_active="a",
            clock=clock, known=met,
        )
        return GatedRegister(on_two, self.register_gate)

    async def lose_register(self) -> None:
        """Deletes the register: the coordinator is set up anew, or both registers on the DFSs."""
        async with self.register_gate.shut():
            if self.has_coordinator:
                lose_database(self.root / self.coordinator)
            else:
                lose_folders(self.root)

    async def back_up_register(self, *, restore: bool) -> None:
        """Copies the coordinator's database, away or back. Without a coordinator: both registers."""
        async with self.register_gate.shut():
            if self.has_coordinator:
                back_up_database(self.root / self.coordinator, restore=restore)
            else:
                back_up_folders(self.root, restore=restore)

    def coordinator_file(self, what: str) -> None:
        """Deletes or damages the file of the coordinator beside its processes, or brings it back as it was."""
        change_file(self.root / self.coordinator, what)

    def copy_disk(self, name: str, parts: list[str], *, restore: bool) -> None:
        """Copies these files of a site away, also while it runs and its storage compacts; or back, while it is down."""
        assert not (restore and name in self.running)
        root, saved = self.root / name, self.root / f"disk-{name}"
        if not restore:
            copy_at_one_moment(root, saved)
            return
        for part in parts:
            source, target = saved / part, root / part
            if target.is_dir():
                shutil.rmtree(target)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    def copy_dfs(self, name: str, *, restore: bool) -> None:
        """Copies the files of the DFS beside a site away, or back in their place, whoever runs: it is another machine's."""
        there, saved = self.root / name / "dfs", self.root / f"dfs-{name}"
        source, target = (saved, there) if restore else (there, saved)
        if restore:
            for path in there.iterdir():
                shutil.rmtree(path)
        shutil.copytree(source, target, dirs_exist_ok=restore)

    async def stop(self, name: str) -> None:
        running = self.running.pop(name)
        await running.supervisor.stop()
        await running.operations.close()
        await running.site.close_epoch(Unavailable("stopping", retry_after_s=0))
        await running.stack.aclose()

    async def crash(self, name: str) -> None:
        """The process dies: what its disk holds at this moment is all that is left, its files on the DFS stay open."""
        running, faults = self.running.pop(name), self.faults[name]
        self._dead.append(faults)
        await running.supervisor.stop()  # it alone flushes the storage, which would disturb the image
        faults.dead = True
        root, image = self.root / name, self.root / f"{name}.image"
        copy_at_one_moment(root, image)
        faults.hold_remote.set()  # nobody waits for an answer any more
        await running.operations.close()
        await running.site.close_epoch(Unavailable("the process died", retry_after_s=0))
        await running.stack.aclose()
        for left in root.iterdir():
            if left.name != "dfs":
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        shutil.copytree(image, root, dirs_exist_ok=True)
        shutil.rmtree(image)
        self.faults[name] = Faults()

    async def stop_all(self) -> None:
        for name in list(self.running):
            await self.stop(name)
        for faults in self._dead:
            for writer in faults.left_open:
                with suppress(DfsError):  # its lease has been recovered since
                    await writer.close()

    async def until(self, condition: Any, timeout_s: float = 120.0) -> None:
        """Wait for a condition of the running sites, a bool or an awaitable of one; fails with what they are."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    seen = condition()
                    if await seen if isawaitable(seen) else seen:
                        return
                    await asyncio.sleep(0.005)  # a poll of observable state, bounded by the time-out
        except TimeoutError:
            seen = {n: (r.site.role, r.site.epoch, r.site.mode, r.site.waiting_for) for n, r in self.running.items()}
            done = {n: [(o.kind, o.state, o.error) for o in await r.operations.all()] for n, r in self.running.items()}
            raise AssertionError(f"not reached in {timeout_s} s: {seen}\n{done}") from None

    def role(self, name: str) -> str:
        return str(self.running[name].site.role) if name in self.running else "down"

    async def operate(self, name: str, kind: str, to: str | None = None, **options: Any) -> OperationDocument:
        """Returns how an operation of the operator ended. It waits for a change that the site makes by itself: only one runs
        at a time, and an attempt to open or to rejoin may begin at any moment."""
        operations = self.running[name].operations
        while True:
            try:
                started = await operations.start(kind, to, options, False, "test")
            except Conflict as conflict:
                running = await operations.get(conflict.fields["running"])
                if running.kind not in BY_ITSELF:
                    raise
                await self._ended(operations, running)
            else:
                return await self._ended(operations, started)

    async def _ended(self, operations: SiteOperations, document: OperationDocument) -> OperationDocument:
        async for followed in operations.follow(document.id):
            document = followed
        return document

    async def force_failover(self, name: str) -> OperationDocument:
        """As an operator does who reads the loss manifest, types what it shows, and decides anew if it has changed meanwhile: a
        renewal of the lost active's lease that was under way still arrives."""
        while True:
            loss = (await self.running[name].operations.checks("failover")).loss
            shown = at_risk(msgspec.to_builtins(loss) or {})
            try:
                ended = await self.operate(name, "failover", name, accept_data_loss=shown)
            except Refused as refusal:
                if not _shows_another(refusal.fields, shown):
                    raise
            else:
                if ended.error is None or not _shows_another(ended.error.fields, shown):
                    return ended


def _shows_another(refusal: dict[str, Any], shown: int | str) -> bool:
    """Returns whether the loss manifest in the fields of a refusal is another one than the operator saw."""
    return "manifest" in refusal and at_risk(refusal["manifest"] or {}) != shown
