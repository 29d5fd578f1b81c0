"""The simulated DFS: leases under slow, stuck and repeated recovery, and each fault that can be armed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chaos.simulate.twins.dfs import DfsFault, SimDfs, SimDfsCluster
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.network import Network
from chaos.simulate.twins.process import Process
from tests.chaos.simulate.on_virtual_loop import run
from twinlog.errors import DfsError, DfsExists, LeaseLost

TIMEOUT_S = 10.0


class Rig:
    """A DFS at "b", a writer's process at "a" and another client at "b"."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop, random.Random(seed))
        self.cluster = SimDfsCluster(self.loop, random.Random(seed))
        self.process = Process("writer")
        self.dfs = self.cluster.client(self.process, "a", "b", self.network, TIMEOUT_S)
        self.other = self.cluster.client(Process("other"), "b", "b", self.network, TIMEOUT_S)

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        run(self.loop, work)

    def data(self, path: str = "/s") -> bytes:
        return bytes(self.cluster.files[path].data)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def wait(future: asyncio.Future[None]) -> None:
    await future


def test_until_recovery_has_ended_the_old_writer_goes_on_and_is_kept(rig: Rig) -> None:
    rig.cluster.recovery_s = (5.0, 5.0)

    async def main() -> None:
        writer = await rig.dfs.create("/s")
        await rig.other.recover_lease("/s")
        succeeded = b""
        while True:
            piece = b"%d." % len(succeeded)
            try:
                await writer.append(piece)
            except LeaseLost:
                break
            assert not rig.cluster.files["/s"].closed
            succeeded += piece
            await asyncio.sleep(0.1)
        assert 5.0 < rig.loop.now_s < 5.5
        assert await rig.other.is_closed("/s")
        assert await rig.other.read("/s") == succeeded
        assert len(succeeded) > 50

    rig.run(main())


def test_each_call_begins_recovery_anew(rig: Rig) -> None:
    rig.cluster.recovery_s = (5.0, 5.0)

    async def main() -> None:
        await rig.dfs.create("/s")
        for _ in range(5):
            await rig.other.recover_lease("/s")
            await asyncio.sleep(3)
            assert not await rig.other.is_closed("/s")
        await asyncio.sleep(3)
        assert await rig.other.is_closed("/s")

    rig.run(main())


@pytest.mark.parametrize("stuck_first", [True, False])
def test_a_recovery_that_never_ends_until_it_is_healed(rig: Rig, stuck_first: bool) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        if stuck_first:
            rig.cluster.stick_recovery()
        await rig.other.recover_lease("/s")
        rig.cluster.stick_recovery()
        await asyncio.sleep(1000)
        assert not await rig.other.is_closed("/s")
        await writer.append(b"kept")
        rig.cluster.heal()
        await asyncio.sleep(1)
        assert await rig.other.is_closed("/s")
        with pytest.raises(LeaseLost):
            await writer.append(b"late")

    rig.run(main())
    assert rig.data() == b"kept"


@pytest.mark.parametrize("done", [0.0, None, 1.0])
@pytest.mark.parametrize("answered", [True, False])
def test_an_append_that_fails_lands_in_part_and_nothing_behind_it(done: float | None, answered: bool) -> None:
    left = set()
    for seed in range(40):
        rig = Rig(seed)

        async def main(rig: Rig = rig) -> None:
            writer = await rig.dfs.create("/s")
            await writer.append(b"good")
            rig.cluster.arm("append", DfsFault(done=done, answered=answered))
            ends = await asyncio.gather(*[writer.append(piece) for piece in (b"bad", b"next")], return_exceptions=True)
            assert all(isinstance(end, DfsError) for end in ends)
            assert (rig.loop.now_s >= TIMEOUT_S) == (not answered)
            with pytest.raises(DfsError):
                await writer.append(b"later")
            await writer.close()
            assert not await rig.other.is_closed("/s")

        rig.run(main())
        left.add(rig.data())
    assert left == {0.0: {b"good"}, 1.0: {b"goodbad"}, None: {b"good", b"goodb", b"goodba", b"goodbad"}}[done]


def test_a_flip_is_in_what_was_not_synced(rig: Rig) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        await writer.append(b"good")
        rig.cluster.arm("append", DfsFault(done=1.0, flips=True))
        with pytest.raises(DfsError):
            await writer.append(b"\xff" * 100)

    rig.run(main())
    assert rig.data()[:4] == b"good"
    assert sum(byte.bit_count() for byte in rig.data()[4:]) == 799


OPERATIONS: dict[str, Callable[[SimDfs], Coroutine[Any, Any, Any]]] = {
    "create_file": lambda dfs: dfs.create_file("/new", b"x"),
    "create": lambda dfs: dfs.create("/new"),
    "delete": lambda dfs: dfs.delete("/old"),
    "recover_lease": lambda dfs: dfs.recover_lease("/open"),
    "list": lambda dfs: dfs.list("/"),
    "read": lambda dfs: dfs.read("/old"),
    "is_closed": lambda dfs: dfs.is_closed("/old"),
    "probe": lambda dfs: dfs.probe(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("done", [0.0, 1.0])
@pytest.mark.parametrize("answered", [True, False])
def test_a_call_that_fails_may_have_happened(rig: Rig, operation: str, done: float, answered: bool) -> None:
    async def main() -> None:
        await rig.other.create_file("/old", b"x")
        await rig.other.create("/open")
        rig.cluster.arm(operation, DfsFault(done=done, answered=answered))
        with pytest.raises(DfsError) as failed:
            await OPERATIONS[operation](rig.dfs)
        assert ("no answer" in failed.value.message) == (not answered)
        assert ("/new" in rig.cluster.files) == (operation.startswith("create") and done == 1.0)
        assert ("/old" in rig.cluster.files) == (operation != "delete" or done == 0.0)
        recovering = rig.cluster.files["/open"].recovered_at_s is not None
        assert recovering == (operation == "recover_lease" and done == 1.0)
        if operation == "create" and done == 1.0:
            with pytest.raises(DfsExists):
                await rig.dfs.create("/new")
        elif operation != "create_file" or done == 0.0:
            await OPERATIONS[operation](rig.dfs)

    rig.run(main())


@pytest.mark.parametrize("done", [0.0, 1.0])
def test_a_close_that_fails_may_have_happened(rig: Rig, done: float) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        rig.cluster.arm("close", DfsFault(done=done))
        with pytest.raises(DfsError):
            await writer.close()
        assert await rig.other.is_closed("/s") == (done == 1.0)

    rig.run(main())


def test_a_hung_dfs_does_everything_later_in_order_also_for_the_dead(rig: Rig) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        rig.cluster.hang()
        appends = [rig.process.spawn(wait(writer.append(piece))) for piece in (b"a", b"b")]
        making = asyncio.ensure_future(rig.dfs.create_file("/late", b"x"))
        await asyncio.sleep(TIMEOUT_S / 2)
        assert rig.data() == b""
        rig.loop.kill(rig.process)
        await asyncio.sleep(TIMEOUT_S)
        with pytest.raises(DfsError, match="no answer"):
            await making
        rig.cluster.heal()
        await asyncio.sleep(1)
        assert rig.data() == b"ab"
        assert rig.data("/late") == b"x"
        assert not any(append.done() for append in appends)

    rig.run(main())


def test_an_append_that_was_given_up_may_land_later(rig: Rig) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        rig.network.cut("a", "b")
        with pytest.raises(DfsError, match="no answer"):
            await writer.append(b"late")
        assert rig.loop.now_s >= TIMEOUT_S
        assert rig.data() == b""
        rig.network.heal()
        await asyncio.sleep(1)
        assert rig.data() == b"late"

    rig.run(main())


def test_an_append_whose_answer_is_lost_landed(rig: Rig) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        rig.network.cut("b", "a", "refused")
        with pytest.raises(DfsError, match="broke"):
            await writer.append(b"there")

    rig.run(main())
    assert rig.data() == b"there"


def test_down_and_full(rig: Rig) -> None:
    async def main() -> None:
        writer = await rig.dfs.create("/s")
        await writer.append(b"x")
        rig.cluster.full = True
        for refused in (rig.dfs.create("/t"), rig.dfs.create_file("/t", b""), wait(writer.append(b"y"))):
            with pytest.raises(DfsError, match="full"):
                await refused
        rig.cluster.heal()
        rig.cluster.down = True
        for refused in (rig.dfs.probe(), rig.other.list("/"), rig.dfs.read("/s")):
            with pytest.raises(DfsError, match="down"):
                await refused
        rig.cluster.heal()
        assert await rig.dfs.read("/s") == b"x"
        rig.cluster.wipe()
        assert await rig.dfs.list("/") == []

    rig.run(main())


def test_what_a_killed_or_paused_writer_had_sent_lands(rig: Rig) -> None:
    rig.network.link("a", "b").base_s = 1.0
    told: list[str] = []

    async def write(path: str) -> None:
        writer = await rig.dfs.create(path)
        await writer.append(b"sent")
        told.append(path)

    async def main() -> None:
        for path in ("/killed", "/paused"):
            rig.process = Process(path)
            rig.dfs = rig.cluster.client(rig.process, "a", "b", rig.network, TIMEOUT_S)
            rig.process.spawn(write(path))
            await asyncio.sleep(1.5)
            (rig.loop.kill if path == "/killed" else rig.loop.pause)(rig.process)
            await asyncio.sleep(5)
            assert rig.data(path) == b"sent"
        assert told == []
        rig.loop.go_on(rig.process)
        await asyncio.sleep(1)
        assert told == ["/paused"]

    rig.run(main())
