"""Every simulated twin at work together under random faults, from one seed; prints a digest of all that happened.

Run as a module of its own, so that a test can run it in interpreters whose hashes differ.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from random import Random

from chaos.simulate.twins.clock import SimClock
from chaos.simulate.twins.coordinator import SimCoordinator, SimRegister
from chaos.simulate.twins.dfs import DfsFault, SimDfsCluster
from chaos.simulate.twins.disk import SimDisk
from chaos.simulate.twins.engine import SimEngine
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import Network
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.transport import SimTransport
from storage.log.wal import Wal, WalSettings
from switchover.register.port import PairState
from tests.storage.engines.engine_rig import Log, request, scan, upsert, value
from twinlog.errors import TwinlogError


class Echo:
    async def call_bytes(self, method: str, body: bytes) -> bytes:
        await asyncio.sleep(0.001)
        return body


class Play:
    """`digest` takes in every event with its time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.digest = hashlib.sha256()
        self.network = Network(self.loop, Random(f"{seed} network"))
        self.disk = SimDisk(self.loop, Random(f"{seed} disk"))
        self.dfs = SimDfsCluster(self.loop, Random(f"{seed} dfs"))
        self.engine = SimEngine(Random(f"{seed} engine"))
        self.register = SimRegister()
        self.clock = SimClock(self.loop, rate=1.05)
        self.peer = Process("peer")

    def note(self, what: str, result: object) -> None:
        self.digest.update(f"{self.loop.now_s!r} {what} {result!r}\n".encode())

    async def tried(self, what: str, work: asyncio.Future[object]) -> None:
        try:
            self.note(what, await work)
        except TwinlogError as error:
            self.note(what, f"{error.code} {error.message}")

    async def live(self, process: Process, number: int) -> None:
        files = self.disk.files(process)
        remote = self.dfs.client(process, "a", "b", self.network, timeout_s=2.0)
        transport = SimTransport("a", "b", self.network, lambda: (self.peer, Echo()))
        coordinator = SimCoordinator(self.register, "a", self.network)
        try:
            wal = await Wal.open(files, settings=WalSettings(segment_bytes=800))
            held = await wal.read_all()
            self.note("held", [frame.last_seq for frame in held])
            await wal.start(number, 1 + max((frame.last_seq for frame in held), default=0))
            writer = await remote.create(f"/{number}")
        except TwinlogError as error:
            self.note("boot", error.message)
            return
        log = Log()
        log.seq, log.epoch = self.engine.applied.seq, number
        while True:
            frame = log.frame(*[upsert(b"k%d" % n, value(c1=n), request=request(f"r{n}")) for n in range(2)])
            doing = asyncio.gather(
                self.tried("wal", asyncio.ensure_future(wal.append(frame))),
                self.tried("remote", asyncio.ensure_future(writer.append(frame.data))),
                self.tried("peer", asyncio.ensure_future(transport.call("echo", {"seq": frame.last_seq}, dict, 1.0))),
                self.tried("register", asyncio.ensure_future(coordinator.compare_and_set(
                    self.register.history[-1] if self.register.history else None, PairState(reason=f"{number}"))),
                ),
                self.tried("list", asyncio.ensure_future(remote.list("/"))),
            )
            await doing
            await self.engine.apply([frame])
            self.note("engine", (self.engine.applied.seq, await scan(self.engine)))
            await self.clock.sleep(0.01)

    def fault(self) -> None:
        draw = self.random.randrange(8)
        if draw == 0:
            self.network.cut("a", "b", self.random.choice(("silent", "refused")))
        elif draw == 1:
            self.disk.fail_syncs(1, self.random.choice(("nothing", "part", "all")))
        elif draw == 2:
            self.dfs.arm("append", DfsFault(done=None))
        elif draw == 3:
            self.network.link("a", "b").loss = self.random.random()
        elif draw == 4:
            self.dfs.hang()
        elif draw == 5:
            self.network.link("a", "b").repeat = 0.5
        elif draw == 6:
            self.clock.jump(1000.0)
        else:
            self.disk.slow = 100.0

    async def run(self) -> None:
        for number in range(1, 6):
            process = Process(f"life {number}")
            process.spawn(self.live(process, number))
            await asyncio.sleep(self.random.random())
            self.fault()
            await asyncio.sleep(self.random.random())
            self.loop.pause(process)
            await asyncio.sleep(self.random.random() * 3)
            self.loop.go_on(process)
            await asyncio.sleep(self.random.random() * 3)
            self.loop.kill(process)
            if self.random.random() < 0.5:
                self.disk.power_loss(flips=True)
            self.engine.crash()
            for heal in (self.network.heal, self.disk.heal, self.dfs.heal):
                heal()
        self.note("end", self.loop.now_s)


def play(seed: int) -> str:
    """Returns the digest of one seed."""
    one = Play(seed)
    one.loop.run(one.run(), steps_max=1_000_000)
    if one.loop.errors:
        raise SystemExit(f"seed {seed}: {one.loop.errors!r}")
    return one.digest.hexdigest()


if __name__ == "__main__":
    sys.stdout.write("\n".join(f"{seed} {play(seed)}" for seed in range(int(sys.argv[1]))))
