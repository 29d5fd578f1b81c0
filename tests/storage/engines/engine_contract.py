"""The contract of storage engines for frames and reads, as tests over a `Rig`. A new engine gets a rig in test_engines.py.

Source: storage/engine.py, protocol.md 3 and 4.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from storage.engine import EngineState, EpochEntry, RequestOutcome, StoredRow
from storage.log.frame import make_frame, parse_frame
from storage.log.record import Record, RecordKind
from tests.storage.engines.engine_rig import (
    SECOND,
    TRICKY,
    Log,
    Rig,
    T,
    delete,
    drop_table,
    keys,
    noop,
    put_table,
    request,
    scan,
    schema_of,
    start_epoch,
    update,
    upsert,
    value,
)
from twinlog.errors import EngineFailed, LogError, LogGap


def facts(state: EngineState) -> tuple[object, ...]:
    return state.seq, state.epoch, state.timestamp, state.base, state.schemas(), state.epochs


class EngineContract:
    """Collected through a subclass that provides the fixture `rig`."""

    async def test_a_new_engine_is_empty(self, rig: Rig) -> None:
        engine = rig.engine
        assert (engine.applied.seq, engine.applied.epoch, engine.durable_seq, engine.applied.timestamp) == (0, 0, 0, 0)
        assert engine.applied.schemas() == {}
        assert engine.applied.epochs == ()
        assert await engine.get(T, b"k") is None
        assert await scan(engine) == {}

    async def test_upsert_update_delete(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        first = log.frame(upsert(b"k", value(c1="x", c2=2)), upsert(b"other", value(c1="o")))
        await engine.apply([first])
        assert await engine.get(T, b"k") == StoredRow(b"k", value(c1="x", c2=2), first.timestamp)
        assert await engine.get(T, b"other") == StoredRow(b"other", value(c1="o"), first.timestamp + 1)
        second = log.frame(update(b"k", value(c2=3, c3=True)))
        await engine.apply([second])
        assert await engine.get(T, b"k") == StoredRow(b"k", value(c1="x", c2=3, c3=True), second.timestamp)
        await engine.apply([log.frame(delete(b"k"), delete(b"absent"))])
        assert await engine.get(T, b"k") is None
        assert await scan(engine) == {b"other": value(c1="o")}
        assert await engine.get(T + 1, b"other") is None

    async def test_frames_as_they_come_over_the_wire(self, rig: Rig) -> None:
        frame = Log().frame(upsert(b"k", value(c1=1)))
        await rig.engine.apply([parse_frame(frame.data)])
        assert await rig.engine.get(T, b"k") == StoredRow(b"k", value(c1=1), frame.timestamp)

    async def test_records_of_one_call_see_each_other(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(upsert(b"old", value(c1=0)))])
        frames = [
            log.frame(upsert(b"k", value(c1=1)), update(b"k", value(c2=2)), update(b"old", value(c1=5))),
            log.frame(update(b"k", value(c1=3)), delete(b"gone"), upsert(b"back", value(c1=1)), delete(b"back")),
            log.frame(delete(b"old"), update(b"old", value(c1=9)), update(b"back", value(c1=9))),
        ]
        await engine.apply(frames)
        assert await scan(engine) == {b"k": value(c1=3, c2=2)}
        row = await engine.get(T, b"k")
        assert row is not None
        assert row.version == frames[1].timestamp

    async def test_an_update_of_an_absent_row_does_nothing(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(update(b"k", value(c1=1)))])
        assert await engine.get(T, b"k") is None
        assert engine.applied.seq == 1

    async def test_watermark_epoch_and_timestamp(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        start = log.frame(start_epoch(1, kind="bootstrap"), noop())
        rows = log.frame(upsert(b"a", value(c1=1)), upsert(b"b", value(c1=1)))
        await engine.apply([start, rows])
        assert (engine.applied.seq, engine.applied.epoch, engine.applied.timestamp) == (4, 1, rows.timestamp + 1)
        log.epoch = 5
        later = log.frame(noop(), start_epoch(5, "b", "takeover"))
        await engine.apply([later])
        assert engine.applied.epoch == 5
        expected = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(5, 6, 4, "b", "takeover")]
        assert list(engine.applied.epochs) == expected
        await rig.restart()
        assert list(rig.engine.applied.epochs) == expected
        assert (rig.engine.applied.seq, rig.engine.applied.epoch) == (6, 5)
        assert rig.engine.applied.timestamp == later.timestamp + 1

    async def test_the_largest_timestamp_stays_the_largest(self, rig: Rig) -> None:
        """The next frame of this site comes behind it, whatever the clock of another active was."""
        log, engine = Log(), rig.engine
        first = log.frame(noop(), noop())
        await engine.apply([first])
        log.timestamp -= SECOND
        await engine.apply([log.frame(noop())])
        assert (engine.applied.seq, engine.applied.timestamp) == (3, first.timestamp + 1)

    @pytest.mark.parametrize("kind", [RecordKind.NOOP, RecordKind.BARRIER, RecordKind.MODE, RecordKind.CURSOR])
    async def test_marks_move_only_the_watermark(self, rig: Rig, kind: RecordKind) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(upsert(b"k", value(c1=1)))])
        before = await scan(engine)
        await engine.apply([log.frame(Record(kind=int(kind), table=T, key=b"k", value=b"sync"))])
        assert await scan(engine) == before
        assert engine.applied.seq == 2

    async def test_an_unknown_kind_is_an_error_and_changes_nothing(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        good = log.frame(upsert(b"k", value(c1=1)))
        with pytest.raises(LogError, match="kind 99"):
            await engine.apply([good, log.frame(upsert(b"l", value(c1=1)), Record(kind=99))])
        assert engine.applied.seq == 0
        assert await scan(engine) == {}
        await engine.apply([good])
        assert engine.applied.seq == 1

    async def test_replay_is_idempotent(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        frames = [
            log.frame(upsert(b"k", value(c1=1), request=request("r"))),
            log.frame(update(b"k", value(c2=2))),
            log.frame(delete(b"k"), upsert(b"k", value(c1=7))),
        ]
        await engine.apply(frames)
        before = (await engine.get(T, b"k"), await engine.request_outcome("r"), engine.applied.seq)
        await engine.apply(frames)
        await engine.apply(frames[:1])
        await engine.apply([*frames[1:], log.frame(noop())])
        assert (await engine.get(T, b"k"), await engine.request_outcome("r"), engine.applied.seq - 1) == before

    async def test_a_gap_is_refused_and_changes_nothing(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        first, _, third = (log.frame(upsert(bytes([i]), value(c1=i))) for i in range(3))
        with pytest.raises(LogGap) as gap:
            await engine.apply([first, third])
        assert gap.value.fields == {"held_seq": 1, "offered_previous": 2}
        assert engine.applied.seq == 0
        assert await scan(engine) == {}

    async def test_a_frame_that_cuts_what_is_applied_is_refused(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(noop()), log.frame(noop())])
        cutting = make_frame(epoch=1, first_seq=3, previous=1, timestamp=log.timestamp, committed=1, records=[noop()])
        straddling = make_frame(epoch=1, first_seq=2, previous=2, timestamp=log.timestamp, committed=1, records=[noop()] * 2)
        for frame in (cutting, straddling):
            with pytest.raises(LogGap):
                await engine.apply([frame])
        assert engine.applied.seq == 2

    async def test_a_gap_that_previous_names_is_no_gap(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(noop()), log.frame_after_excluded(5, upsert(b"k", value(c1=1)))])
        assert engine.applied.seq == 7

    async def test_a_frame_of_an_older_epoch_is_refused(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        log.epoch = 4
        await engine.apply([log.frame(start_epoch(4))])
        log.epoch = 3
        with pytest.raises(LogError, match="older epoch"):
            await engine.apply([log.frame(upsert(b"k", value(c1=1)))])
        assert await engine.get(T, b"k") is None

    async def test_scan_bounds_order_and_limit(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        neighbours = [upsert(key, value(c1=0), table) for table in (T - 1, T + 1) for key in TRICKY]
        await engine.apply([log.frame(*neighbours, *(upsert(key, value(c1=1)) for key in reversed(TRICKY)))])
        assert list(await scan(engine)) == TRICKY
        for start in (None, *TRICKY):
            for end in (None, *TRICKY):
                expected = [key for key in TRICKY if (start is None or key >= start) and (end is None or key < end)]
                assert list(await scan(engine, start=start, end=end)) == expected
                assert list(await scan(engine, start=start, end=end, reverse=True)) == expected[::-1]
                assert list(await scan(engine, start=start, end=end, limit=2)) == expected[:2]
                assert list(await scan(engine, start=start, end=end, limit=2, reverse=True)) == expected[::-1][:2]
        assert await scan(engine, limit=0) == {}

    async def test_the_largest_table_id(self, rig: Rig) -> None:
        log, engine, last = Log(), rig.engine, (1 << 64) - 1
        await engine.apply([log.frame(put_table(last, 9), upsert(b"\xff", value(c1=1), last))])
        assert list(await scan(engine, last)) == [b"\xff"]
        await engine.apply([log.frame(drop_table(last), upsert(b"k", value(c1=1)))])
        assert await scan(engine, last) == {}
        assert list(await scan(engine)) == [b"k"]

    async def test_a_snapshot_stays_as_it_was(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(*(upsert(key, value(c1=0)) for key in TRICKY))])
        snapshot = await engine.snapshot()
        assert snapshot.seq == engine.applied.seq

        async def change() -> None:
            for round_ in range(1, 30):
                await engine.apply([log.frame(*(upsert(key, value(c1=round_)) for key in TRICKY), upsert(b"new", value(c1=0)))])
                await engine.apply([log.frame(delete(b"a"), delete(b"\xff"))])
                await asyncio.sleep(0)
            await engine.flush()

        async def read() -> None:
            for _ in range(30):
                for reverse in (False, True):
                    rows = await snapshot.scan(T, None, None, reverse=reverse, limit=100)
                    assert keys(rows) == sorted(TRICKY, reverse=reverse)
                    assert {row.value for row in rows} == {value(c1=0)}
                rows = await snapshot.scan(T, b"a", b"b", reverse=False, limit=3)
                assert keys(rows) == [b"a", b"a\x00", b"a\x00\x00"]

        await asyncio.gather(change(), read(), read())
        assert b"new" in await scan(engine)
        snapshot.close()
        snapshot.close()

    async def test_a_snapshot_knows_the_state_of_its_moment(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        states = {}
        for round_ in range(3):
            await engine.apply([log.frame(upsert(b"k", value(c1=round_)))])
            states[engine.applied.seq] = engine.applied, await engine.snapshot()
        await engine.apply([log.frame(upsert(b"k", value(c1=9)))])
        for seq, (state, snapshot) in states.items():
            assert (snapshot.seq, facts(await snapshot.state())) == (seq, facts(state))
            snapshot.close()

    async def test_a_snapshot_beside_changes_of_a_schema_is_of_one_moment_or_refused(self, rig: Rig) -> None:
        """Those who change a schema end the snapshots that they know of: one that is just being made is no exception."""
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(T), upsert(b"k", value(c1=0)))])
        for round_ in range(12):
            before = engine.applied
            taking = asyncio.ensure_future(engine.snapshot())
            for _ in range(round_ % 4):
                await asyncio.sleep(0)
            await engine.apply([log.frame(put_table(T + 1 + round_), upsert(b"k", value(c1=round_ + 1)))])
            with suppress(EngineFailed):
                snapshot = await taking
                state = facts(await snapshot.state())
                assert state in (facts(before), facts(engine.applied))
                rows = await snapshot.scan(T, None, None, reverse=False, limit=9)
                assert rows[0].value == value(c1=round_ if state == facts(before) else round_ + 1)
                snapshot.close()

    async def test_snapshots_of_different_moments(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        taken = []
        for round_ in range(5):
            await engine.apply([log.frame(upsert(b"k", value(c1=round_)))])
            taken.append(await engine.snapshot())
        for round_, snapshot in enumerate(taken):
            rows = await snapshot.scan(T, None, None, reverse=False, limit=9)
            assert (snapshot.seq, rows[0].value) == (round_ + 1, value(c1=round_))
            snapshot.close()

    async def test_a_snapshot_in_pages_of_bytes(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        sizes = [10, 10, 200, 1, 1, 1, 90]
        await engine.apply([log.frame(*(upsert(b"%d" % n, b"x" * (size - 1)) for n, size in enumerate(sizes)))])
        snapshot = await engine.snapshot()
        pages: list[list[int]] = []
        start: bytes | None = None
        while rows := await snapshot.scan(T, start, None, reverse=False, limit=3, bytes_max=20):
            pages.append([int(row.key) for row in rows])
            start = rows[-1].key + b"\x00"
        assert pages == [[0, 1], [2], [3, 4, 5], [6]]
        assert keys(await snapshot.scan(T, None, None, reverse=True, limit=9, bytes_max=91)) == [b"6", b"5"]
        snapshot.close()

    async def test_a_snapshot_tells_request_outcomes_in_pages(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        names = ["b", "a", "a\x00", "ab", "é", "z"]
        await engine.apply([log.frame(put_table(), *(upsert(b"k", value(c1=1), request=request(name)) for name in names))])
        expected = [(name, await engine.request_outcome(name)) for name in sorted(names)]
        snapshot = await engine.snapshot()
        await engine.apply([log.frame(*(upsert(b"k", value(c1=2), request=request(name)) for name in ("a", "later")))])
        for limit in (1, 2, 5, 100):
            seen: list[tuple[str, RequestOutcome]] = []
            while page := await snapshot.request_outcomes(seen[-1][0] if seen else None, limit=limit):
                assert len(page) <= limit
                seen += page
            assert seen == expected
        snapshot.close()

    async def test_schemas(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(1, name="one"), put_table(2, name="two"))])
        assert engine.applied.schemas() == {1: schema_of(1, name="one"), 2: schema_of(2, name="two")}
        engine.applied.schemas().clear()
        await engine.apply([log.frame(put_table(1, name="renamed"), drop_table(2), drop_table(3))])
        assert engine.applied.schemas() == {1: schema_of(1, name="renamed")}
        await rig.restart()
        assert rig.engine.applied.schemas() == {1: schema_of(1, name="renamed")}

    async def test_drop_and_create_again(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(history_s=60), upsert(b"a", value(c1=1)), upsert(b"b", value(c1=1)))])
        changed = log.frame(upsert(b"a", value(c1=2)))
        await engine.apply([changed])
        again = [
            log.frame(upsert(b"c", value(c1=1)), upsert(b"a", value(c1=3)), drop_table(), update(b"b", value(c1=9))),
            log.frame(put_table(history_s=60), update(b"a", value(c1=9)), upsert(b"d", value(c1=4))),
        ]
        await engine.apply(again)
        assert await scan(engine) == {b"d": value(c1=4)}
        assert await scan(engine, as_of=changed.timestamp) == {}
        await engine.apply([log.frame(drop_table())])
        assert await scan(engine) == {}
        assert engine.applied.schemas() == {}
