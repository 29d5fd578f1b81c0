"""Tests of what only the RocksDB engine has: threads, write stalls, folders that cannot be opened, damage, large purges."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from rocksdict import Options, Rdict

from storage.engine import StoredRow
from storage.engines.memory.engine import MemoryEngine
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.layout import Range
from storage.engines.rocks.opening import Notes, RocksSettings
from storage.log.frame import COUNTER_BITS, Frame
from tests.storage.engines.engine_rig import SECOND, Log, T, noop, put_table, request, scan, schema_of, update, upsert, value
from twinlog.errors import DataDirectoryError, EngineFailed

DAY_MS = 24 * 3600 * 1000
TINY = RocksSettings(write_buffer_bytes=64 << 10, write_buffers_max=2, block_cache_bytes=1 << 20)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RocksEngine]:
    made = await RocksEngine.open(tmp_path / "engine", RocksSettings())
    yield made
    await made.close()


def many(log: Log, frames: int, records: int) -> list[Frame]:
    """Frames of rows with large values, no row twice."""
    return [
        log.frame(*(upsert(b"%d-%d" % (log.seq, number), value(c1="x" * 400)) for number in range(records)))
        for _ in range(frames)
    ]


@pytest.mark.parametrize("inline_max", [1 << 20, 0], ids=["inline", "in threads"])
async def test_a_stalled_write_is_repeated_in_a_thread(tmp_path: Path, inline_max: int) -> None:
    class Counting(RocksEngine):
        stalls = 0

        def _write(self, ranges: Iterable[Range], entries: Iterable[tuple[bytes, bytes | None]]) -> bool:
            done = super()._write(ranges, entries)
            Counting.stalls += not done
            return done

    engine = await Counting.open(tmp_path, replace(TINY, inline_records_max=inline_max))
    log = Log()
    for frame in many(log, 200, 100):
        await engine.apply([frame])
    assert Counting.stalls > 0, "nothing stalled, so nothing was tested"
    assert len(await scan(engine, limit=100_000)) == 20_000
    assert engine.applied.seq == 20_000
    await engine.close()


async def test_a_move_that_the_database_holds_back_is_made_all_the_same(tmp_path: Path) -> None:
    class Stalling(RocksEngine):
        stalls = 0

        def _write(self, ranges: Iterable[Range], entries: Iterable[tuple[bytes, bytes | None]]) -> bool:
            if Stalling.stalls:
                Stalling.stalls -= 1
                return False
            return super()._write(ranges, entries)

    engine = await Stalling.open(tmp_path, TINY)
    for part, is_first in ((b"1", True), (b"2", False)):
        Stalling.stalls = 2
        await engine.load_base([(T, StoredRow(part, value(c1=1), 5))], [], part, is_first, {T: schema_of(T)})
        assert (Stalling.stalls, engine.applied.base) == (0, part)
    assert [found.key for found in await engine.scan(T, None, None, reverse=False, limit=9)] == [b"1", b"2"]
    await engine.close()


async def test_everything_at_once(tmp_path: Path) -> None:
    """Applies, flushes, purges, scans and snapshots in between each other change nothing of what is applied."""
    engine = await RocksEngine.open(tmp_path, replace(TINY, inline_records_max=20))
    twin, log, done = MemoryEngine(), Log(), asyncio.Event()
    frames = [log.frame(put_table(history_s=1))]
    for round_ in range(400):
        log.timestamp += SECOND
        size = 1 + round_ % 40
        rows = [
            upsert(b"%d" % (number % 7), value(c1=round_, c3="x" * 50), request=request(f"{number % 3}"))
            for number in range(size)
        ]
        frames.append(log.frame(*rows, update(b"1", value(c2=round_))))

    async def apply() -> None:
        for frame in frames:
            await engine.apply([frame])
            await asyncio.sleep(0)
        done.set()

    async def flush() -> None:
        while not done.is_set():
            before = engine.applied.seq
            assert before <= await engine.flush() <= engine.applied.seq

    async def purge() -> None:
        while not done.is_set():
            await engine.purge((engine.applied.timestamp >> COUNTER_BITS) + DAY_MS)

    async def read() -> None:
        while not done.is_set():
            snapshot = await engine.snapshot()
            first = await snapshot.scan(T, None, None, reverse=False, limit=9)
            await scan(engine, as_of=engine.applied.timestamp - SECOND)
            assert await snapshot.scan(T, None, None, reverse=False, limit=9) == first
            snapshot.close()

    await asyncio.gather(apply(), flush(), purge(), read())
    await twin.apply(frames)
    end_ms = (log.timestamp >> COUNTER_BITS) + DAY_MS
    await engine.purge(end_ms)
    await twin.purge(end_ms)
    assert await scan(engine) == await scan(twin)
    for key in range(3):
        assert await engine.request_outcome(f"{key}") == await twin.request_outcome(f"{key}")
    await engine.close()


async def test_a_purge_never_takes_an_outcome_that_is_being_replaced(tmp_path: Path) -> None:
    class Held(RocksEngine):
        entered, go = threading.Event(), threading.Event()

        def _write(self, ranges: Iterable[Range], entries: Iterable[tuple[bytes, bytes | None]]) -> bool:
            entries = list(entries)
            if threading.current_thread().name == "rocks-read" and entries:
                self.entered.set()
                assert self.go.wait(120)
            return super()._write(ranges, entries)

    engine = await Held.open(tmp_path, RocksSettings())
    log = Log()
    await engine.apply([log.frame(upsert(b"k", value(c1=1), request=request("r")))])
    purge = asyncio.create_task(engine.purge((log.timestamp >> COUNTER_BITS) + DAY_MS + 1))
    await asyncio.to_thread(engine.entered.wait, 20)
    again = log.frame(upsert(b"k", value(c1=2), request=request("r")))
    apply = asyncio.create_task(engine.apply([again]))
    await asyncio.sleep(0)
    engine.go.set()
    await asyncio.gather(purge, apply)
    outcome = await engine.request_outcome("r")
    assert outcome is not None
    assert outcome.seq == again.last_seq
    await engine.close()


async def test_a_flush_counts_only_what_came_before_it(engine: RocksEngine) -> None:
    log = Log()
    await engine.apply([log.frame(noop())])
    late = log.frame(upsert(b"late", value(c1=1)))

    class ApplyAfterFlush:
        def __init__(self, database: Rdict) -> None:
            self._database = database

        def flush(self, wait: bool) -> None:
            self._database.flush(wait)
            assert engine._apply_inline([late])

        def __getattr__(self, name: str) -> object:
            return getattr(self._database, name)

    database, engine._database = engine._database, ApplyAfterFlush(engine._database)  # type: ignore[assignment]
    assert (await engine.flush(), engine.durable_seq, engine.applied.seq) == (1, 1, 2)
    engine._database = database
    assert await engine.flush() == 2


async def test_a_cancelled_apply_is_done_all_the_same(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings(inline_records_max=0))
    task = asyncio.create_task(engine.apply(many(Log(), 20, 100)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.close()
    assert engine.applied.seq == 2000
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    assert engine.applied.seq == 2000
    await engine.close()


async def test_two_applies_at_a_time_are_a_mistake(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings(inline_records_max=0))
    log = Log()
    first, second = log.frame(noop()), log.frame(noop())
    results = await asyncio.gather(engine.apply([first]), engine.apply([first, second]), return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], AssertionError)
    await engine.apply([first, second])
    assert engine.applied.seq == 2
    await engine.close()


async def test_large_purges(engine: RocksEngine) -> None:
    """More than one part of history and of outcomes."""
    log = Log()
    await engine.apply([log.frame(put_table(history_s=1))])
    rounds = []
    for round_ in range(12):
        rows = [upsert(b"%d" % n, value(c1=round_), request=request(f"{round_} {n}")) for n in range(1000)]
        await engine.apply([log.frame(*rows)])
        rounds.append(log.timestamp)
    assert len(await scan(engine, as_of=rounds[0], limit=5000)) == 1000
    await engine.purge((log.timestamp >> COUNTER_BITS) + DAY_MS + 1)
    assert await scan(engine, as_of=rounds[0], limit=5000) == {}
    assert all([await engine.request_outcome(f"{round_} {n}") is None for round_ in range(12) for n in range(1000)])
    assert len(await scan(engine, limit=5000)) == 1000


async def test_a_snapshot_is_of_the_moment_of_its_call(engine: RocksEngine) -> None:
    """Not of when the reading thread has finished an earlier, long scan."""
    log = Log()
    await engine.apply(many(log, 10, 1000))
    long = asyncio.ensure_future(scan(engine, limit=100_000))
    await asyncio.sleep(0)
    snapshot = await engine.snapshot()
    await engine.apply([log.frame(upsert(b"late", value(c1=1)))])
    assert len(await long) in (10_000, 10_001)
    assert (snapshot.seq, len(await snapshot.scan(T, None, None, reverse=False, limit=100_000))) == (10_000, 10_000)


async def test_a_folder_that_is_open_already(engine: RocksEngine, tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="has it open"):
        await RocksEngine.open(tmp_path / "engine", RocksSettings())


async def test_a_folder_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "rocksdb").mkdir()
    (tmp_path / "rocksdb" / "letter.txt").write_text("mine")
    with pytest.raises(DataDirectoryError, match="another data directory"):
        await RocksEngine.open(tmp_path, RocksSettings())
    assert [path.name for path in (tmp_path / "rocksdb").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("found", [{b"\x00format": b"999"}, {b"a": b"b"}], ids=["newer", "foreign"])
async def test_a_database_of_another_format(tmp_path: Path, found: dict[bytes, bytes]) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path / "rocksdb"), options)
    for key, content in found.items():
        database.put(key, content)
    database.close()
    for _ in range(2):  # the second time too: nothing was left open
        with pytest.raises(DataDirectoryError, match="format"):
            await RocksEngine.open(tmp_path, RocksSettings())


async def test_a_database_whose_making_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "rocksdb").mkdir()
    for name in ("LOCK", "LOG", "IDENTITY", "000001.dbtmp"):
        (tmp_path / "rocksdb" / name).touch()
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.apply([Log().frame(noop())])
    await engine.close()


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "*.sst"])
async def test_a_lost_file_is_damage(tmp_path: Path, pattern: str) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.apply([Log().frame(noop())])
    await engine.close()
    for path in (tmp_path / "rocksdb").glob(pattern):
        path.unlink()
    with pytest.raises(DataDirectoryError, match=r"damaged|whole|file system"):
        await RocksEngine.open(tmp_path, RocksSettings())


async def test_damaged_notes(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.set_meta("role", b"active")
    await engine.close()
    (tmp_path / "notes").write_bytes(b"\xff")
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="notes"):
            await RocksEngine.open(tmp_path, RocksSettings())


async def test_a_damaged_block_at_the_opening_is_no_lock(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.apply(many(Log(), 10, 200))
    await engine.close()
    for table in (tmp_path / "rocksdb").glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[10] ^= 1
        table.write_bytes(content)
    with pytest.raises(DataDirectoryError, match=r"cannot be opened: the database is damaged; move it away.*block checksum"):
        await RocksEngine.open(tmp_path, RocksSettings())


def test_a_bit_of_the_notes_that_has_turned_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    Notes(path).put("floor", b"17")
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        path.write_bytes(turned)
        with pytest.raises(DataDirectoryError, match="notes"):
            Notes(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataDirectoryError, match="notes"):
            Notes(path)


def test_notes_of_before_they_were_sealed_are_read_and_sealed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(msgspec.msgpack.encode({"floor": b"17"}))
    notes = Notes(path)
    assert notes.get("floor") == b"17"
    notes.put("pinned", b"1")
    assert path.read_bytes().startswith(b'{"crc32c":')
    assert (Notes(path).get("floor"), Notes(path).get("pinned")) == (b"17", b"1")


async def test_a_damaged_block_is_an_error_and_no_short_answer(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.apply(many(Log(), 10, 200))
    await engine.close()
    table = max((tmp_path / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    table.write_bytes(content)
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    for reverse in (False, True):
        with pytest.raises(EngineFailed, match="orruption"):
            await scan(engine, limit=100_000, reverse=reverse)
    with pytest.raises(EngineFailed) as kept:
        await scan(engine, limit=100_000)
    await engine.close()
    engine = await RocksEngine.open(tmp_path, RocksSettings())  # whoever keeps the error does not keep the folder
    assert kept.value.__cause__ is not None
    await engine.close()


async def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    await engine.close()
    with pytest.raises(EngineFailed, match="closed"):
        await engine.get(T, b"k")


async def test_a_snapshot_left_open_does_not_keep_the_folder(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    snapshot = await engine.snapshot()
    await engine.close()
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    assert snapshot.seq == 0
    await engine.close()


@pytest.mark.parametrize("anew", [False, True], ids=["closed and opened", "opened anew"])
async def test_the_kept_error_of_a_read_that_was_given_up_does_not_keep_the_folder(tmp_path: Path, anew: bool) -> None:
    engine, free = await RocksEngine.open(tmp_path, RocksSettings()), threading.Event()
    await engine.apply(many(Log(), 2, 10))
    snapshot = await engine.snapshot()
    engine._reader.submit(free.wait)
    reading = asyncio.ensure_future(snapshot.scan(T, None, None, reverse=False, limit=10))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError) as kept:
        await reading
    free.set()
    if anew:
        await engine.reopen()
    else:
        await engine.close()
        engine = await RocksEngine.open(tmp_path, RocksSettings())
    assert kept.traceback
    assert len(await scan(engine, limit=100)) == 20
    await engine.close()


class Closing:
    """A database whose close takes its time: rocksdict refuses every look at one then."""

    def __init__(self, database: Rdict) -> None:
        self.database, self.begun, self.free = database, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)

    def property_int_value(self, key: str) -> int | None:
        if self.begun.is_set():
            raise RuntimeError("Already mutably borrowed")
        return self.database.property_int_value(key)

    def close(self) -> None:
        self.begun.set()
        self.free.wait()
        self.database.close()


@pytest.mark.parametrize("anew", [True, False])
async def test_figures_can_be_asked_for_while_the_database_is_being_closed(tmp_path: Path, anew: bool) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    closing = Closing(engine._database)
    engine._database = cast(Rdict, closing)
    assert "disk_bytes" in engine.counters()
    ending = asyncio.ensure_future(engine.reopen() if anew else engine.close())
    await asyncio.to_thread(closing.begun.wait)
    assert engine.counters() == {"kept_bytes": 0}
    closing.free.set()
    await ending
    assert ("disk_bytes" in engine.counters()) == anew
    await engine.close()


async def test_memtables_stay_within_their_bound(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, TINY)
    log = Log()
    for _ in range(8):
        for frame in many(log, 20, 100):
            await engine.apply([frame])
    counters = engine.counters()
    assert 0 < counters["memtable_bytes"] < 4 * (64 << 10) + 100 * 600
    assert counters["disk_bytes"] > 0
    await engine.close()


async def test_blocks_of_files_that_were_merged_stay_within_the_bound_of_the_cache(tmp_path: Path) -> None:
    """Each flush leaves some in the cache, and nobody reads them again: a process grows by them until the cache is full."""
    settings = replace(TINY, block_cache_bytes=256 << 10)
    engine = await RocksEngine.open(tmp_path, settings)
    log, seen = Log(), []
    for _ in range(120):
        for frame in many(log, 3, 100):
            await engine.apply([frame])
        await engine.flush()
        seen.append(engine.counters()["cache_bytes"])
    await engine.close()
    assert max(seen) <= settings.block_cache_bytes
    assert max(seen) > settings.block_cache_bytes / 2
