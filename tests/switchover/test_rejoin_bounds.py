"""A rejoin of a log of any length: how much of it is in memory, and what a crash at each step leaves."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Any

import pytest

from remote_log.replication.messages import EpochsReply, RowsReply, RowsRequest, pack_history
from remote_log.replication.understanding import Understanding
from storage.clock import SystemClock
from storage.engine import EpochEntry, StoredRow
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.failpoints import Failpoints
from storage.log.frame import Flags, Frame, parse_frame
from storage.log.wal import Wal, WalSettings
from storage.prefix import floor_of, is_prefix
from switchover import rejoin as rejoining
from switchover.other_site import OtherSite
from switchover.quarantine import QUARANTINE
from switchover.rejoin import Rejoin
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame
from tests.storage.log.wal_rig import SMALL, append_all
from tests.switchover.test_rejoin import Sink as PlainSink
from tests.switchover.test_rejoin import started

COMMON = 8  # sequences that both sites have; the active's epoch 2 began behind
FLOOR_SEQ = 12  # of the rows that it gives
HISTORY = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(2, COMMON + 1, COMMON, "b", "takeover")]


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts what the site asks of its ports, and ends the process before or behind the call number `dies_at`."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at, self.count = dies_at, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.dies_at:
            raise Crash


class Files(MemoryFiles):
    """Each change of the disk is a step, before and behind it; so is each part of a file. Parts are no sooner in memory than
    the whole file is there."""

    steps = Steps()

    async def write_parts(self, path: str, parts: AsyncIterable[bytes]) -> None:
        async def stepped() -> AsyncGenerator[bytes, None]:
            async for part in parts:
                self.steps.step()
                yield part

        await super().write_parts(path, stepped())
        self.steps.step()

    async def delete(self, path: str) -> None:
        self.steps.step()
        await super().delete(path)


class Engine(MemoryEngine):
    steps = Steps()

    async def replace_rows(self, *args: Any) -> None:
        self.steps.step()
        await super().replace_rows(*args)
        self.steps.step()

    async def set_meta(self, name: str, value: bytes | None) -> None:
        self.steps.step()
        await super().set_meta(name, value)


class Transport:
    """To an active that has every row as it was at COMMON, and `b` where a later change came."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def call(self, method: str, message: Any, kind: Any, timeout_s: float) -> Any:
        self._steps.step()
        if kind is EpochsReply:
            return EpochsReply(2, COMMON + 1, pack_history(HISTORY), True, 0)
        keys = message["keys"][:3]
        return RowsReply(seq=FLOOR_SEQ, last_timestamp=50, rows=[active_row(key) for _, key in keys])


class Sink(PlainSink):
    def check_rows(self, asked: RowsRequest, reply: RowsReply) -> None:
        """Their form is not in question."""


def active_row(key: bytes) -> tuple[bytes, int] | None:
    return None if key.endswith(b"0") else (b"b", 40)


def diverging(frames: int, value: bytes) -> list[Frame]:
    """Acknowledged by a alone. Of some rows there are several changes."""
    return [
        a_frame(COMMON + 1 + n, previous=COMMON + n, committed=COMMON + n, flags=Flags.ASYNC, value=value)
        for n in range(frames)
    ]


async def site_a(frames: list[Frame], how: WalSettings = SMALL) -> tuple[Files, Engine]:
    files, engine = Files(), Engine()
    files.steps = engine.steps = Steps()
    everything = [started(1, 1), *[a_frame(n, committed=n - 1) for n in range(2, COMMON + 1)], *frames]
    wal = await Wal.open(files, settings=how)
    await wal.start(1, 1)
    await append_all(wal, everything)
    await wal.close()
    await engine.apply(everything)
    return files, engine


async def rejoin(files: Files, engine: Engine, steps: Steps) -> Sink:
    files.steps = engine.steps = steps
    sink = Sink()
    wal = await Wal.open(files, settings=SMALL)
    site: Any = sink
    applier = FrameApplier(engine, SystemClock(), BarrierLimits(), on_refused=lambda name, why: None)
    await Rejoin(
        site="a", peer="b", engine=engine, wal=wal, files=files, sink=site, applier=applier,
        other=OtherSite("b", Transport(steps), "", Understanding(files)), failpoints=Failpoints(),
        clear_wal=wal.clear,
    ).run()
    return sink


async def rows_of(engine: MemoryEngine) -> dict[bytes, bytes]:
    return {row.key: row.value for row in await engine.scan(1, None, None, reverse=False, limit=10_000)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.wal_reading._CHUNK_BYTES", 400)
    monkeypatch.setattr(rejoining, "ROWS_PER_CALL", 5)
    monkeypatch.setattr(rejoining, "REFETCH_ROWS", 6)


@pytest.mark.parametrize("count", [4, 20])
async def test_a_rejoin_that_dies_at_any_step_ends_as_one_that_did_not(count: int) -> None:
    """Rows of one transaction, and of several: a crash never leaves them as what passes for a prefix of a log."""
    frames = diverging(count, b"only at a")
    fetched = {b"k%d" % (COMMON + 1 + n) for n in range(count)}
    dies_at, died, needed_base = 0, True, 0
    while died:
        dies_at += 1
        files, engine = await site_a(frames)
        before = await rows_of(engine)
        try:
            sink, died = await rejoin(files, engine, Steps(dies_at)), False
        except Crash:
            now = await rows_of(engine)
            assert now == before or not is_prefix(engine), f"step {dies_at}: rows of two moments pass for one"
            names = await files.list(QUARANTINE)
            if engine.applied.seq == COMMON or not any(path.startswith("wal/") for path in files.files):
                assert len(names) == 2, f"step {dies_at}: cut, and not in quarantine"
            sink = await rejoin(files, engine, Steps())
        await check_quarantine(files, frames)
        assert engine.applied.seq == COMMON
        assert not [path for path in files.files if path.startswith("wal/")]
        if sink.wants_base:
            needed_base += 1
            continue
        assert floor_of(engine) == FLOOR_SEQ
        expected = {key: b"b" for key in fetched if active_row(key)} | {k: v for k, v in before.items() if k not in fetched}
        assert await rows_of(engine) == expected, f"step {dies_at}"
    assert dies_at > 10
    assert needed_base == (0 if count == 4 else 2), "between the last rows and the note of what they are of"


async def check_quarantine(files: Files, frames: list[Frame]) -> None:
    names = await files.list(QUARANTINE)
    assert [name.rpartition(".")[2] for name in names] == ["frames", "json"]
    data = await files.read(f"{QUARANTINE}/{names[0]}")
    assert data == b"".join(frame.data for frame in frames)
    assert parse_frame(data) == frames[0]
    manifest = json.loads(await files.read(f"{QUARANTINE}/{names[1]}"))
    assert [key["seq"] for key in manifest["keys"]] == [frame.first_seq for frame in frames]
    assert (manifest["frames"], manifest["records"], manifest["last_seq"]) == (len(frames), len(frames), frames[-1].last_seq)


@pytest.fixture
def counts_objects() -> Iterator[None]:
    """Objects that were there before are not looked through: that would take a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def frames_held() -> int:
    return sum(len(each.data) for each in gc.get_objects() if isinstance(each, Frame))


@pytest.mark.usefixtures("counts_objects")
async def test_a_rejoin_holds_a_piece_of_its_log_and_the_rows_of_one_transaction() -> None:
    """A log of 500 MB took 7 GB. What is held is counted whenever the rejoin asks its disk, its storage or the active."""
    held: list[int] = []
    parts: list[int] = []

    class Counted(Steps):
        def step(self) -> None:
            held.append(frames_held())

    class Streaming(Files):
        async def write_parts(self, path: str, parts_of: AsyncIterable[bytes]) -> None:
            async def counted() -> AsyncGenerator[bytes, None]:
                async for part in parts_of:
                    parts.append(len(part))
                    held.append(frames_held())
                    yield part

            await MemoryFiles.write_parts(self, path, counted())

    plain, engine = await site_a(diverging(300, b"v" * 100), WalSettings(segment_bytes=1 << 20))
    files = Streaming()
    files.files = plain.files
    steps = Counted()
    await rejoin(files, engine, steps)
    assert sum(parts) > 50_000
    assert (max(held), max(parts)) < (2_000, 1_500), "of some 60,000 bytes"
    assert engine.applied.seq == COMMON


async def test_the_tail_that_a_crash_took_from_the_storage_is_applied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    files, engine = await site_a([])
    whole = Engine()
    await whole.apply([started(1, 1)])
    whole.steps = engine.steps
    groups: list[int] = []
    apply = whole.apply

    async def counted(frames: Any) -> None:
        groups.append(len(frames))
        await apply(frames)

    monkeypatch.setattr(whole, "apply", counted)
    await rejoin(files, whole, Steps())
    assert (sum(groups), len(groups) > 1) == (COMMON - 1, True)
    assert await rows_of(whole) == await rows_of(engine)
    assert StoredRow in {type(row) for row in await whole.scan(1, None, None, reverse=False, limit=9)}
