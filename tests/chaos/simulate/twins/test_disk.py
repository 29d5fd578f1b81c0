"""The simulated disk: what a process death and a machine death leave, and each fault that can be armed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from chaos.simulate.twins.disk import Landed, SimDisk, SimLogFile
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from storage.log.wal import Wal, WalSettings
from tests.chaos.simulate.on_virtual_loop import run
from tests.storage.log.frames import a_frame
from twinlog.errors import SyncFailed

HEADER = b"H" * 64
SIZE = 4000
SEEDS = range(60)


class Rig:
    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.disk = SimDisk(self.loop, random.Random(seed))
        self.process = Process("first")
        self.files = self.disk.files(self.process)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """In the process that there is now."""
        return run(self.loop, work, self.process)

    def outside(self, work: Coroutine[Any, Any, Any]) -> Any:
        return run(self.loop, work)

    def restart(self, *, power_loss: bool = False, flips: bool = False) -> None:
        self.loop.kill(self.process)
        if power_loss:
            self.disk.power_loss(flips=flips)
        self.process = Process("next")
        self.files = self.disk.files(self.process)

    def content(self) -> bytes:
        data: bytes = self.run(self.files.read("log"))
        assert data[:64] == HEADER
        return data[64:].rstrip(b"\0")

    async def log(self) -> SimLogFile:
        return await self.files.create_log("log", HEADER, SIZE)

    def crash_amid_appends(self, *, power_loss: bool, pieces: int = 6, flips: bool = False) -> tuple[int, int]:
        """Killed at some moment; (how many appends had ended well, how many had been asked for)."""
        ended: list[int] = []
        asked: list[int] = []

        created = asyncio.Event()

        async def write() -> None:
            log = await self.log()
            created.set()
            for n in range(pieces):
                log.append(bytes([n + 1]) * 50).add_done_callback(lambda _, n=n: ended.append(n))  # type: ignore[misc]
                asked.append(n)
                if n % 3 == 2:
                    await asyncio.sleep(0.0003)

        async def main() -> None:
            self.process.spawn(write())
            await created.wait()
            await asyncio.sleep(self.disk.random.random() * 0.0015)

        self.outside(main())
        self.restart(power_loss=power_loss, flips=flips)
        assert ended == list(range(len(ended)))
        return len(ended), len(asked)


def whole(count: int) -> bytes:
    return b"".join(bytes([n + 1]) * 50 for n in range(count))


def test_a_killed_process_leaves_a_prefix_of_what_it_wrote() -> None:
    lengths = set()
    for seed in SEEDS:
        rig = Rig(seed)
        ended, asked = rig.crash_amid_appends(power_loss=False)
        left = rig.content()
        assert whole(asked).startswith(left)
        assert len(left) >= 50 * ended
        lengths.add(len(left) - 50 * ended)
    assert 0 in lengths
    assert any(length % 50 for length in lengths)  # cut short at any byte
    assert max(lengths) >= 50  # written, and nobody was told


def test_a_lost_machine_keeps_what_was_synced_and_any_part_of_each_other_write() -> None:
    holes = torn = kept_more = 0
    for seed in range(200):
        rig = Rig(seed)
        ended, asked = rig.crash_amid_appends(power_loss=True)
        left = rig.content()
        assert left[: 50 * ended] == whole(ended)
        pieces = [left[50 * n : 50 * n + 50].rstrip(b"\0") for n in range(asked)]
        assert all(whole(asked)[50 * n :].startswith(piece) for n, piece in enumerate(pieces))
        unsynced = [len(piece) for piece in pieces[ended:]]
        torn += any(0 < length < 50 for length in unsynced)
        kept_more += 50 in unsynced
        holes += any(one < 50 and other > 0 for one, other in pairwise(unsynced))
    assert min(holes, torn, kept_more) > 5


def test_flips_at_a_power_loss_are_in_what_was_not_synced() -> None:
    flipped = 0
    for seed in range(100):
        rig = Rig(seed)
        ended, asked = rig.crash_amid_appends(power_loss=True, flips=True)
        left = rig.content()
        assert left[: 50 * ended] == whole(ended)
        assert asked == 6 or asked % 3 == 0
        flipped += any(byte not in (0, n // 50 + 1) for n, byte in enumerate(left))
    assert flipped > 5


def test_what_the_operating_system_had_is_durable_some_time_later() -> None:
    lost_early = 0
    for wait_s in (0.0, 31.0):
        for seed in SEEDS:
            rig = Rig(seed)
            rig.crash_amid_appends(power_loss=False)
            before = rig.content()
            rig.outside(asyncio.sleep(wait_s))
            rig.restart(power_loss=True)
            lost_early += rig.content() != before
            assert wait_s == 0.0 or rig.content() == before
    assert lost_early > 3


@pytest.mark.parametrize("landed", ["nothing", "part", "all", "cached"])
def test_a_sync_that_fails(landed: Landed) -> None:
    shares = set()
    for seed in SEEDS:
        rig = Rig(seed)

        async def write(rig: Rig = rig) -> None:
            log = await rig.log()
            await log.append(b"good")
            rig.disk.fail_syncs(1, landed)
            for data in (b"failed", b"later"):
                with pytest.raises(SyncFailed):
                    await log.append(data)
            await log.close()

        rig.run(write())
        seen = rig.content()
        rig.restart(power_loss=True)
        left = rig.content()
        assert b"goodfailed".startswith(left)
        assert left.startswith(b"good")
        assert seen == (b"goodfailed" if landed == "cached" else left)
        shares.add(len(left) - 4)
    assert shares == {"nothing": {0}, "all": {6}}.get(landed, set(range(7)))


def test_a_hung_disk_goes_on_when_it_is_healed() -> None:
    rig = Rig()

    async def write() -> None:
        log = await rig.log()
        rig.disk.hang()
        appends = [log.append(b"x"), log.append(b"y")]
        reading = asyncio.ensure_future(rig.files.list(""))
        await asyncio.sleep(100)
        assert not any(each.done() for each in (*appends, reading))
        rig.disk.heal()
        await asyncio.gather(*appends, reading)
        assert rig.loop.now_s < 101

    rig.run(write())
    assert rig.content() == b"xy"


def test_a_slow_disk() -> None:
    rig = Rig()

    async def write() -> None:
        log = await rig.log()
        rig.disk.slow = 1000.0
        before_s = rig.loop.now_s
        await log.append(b"x")
        assert rig.loop.now_s - before_s > 0.1

    rig.run(write())


def test_a_full_disk_takes_what_was_allocated_and_nothing_else() -> None:
    rig = Rig()

    async def write() -> None:
        await rig.files.write_new("x", b"old")
        log = await rig.log()
        rig.disk.full = True
        await log.append(b"x" * 3000)
        with pytest.raises(SyncFailed, match="disk full"):
            await log.append(b"y" * 1000)
        for refused in (rig.files.create_log("b", HEADER, 100), rig.files.write_new("x", b"new")):
            with pytest.raises(SyncFailed, match="disk full"):
                await refused
        assert await rig.files.list("") == ["log", "x"]
        assert await rig.files.read("x") == b"old"
        await rig.files.delete("x")
        rig.disk.heal()
        await (await rig.files.create_log("b", HEADER, 100)).append(b"again")
        with pytest.raises(SyncFailed):
            await log.append(b"z")  # what failed once stays so

    rig.run(write())
    assert rig.content() == b"x" * 3000


def test_a_change_that_fails_has_not_happened() -> None:
    rig = Rig()

    async def change() -> None:
        await rig.files.write_new("x", b"old")
        rig.disk.fail_changes(3)
        for failing in (rig.files.write_new("x", b"new"), rig.files.delete("x"), rig.files.rename("x", "y")):
            with pytest.raises(SyncFailed):
                await failing
        assert await rig.files.read("x") == b"old"
        await rig.files.rename("x", "y")
        assert await rig.files.list("") == ["y"]

    rig.run(change())


def test_a_crash_amid_changes_leaves_each_done_or_not_in_their_order() -> None:
    left_behind = set()
    for seed in range(200):
        rig = Rig(seed)

        async def change(rig: Rig = rig) -> None:
            await rig.files.write_new("x", b"old")
            await rig.files.write_new("x", b"new!")
            await rig.files.rename("x", "y")
            await rig.files.create_log("z", HEADER, 100)
            await rig.files.delete("y")

        async def main(rig: Rig = rig) -> None:
            rig.process.spawn(rig_change := change(rig))
            await asyncio.sleep(rig.disk.random.random() * 0.008)
            del rig_change

        rig.outside(main())
        rig.restart(power_loss=bool(seed % 2))
        names = rig.run(rig.files.list(""))
        for name in ("x", "y"):
            if name in names:
                assert rig.run(rig.files.read(name)) in ((b"old", b"new!") if name == "x" else (b"new!",))
        if "z" in names:
            assert HEADER.startswith(rig.run(rig.files.read("z")).rstrip(b"\0"))
        left_behind.add(tuple(name if name != "z" else f"z{rig.run(rig.files.size('z')) == 100}" for name in names))
    assert {(), ("x",), ("x", "x.new"), ("x.new",), ("y",), ("y", "zTrue"), ("y", "zFalse"), ("zTrue",)} <= left_behind
    assert not {names for names in left_behind if "x" in names and "y" in names}


def test_what_a_killed_process_had_not_begun_never_happens() -> None:
    rig = Rig()

    async def change(name: str) -> None:
        await rig.files.write_new(name, b"x")

    async def main() -> None:
        for name in ("begun", "waiting", "last"):
            rig.process.spawn(change(name))
        await asyncio.sleep(0)
        rig.loop.kill(rig.process)
        await asyncio.sleep(10)

    rig.outside(main())
    assert set(rig.disk.stored) == {"begun"}


def test_a_paused_process_syncs_what_was_written_and_writes_no_more() -> None:
    rig = Rig()
    ended: list[str] = []

    async def write() -> None:
        log = await rig.log()
        log.append(b"written").add_done_callback(lambda _: ended.append("written"))
        log.append(b"queued").add_done_callback(lambda _: ended.append("queued"))
        rig.loop.pause(rig.process)
        await asyncio.sleep(0)

    async def main() -> None:
        writing = rig.process.spawn(write())
        await asyncio.sleep(10)
        assert ended == []
        assert rig.disk.stored["log"].data[64:] == b"written"
        assert rig.disk.stored["log"].unsynced == []
        rig.loop.go_on(rig.process)
        await writing
        await asyncio.sleep(1)

    rig.outside(main())
    assert ended == ["written", "queued"]
    assert rig.content() == b"writtenqueued"


def test_a_bit_of_a_closed_or_an_open_log_is_turned() -> None:
    rig = Rig()

    async def write() -> None:
        assert rig.disk.flip_bit(closed=True) is None
        closed = await rig.files.create_log("closed", HEADER, 500)
        await closed.append(b"x" * 100)
        await closed.close()
        opened = await rig.files.create_log("open", HEADER, 500)
        await opened.append(b"y" * 100)
        await rig.files.write_new("note", b"n")
        before = {name: await rig.files.read(name) for name in ("closed", "open", "note")}
        for name in ("closed", "open"):
            turned = rig.disk.flip_bit(closed=name == "closed")
            assert turned is not None
            after = {each: await rig.files.read(each) for each in before}
            assert [each for each in before if after[each] != before[each]] == [name]
            assert turned[0] == name
            assert turned[1] < 164
            assert (after[name][turned[1]] ^ before[name][turned[1]]).bit_count() == 1
            before = after

    rig.run(write())


def test_a_wiped_disk_is_empty() -> None:
    rig = Rig()
    rig.run(rig.files.write_new("x", b"1"))
    rig.loop.kill(rig.process)
    rig.disk.wipe()
    rig.restart()
    assert rig.run(rig.files.list("")) == []


class WalLives:
    """The product's own log over many lives on one disk. `acknowledged`: every sequence whose append ended well."""

    def __init__(self, seed: int, write_back_s: float) -> None:
        self.rig = Rig(seed)
        self.rig.disk.write_back_s = write_back_s
        self.acknowledged: set[int] = set()

    def live(self, epoch: int) -> None:
        rig = self.rig
        wal = rig.run(Wal.open(rig.files, settings=WalSettings(segment_bytes=600)))
        held = [frame.last_seq for frame in rig.run(wal.read_all())]
        assert held == list(range(1, len(held) + 1))
        assert self.acknowledged <= set(held)
        rig.outside(self._until_killed(wal, epoch, len(held) + 1))
        rig.restart(power_loss=rig.disk.random.random() < 0.5, flips=True)

    async def _until_killed(self, wal: Wal, epoch: int, begin: int) -> None:
        writing = self.rig.process.spawn(self._write(wal, epoch, begin))
        await asyncio.sleep(self.rig.disk.random.random() * 0.02)
        assert not writing.done()

    async def _write(self, wal: Wal, epoch: int, begin: int) -> None:
        await wal.start(epoch, begin)
        for seq in range(begin, begin + 1000):
            appended = wal.append(a_frame(seq, epoch=epoch, committed=max(self.acknowledged, default=0)))
            appended.add_done_callback(lambda done, seq=seq: self.acknowledged.add(seq))  # type: ignore[misc]
            if seq % 4 == 0:
                await asyncio.sleep(0.0004)


def live_through(lives: WalLives) -> int:
    for epoch in range(1, 6):
        lives.live(epoch)
    return len(lives.acknowledged)


def test_a_wal_on_it_keeps_what_it_acknowledged_through_any_crash() -> None:
    assert max(live_through(WalLives(seed, write_back_s=0.0)) for seed in range(40)) > 100


def test_a_wal_on_it_keeps_what_it_built_upon_when_the_machine_is_lost_after_the_process() -> None:
    for seed in range(40):
        live_through(WalLives(seed, write_back_s=30.0))
