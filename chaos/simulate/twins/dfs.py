"""The simulated DFS of one place, with leases as HDFS has them, and its clients.

What always holds: names are given once; appends of one writer land in call order, over one connection, and after the first
that fails none lands; synced bytes survive everything but `wipe` and, in a file's last chunk, a crash of the nodes in mid
append (DfsFault); until lease recovery has ended, which takes its time, the old writer's appends still succeed and are kept,
and then none does. The error that a client gets says nothing about what has happened.
Source: remote_log/dfs/port.py, reference for leases: HDFS's recoverLease and isFileClosed.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from chaos.simulate.twins.loop import Handle, VirtualLoop
from chaos.simulate.twins.network import CallInFlight, Connection, Network, end
from chaos.simulate.twins.process import Process
from remote_log.dfs.port import DfsEntry
from twinlog.errors import DfsError, DfsExists, DfsNotFound, LeaseLost

CALL_S = (0.0002, 0.0008)  # at least, and so much more at most
APPEND_S = (0.0003, 0.001)
RECOVERY_S = (0.005, 0.1)  # least and most
CHUNK_BYTES = 512  # for which HDFS keeps one CRC


@dataclass(frozen=True, slots=True)
class DfsFault:
    """The fate of one call: `done` says how much of an append's bytes lands (None: some), and from 0.5 on that anything
    else does happen. Then it fails, or is never `answered`. `flips`: a bit of what landed of an append is wrong. `crashes`: all
    nodes die between the data of an append and its CRC, as HDFS keeps it, and are down until `heal`: what stood in the last
    chunk of the file, if the append writes into that, is lost although it was synced."""

    done: float | None = 0.0
    answered: bool = True
    flips: bool = False
    crashes: bool = False


@dataclass(slots=True, eq=False)
class _File:
    data: bytearray
    closed: bool = False
    recovered_at_s: float | None = None  # set once lease recovery has begun
    is_asked: bool = False  # its writer was told to close it


class SimDfsCluster:
    """Knobs: `down` (answers errors), `full`, `slow` (a factor), `recovery_s` (least and most); and the methods."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.files: dict[str, _File] = {}
        self.down = False
        self.full = False
        self.turned_back = 0  # how often it was emptied, or put back
        self.slow = 1.0
        self.recovery_s = RECOVERY_S
        self._recovery_stuck = False
        self._hung = False
        self._armed: dict[str, deque[DfsFault]] = {}
        self._waiting: list[Callable[[], None]] = []
        self._writers: list[SimDfsWriter] = []
        self.made: Callable[[str, bytes], None] = lambda path, content: None  # told of each file's path and first content
        self.appends: Callable[[Process, str], None] = lambda process, path: None  # told of each append as it is asked for
        self.landed: Callable[[str, float], None] = lambda path, asked_s: None  # of each that succeeded, and when it was asked
        self.asked: Callable[[Process, str, str], None] = lambda process, operation, path: None  # of each other call
        self.listed: Callable[[Process, str, list[DfsEntry]], None] = lambda process, folder, entries: None  # of each answer
        self.recovers: Callable[[Process, str], None] = lambda process, path: None  # of each that was answered
        self.missed_s: dict[str, float] = {}  # of each place: when a call from there last failed, not by what the DFS decided

    def open_by(self, process: Process) -> list[SimDfsWriter]:
        """Returns the files that `process` has open for appending."""
        self._writers = [writer for writer in self._writers if writer.is_open]
        return [writer for writer in self._writers if writer.process is process]

    def opened(self, writer: SimDfsWriter) -> None:
        self._writers.append(writer)

    def client(self, process: Process, src: str, dst: str, network: Network, timeout_s: float = 10.0) -> SimDfs:
        """Returns a client for one life of `process` at the place `src`; this cluster is at `dst`."""
        return SimDfs(self, process, src, dst, network, timeout_s)

    # ---- faults
    def arm(self, operation: str, fault: DfsFault) -> None:
        """Plants a fault in the next call of `operation`: append, close, create, create_file, list, read, delete,
        recover_lease, is_closed, probe. Several wait in line."""
        self._armed.setdefault(operation, deque()).append(fault)

    def hang(self) -> None:
        """Holds every call that arrives from now on until `heal`, and then does them in order, whoever still wants to know."""
        self._hung = True

    def stick_recovery(self) -> None:
        """No lease recovery that is under way or begins ends before `heal`."""
        self._recovery_stuck = True
        for file in self.files.values():
            if file.recovered_at_s is not None and not self.is_closed(file):
                file.recovered_at_s = math.inf

    def is_well(self) -> bool:
        """It answers, and takes what it is given."""
        return not (self.down or self.full or self._hung)

    def heal(self) -> None:
        """No fault is left, and what hung or was stuck continues."""
        self.down = self.full = self._hung = self._recovery_stuck = False
        self.slow, self.recovery_s = 1.0, RECOVERY_S
        self._armed.clear()
        for file in self.files.values():
            if file.recovered_at_s == math.inf:
                file.recovered_at_s = self._recovery_end_s()
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def wipe(self) -> None:
        """The data centre burnt down."""
        self.files.clear()
        self.turned_back += 1

    def copied(self) -> dict[str, tuple[bytes, bool]]:
        """Returns a copy of its files, and which of them are closed; for `put_back`."""
        return {path: (bytes(file.data), self.is_closed(file)) for path, file in self.files.items()}

    def put_back(self, copied: dict[str, tuple[bytes, bool]]) -> None:
        """It is restored from a copy. No writer of before is known to it."""
        self.files = {path: _File(bytearray(data), closed) for path, (data, closed) in copied.items()}
        self.turned_back += 1

    # ---- calls, in no process
    def serve(self, operation: str, effect: Callable[[], Any], call: CallInFlight) -> None:
        if self._hung:
            self.missed_s[call.src] = self.loop.now_s
            self._waiting.append(partial(self.serve, operation, effect, call))
            return
        after_s = self.time_s(CALL_S)
        if self.down:
            self.missed_s[call.src] = self.loop.now_s
            call.fail(DfsError("the DFS is down"), after_s)
            return
        fault = self.next_fault(operation)
        try:
            result = effect() if fault is None or (fault.done is not None and fault.done >= 0.5) else None
        except DfsError as error:
            call.fail(error, after_s)
            return
        if fault is None:
            call.answer(result, after_s)
        elif fault.answered:
            self.missed_s[call.src] = self.loop.now_s
            call.fail(DfsError(f"injected: {operation} failed"), after_s)

    def next_fault(self, operation: str) -> DfsFault | None:
        line = self._armed.get(operation)
        return line.popleft() if line else None

    def time_s(self, range_s: tuple[float, float]) -> float:
        return (range_s[0] + range_s[1] * self.random.random()) * self.slow

    def append(self, writer: SimDfsWriter, data: bytes, asked_s: float) -> None:
        """An append has arrived at the DataNodes."""
        if self._hung:
            self._waiting.append(partial(self.append, writer, data, asked_s))
        elif not writer.severed:
            fault = self.next_fault("append")
            error = self._append_error(writer)
            if error is None and fault is None:
                writer.file.data += data
                self.landed(writer.path, asked_s)
                writer.answer(None)
                return
            writer.severed = True  # nothing behind it lands
            if error is None and fault is not None:
                if fault.crashes:
                    self.down = True
                    del writer.file.data[len(writer.file.data) // CHUNK_BYTES * CHUNK_BYTES :]
                else:
                    writer.file.data += self._landed(fault, data)
                error = DfsError("injected: the append failed")
            if fault is None or fault.answered:
                writer.answer(error)

    def _append_error(self, writer: SimDfsWriter) -> DfsError | None:
        if self.down:
            return DfsError("the DFS is down")
        if self.files.get(writer.path) is not writer.file or self.is_closed(writer.file):
            return LeaseLost(f"{writer.path} was closed or deleted under its writer")
        return DfsError("the DFS is full") if self.full else None

    def _landed(self, fault: DfsFault, data: bytes) -> bytes:
        count = self.random.randrange(len(data) + 1) if fault.done is None else int(len(data) * fault.done)
        landed = bytearray(data[:count])
        written = len(landed.rstrip(b"\0"))  # a bit of the padding behind a frame harms nobody
        if fault.flips and written:
            landed[self.random.randrange(written)] ^= 1 << self.random.randrange(8)
        return bytes(landed)

    # ---- effects
    def is_closed(self, file: _File) -> bool:
        if not file.closed and file.recovered_at_s is not None and file.recovered_at_s <= self.loop.now_s:
            file.closed = True
        return file.closed

    def find(self, path: str) -> _File:
        file = self.files.get(path)
        if file is None:
            raise DfsNotFound(f"{path} is not there")
        return file

    def make(self, path: str, content: bytes, closed: bool) -> _File:
        if path in self.files:
            raise DfsExists(f"{path} exists already")
        if self.full:
            raise DfsError("the DFS is full")
        self.files[path] = file = _File(bytearray(content), closed)
        self.made(path, content)
        return file

    def entries(self, folder: str) -> list[DfsEntry]:
        start, entries = folder.rstrip("/") + "/", {}
        for path, file in self.files.items():
            if path.startswith(start):
                name, _, below = path[len(start) :].partition("/")
                entries[name] = DfsEntry(name, 0 if below else self._listed_bytes(file), bool(below))
        return [entries[name] for name in sorted(entries)]

    def _listed_bytes(self, file: _File) -> int:
        """As HDFS: the NameNode learns the length of an open file with its first sync, and then when it is closed."""
        return len(file.data) if self.is_closed(file) else min(CHUNK_BYTES, len(file.data))

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        data = self.find(path).data
        return bytes(data[offset : len(data) if length is None else offset + length])

    def delete(self, path: str) -> None:
        below = path + "/"
        for name in [name for name in self.files if name == path or name.startswith(below)]:
            del self.files[name]

    def recover(self, path: str) -> None:
        file = self.find(path)
        if not self.is_closed(file):
            file.recovered_at_s = self._recovery_end_s()  # on HDFS, too, each call begins anew

    def close(self, writer: SimDfsWriter) -> None:
        if self.files.get(writer.path) is not writer.file or self.is_closed(writer.file):
            raise LeaseLost(f"{writer.path} was closed or deleted under its writer")
        writer.file.closed = True

    def _recovery_end_s(self) -> float:
        if self._recovery_stuck:
            return math.inf
        low_s, high_s = self.recovery_s
        return self.loop.now_s + low_s + (high_s - low_s) * self.random.random()


class SimDfs:
    """Dfs, for one life of a process."""

    def __init__(
        self, cluster: SimDfsCluster, process: Process, src: str, dst: str, network: Network, timeout_s: float
    ) -> None:
        self.cluster, self.process, self.network = cluster, process, network
        self.src, self.dst, self.timeout_s = src, dst, timeout_s

    def call(self, operation: str, path: str, effect: Callable[[], Any]) -> asyncio.Future[Any]:
        self.cluster.asked(self.process, operation, path)
        return self.network.call(
            self.src, self.dst, partial(self.cluster.serve, operation, effect), self.timeout_s, partial(self._failed, operation)
        )

    def _failed(self, operation: str, why: str, sent: bool) -> DfsError:
        self.cluster.missed_s[self.src] = self.network.loop.now_s
        return DfsError(f"{operation}: {why}", sent=sent)

    async def create_file(self, path: str, content: bytes) -> None:
        await self.call("create_file", path, lambda: self.cluster.make(path, content, closed=True))

    async def create(self, path: str) -> SimDfsWriter:
        file = await self.call("create", path, lambda: self.cluster.make(path, b"", closed=False))
        writer = SimDfsWriter(self, path, file)
        self.cluster.opened(writer)
        return writer

    async def list(self, folder: str) -> list[DfsEntry]:
        entries: list[DfsEntry] = await self.call("list", folder, lambda: self.cluster.entries(folder))
        self.cluster.listed(self.process, folder, entries)
        return entries

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data: bytes = await self.call("read", path, lambda: self.cluster.read(path, offset, length))
        return data

    async def delete(self, path: str) -> None:
        await self.call("delete", path, lambda: self.cluster.delete(path))

    async def recover_lease(self, path: str) -> None:
        await self.call("recover_lease", path, lambda: self.cluster.recover(path))
        self.cluster.recovers(self.process, path)

    async def is_closed(self, path: str) -> bool:
        closed: bool = await self.call("is_closed", path, lambda: self.cluster.is_closed(self.cluster.find(path)))
        return closed

    async def probe(self) -> None:
        await self.call("probe", "", lambda: None)


class SimDfsWriter:
    """DfsWriter. `severed`: at the cluster's end, nothing of this writer lands any more."""

    def __init__(self, dfs: SimDfs, path: str, file: _File) -> None:
        self.path, self.file = path, file
        self.severed = False
        self._dfs = dfs
        network = dfs.network
        self._there = Connection(network, dfs.src, dfs.dst, self._broke)
        self._back = Connection(network, dfs.dst, dfs.src, self._broke)
        self._outstanding: deque[tuple[asyncio.Future[None], float]] = deque()  # with their deadlines
        self._closing: asyncio.Future[None] | None = None  # until no append is outstanding, also none that its caller gave up
        self._watch: Handle | None = None
        self._failure: DfsError | None = None

    @property
    def process(self) -> Process:
        return self._dfs.process

    @property
    def is_open(self) -> bool:
        """It can still append, as far as its process knows."""
        return self._failure is None and not self.process.killed

    def append(self, data: bytes) -> asyncio.Future[None]:
        dfs, loop = self._dfs, self._dfs.network.loop
        future: asyncio.Future[None] = loop.create_future()
        if self._failure is not None:
            end(future, dfs.process, None, self._failure)
            return future
        dfs.cluster.appends(dfs.process, self.path)
        self._outstanding.append((future, loop.now_s + dfs.timeout_s))
        if self._watch is None:
            self._watch = loop.call_later(dfs.timeout_s, self._look)
        self._there.send(dfs.cluster.append, self, data, loop.now_s, after_s=dfs.cluster.time_s(APPEND_S))
        return future

    async def close(self) -> None:
        self.file.is_asked = True
        if self._outstanding:
            if self._closing is None:
                self._closing = self._dfs.network.loop.create_future()
            await asyncio.shield(self._closing)
        if self._failure is None:
            self._failure = DfsError(f"{self.path} was closed by its writer")
            self._stop_watching()
            await self._dfs.call("close", self.path, lambda: self._dfs.cluster.close(self))

    def abandon(self) -> None:
        self._failure = DfsError(f"{self.path} was made, and its writer never heard of it")

    def answer(self, error: DfsError | None) -> None:
        """The cluster has settled the oldest append; in no process."""
        self._back.send(self._settled, error)

    def _settled(self, error: DfsError | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._outstanding:
            process = self._dfs.process
            future, until_s = self._outstanding.popleft()
            process.proved_s = max(process.proved_s, until_s - self._dfs.timeout_s)
            end(future, process, None, None)
            self._nothing_is_outstanding()

    def _nothing_is_outstanding(self) -> None:
        if self._closing is not None and not self._outstanding:
            end(self._closing, self._dfs.process, None, None)

    def _broke(self, why: str) -> None:
        self._fail(DfsError(f"{self.path}: {why}"))

    def _look(self) -> None:
        """In the process: has the oldest append waited too long?"""
        loop, self._watch = self._dfs.network.loop, None
        if not self._outstanding:
            return
        left_s = self._outstanding[0][1] - loop.now_s
        if left_s <= 0:
            self._fail(DfsError(f"{self.path}: no answer to an append in {self._dfs.timeout_s} s"))
        else:
            self._watch = loop.call_later(left_s, self._look)

    def _fail(self, error: DfsError) -> None:
        """It, and everything behind it."""
        if self._failure is None:
            self._failure = error
        self._stop_watching()
        outstanding, self._outstanding = self._outstanding, deque()
        for future, _ in outstanding:
            end(future, self._dfs.process, None, error)
        self._nothing_is_outstanding()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
