"""Frames applied through barriers: what is kept where, whatever the grouping, and what is not kept when it would be wrong."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.servers.janitor import own_prefix
from storage.clock import Clock
from storage.engine import StorageEngine
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.frame import COUNTER_BITS, Flags, Frame
from storage.log.record import Record, RecordKind
from storage.prefix import BASE_WANTED, FLOOR
from tests.storage.engines.engine_rig import Log, delete, noop, put_table, update, upsert, value
from tests.storage.engines.kept_reading import Content, content_of, read_kept
from twinlog.errors import EngineFailed, LogError

R = TypeVar("R")
KEYS = (b"a", b"b", b"b\x00", b"c")
rows = st.one_of(
    st.builds(upsert, st.sampled_from(KEYS), st.integers(0, 9).map(lambda n: value(c1=n))),
    st.builds(update, st.sampled_from(KEYS), st.integers(0, 9).map(lambda n: value(c2=n))),
    st.builds(delete, st.sampled_from(KEYS)),
)



class At(Clock):
    """Stands still at `now_ms`."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(0)


def barrier(log: Log, name: str, *before: Record) -> Frame:
    return log.frame(*before, Record(RecordKind.BARRIER, key=name.encode()), flags=int(Flags.BARRIER))


class Site:
    """An engine that frames go into, with a clock at the log's own time."""

    def __init__(self, engine: StorageEngine, log: Log, **limits: float) -> None:
        self.engine, self.clock = engine, At(log.timestamp >> COUNTER_BITS)
        self.refused: list[tuple[str, str]] = []
        kept_max, kept_s = int(limits.get("kept_max", 4)), limits.get("kept_s", 60.0)
        self.applier = FrameApplier(
            engine, self.clock, BarrierLimits(kept_max, kept_s), on_refused=lambda name, why: self.refused.append((name, why))
        )

    @property
    def held(self) -> list[tuple[str, int]]:
        return [(kept.name, kept.seq) for kept in self.engine.kept_snapshots()]


async def content_up_to(frames: Sequence[Frame], end: int) -> Content:
    """Returns what a storage holds that applied one frame after the other, and knows of no barrier."""
    engine = MemoryEngine()
    for frame in frames:
        if frame.last_seq <= end:
            await engine.apply([frame])
    return await content_of(engine)


async def in_groups(site: Site, frames: Sequence[Frame], cuts: list[int]) -> None:
    edges = [0, *sorted({cut % (len(frames) + 1) for cut in cuts}), len(frames)]
    for begin, end in pairwise(edges):
        await site.applier.apply(frames[begin:end])


async def engine_of(kind: str, folder: Path) -> StorageEngine:
    if kind == "rocks":
        return await RocksEngine.open(folder / "rocks", RocksSettings(inline_records_max=3))
    if kind == "sqlite":
        (folder / "sqlite").mkdir()
        return await SqlEngine.open(SqlSettings(f"sqlite:///{folder}/sqlite/rows.db", "test", "a"))
    return MemoryEngine()


def run(work: Awaitable[R]) -> R:
    async def wait() -> R:
        return await work

    return asyncio.run(wait())


groups = st.tuples(st.lists(rows, min_size=1, max_size=4), st.sampled_from([False, False, True]))
groupings = st.lists(st.integers(0, 20), max_size=6)
engines = st.sampled_from(["memory", "rocks", "sqlite"])


@settings(max_examples=25, deadline=None)
@given(
    made=st.lists(groups, min_size=1, max_size=12), cuts=st.tuples(groupings, groupings), kinds=st.tuples(engines, engines),
    again=st.integers(0, 3),
)
def test_two_sites_keep_the_same_whatever_the_grouping(
    made: list[tuple[list[Record], bool]], cuts: tuple[list[int], list[int]], kinds: tuple[str, str], again: int
) -> None:
    """And it is what the log says up to there; writes go on behind it, and some frames come twice."""
    log = Log()
    frames = [log.frame(put_table())]
    for number, (records, flagged) in enumerate(made):
        frames.append(barrier(log, f"n{number}", *records) if flagged else log.frame(*records))
    frames.append(log.frame(*(delete(key) for key in KEYS)))
    ends = {f"n{n}": frame.last_seq for n, frame in enumerate(frames[1:-1]) if frame.flags & Flags.BARRIER}

    async def check() -> None:
        kept = []
        for kind, where in zip(kinds, cuts, strict=True):
            folder = Path(tempfile.mkdtemp(prefix=own_prefix("barriers")))
            site = Site(await engine_of(kind, folder), log, kept_max=64)
            try:
                await in_groups(site, frames, where)
                await site.applier.apply(frames[len(frames) - again :])
                assert dict(site.held) == ends
                kept.append({name: await read_kept(site.engine, name) for name in ends})
            finally:
                await site.engine.close()
                shutil.rmtree(folder)
        assert kept[0] == kept[1]
        for name, end in ends.items():
            assert kept[0][name] == await content_up_to(frames, end)

    run(check())


async def test_a_replay_keeps_it_too() -> None:
    log = Log()
    frames = [log.frame(put_table(), upsert(b"a", value(c1=1))), barrier(log, "x"), log.frame(delete(b"a"))]
    site = Site(MemoryEngine(), log)
    await site.applier.replay(frames)
    assert site.held == [("x", frames[1].last_seq)]
    assert await read_kept(site.engine, "x") == await content_up_to(frames, frames[1].last_seq)


async def test_a_barrier_record_without_the_flag_keeps_nothing() -> None:
    """That of a canary, or of a release before."""
    log = Log()
    site = Site(MemoryEngine(), log)
    await site.applier.apply([log.frame(Record(RecordKind.BARRIER, key=b"canary-3"))])
    assert site.held == []


async def test_a_flag_without_a_barrier_is_an_error() -> None:
    log = Log()
    site = Site(MemoryEngine(), log)
    with pytest.raises(LogError, match="flagged as a barrier"):
        await site.applier.apply([log.frame(noop(), flags=int(Flags.BARRIER))])


async def test_the_oldest_goes_when_there_are_too_many() -> None:
    log = Log()
    site = Site(MemoryEngine(), log, kept_max=2)
    for name in "abcd":
        log.timestamp += 1 << COUNTER_BITS
        await site.applier.apply([barrier(log, name)])
    assert [name for name, _ in site.held] == ["c", "d"]
    await site.applier.apply([barrier(log, "c")])  # the same name again takes no other one's place
    assert {name for name, _ in site.held} == {"c", "d"}


async def test_each_is_let_go_when_its_time_is_over() -> None:
    log = Log()
    site = Site(MemoryEngine(), log, kept_s=10)
    await site.applier.apply([barrier(log, "old")])
    log.timestamp += 4000 << COUNTER_BITS
    site.clock.now_ms += 4000
    await site.applier.apply([barrier(log, "new")])
    site.clock.now_ms += 5999
    await site.applier.expire()
    assert [name for name, _ in site.held] == ["old", "new"]
    site.clock.now_ms += 1
    await site.applier.expire()
    assert [name for name, _ in site.held] == ["new"]


async def test_what_is_over_already_is_not_kept_by_a_replay() -> None:
    """A standby that was away for a day meets every barrier of that day."""
    log = Log()
    site = Site(MemoryEngine(), log, kept_s=10)
    site.clock.now_ms += 10_000
    await site.applier.replay([barrier(log, "old"), log.frame(put_table())])
    assert site.held == []
    assert [name for name, _ in site.refused] == ["old"]
    assert site.engine.applied.seq == log.seq


async def test_a_storage_that_is_no_prefix_keeps_nothing() -> None:
    """Below the floor some rows are later than others, and while base data is wanted nothing is known of any."""
    log = Log()
    site = Site(MemoryEngine(), log)
    await site.engine.set_meta(FLOOR, b"3")
    await site.applier.apply([log.frame(put_table()), barrier(log, "early"), barrier(log, "there")])
    assert site.held == [("there", 3)]
    await site.engine.set_meta(BASE_WANTED, b"1")
    await site.applier.apply([barrier(log, "unknown")])
    assert site.held == [("there", 3)]
    assert [name for name, _ in site.refused] == ["early", "unknown"]


async def test_a_snapshot_that_cannot_be_kept_stops_nothing() -> None:
    class Full(MemoryEngine):
        async def keep_snapshot(self, name: str, taken_ms: int) -> None:
            raise EngineFailed("no room")

    log = Log()
    site = Site(Full(), log)
    await site.applier.apply([log.frame(put_table()), barrier(log, "x"), log.frame(upsert(b"a", value(c1=1)))])
    assert site.refused == [("x", "no room")]
    assert site.engine.applied.seq == log.seq


async def test_what_a_rejoin_cuts_is_forgotten() -> None:
    log = Log()
    site = Site(MemoryEngine(), log)
    await site.applier.apply([barrier(log, "shared"), barrier(log, "cut")])
    await site.engine.replace_rows([], 1, 1, log.timestamp)
    await site.applier.forget_after(1)
    assert site.held == [("shared", 1)]


@pytest.mark.parametrize("kept", [False, True])
async def test_a_crash_around_the_keeping_leaves_it_exact_or_not_held(tmp_path: Path, kept: bool) -> None:
    """Between the apply and the snapshot, and behind both; the log is replayed from where the storage stands."""
    log = Log()
    frames = [log.frame(put_table(), upsert(b"a", value(c1=1))), barrier(log, "x", upsert(b"b", value(c1=2)))]
    later = log.frame(delete(b"a"))
    first = Site(await RocksEngine.open(tmp_path / "0", RocksSettings()), log)
    await first.engine.apply(frames[:1])
    await first.engine.flush()
    await (first.applier if kept else first.engine).apply(frames[1:])
    shutil.copytree(tmp_path / "0", tmp_path / "1")  # what a process leaves that is killed here
    await first.engine.close()
    second = Site(await RocksEngine.open(tmp_path / "1", RocksSettings()), log)
    assert second.held == ([("x", frames[1].last_seq)] if kept else [])
    left = [frame for frame in [*frames, later] if frame.last_seq > second.engine.applied.seq]
    await second.applier.apply(left)
    assert second.held == [("x", frames[1].last_seq)]
    assert await read_kept(second.engine, "x") == await content_up_to(frames, frames[1].last_seq)
    await second.engine.close()


async def test_the_half_made_are_removed_at_the_next_start(tmp_path: Path) -> None:
    log = Log()
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await Site(engine, log).applier.apply([log.frame(put_table()), barrier(log, "whole"), barrier(log, "hollow")])
    await engine.close()
    folder = tmp_path / "kept"
    (folder / "whole").rename(folder / "again")  # a folder says itself what it is of, but its name is its own
    shutil.copytree(folder / "again", folder / ".again.part")  # all but its name
    (folder / "hollow" / "about").write_bytes(b"\x93")
    for name in (".x.part", ".y.gone"):
        (folder / name / "rocksdb").mkdir(parents=True)
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    assert [kept.name for kept in engine.kept_snapshots()] == ["again"]
    assert [path.name for path in folder.iterdir()] == ["again"]
    await engine.release_snapshot("again")
    assert list(folder.iterdir()) == []
    await engine.close()


async def test_the_room_that_is_only_for_a_snapshot_is_counted(tmp_path: Path) -> None:
    log = Log()
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    site = Site(engine, log)
    big = [upsert(b"%d" % n, value(c1=f"{n:050}")) for n in range(5000)]
    await site.applier.apply([log.frame(put_table(), *big), barrier(log, "x"), log.frame(*(delete(one.key) for one in big))])
    await engine.flush()
    shared = engine.counters()["kept_bytes"]
    engine._database.compact_range(None, None)
    await engine.apply([log.frame(noop())])
    await engine.flush()
    assert engine.counters()["kept_bytes"] > shared + 20_000, "nothing but the snapshot holds the rows now"
    await engine.release_snapshot("x")
    assert engine.counters()["kept_bytes"] == 0
    await engine.close()


