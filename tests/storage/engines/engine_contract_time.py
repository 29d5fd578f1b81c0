"""The contract of storage engines over time: history, outcomes, crashes, base data, rejoin. Tests over a `Rig`.

Source: storage/engine.py, product.md 3, protocol.md 4, 7 and 8.
"""

from __future__ import annotations

import pytest

from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.log.frame import COUNTER_BITS, Flags
from storage.log.record import Record, RecordKind
from tests.storage.engines.engine_rig import (
    SECOND,
    TRICKY,
    Log,
    Rig,
    T,
    delete,
    drop_table,
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
from twinlog.errors import Refused


class EngineTimeContract:
    """Collected through a subclass that provides the fixture `rig`."""

    async def test_as_of(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(history_s=3600))])
        states: list[tuple[int, dict[bytes, bytes]]] = [(log.timestamp, {})]
        rows: dict[bytes, bytes] = {}
        for round_ in range(1, 6):
            for number, key in enumerate(TRICKY):
                if (number + round_) % 3 == 0:
                    frame = log.frame(delete(key))
                    rows.pop(key, None)
                else:
                    frame = log.frame(upsert(key, value(c1=round_)))
                    rows[key] = value(c1=round_)
                await engine.apply([frame])
                states.append((frame.timestamp, dict(rows)))
        for as_of, expected in states:
            for moment in (as_of, as_of + 9):  # the next frame comes 10 later
                assert await scan(engine, as_of=moment) == expected
            ordered = sorted(expected)
            assert list(await scan(engine, as_of=as_of, reverse=True)) == ordered[::-1]
            assert list(await scan(engine, as_of=as_of, limit=3)) == ordered[:3]
            assert list(await scan(engine, as_of=as_of, limit=3, reverse=True)) == ordered[::-1][:3]
            between = [key for key in ordered if b"\x00\x00" <= key < b"a\x00b"]
            assert list(await scan(engine, as_of=as_of, start=b"\x00\x00", end=b"a\x00b")) == between
            for key in TRICKY:
                row = await engine.get_as_of(T, key, as_of)
                assert (None if row is None else row.value) == expected.get(key)

    async def test_versions_within_one_call_are_kept(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        frame = log.frame(
            put_table(history_s=60), upsert(b"k", value(c1=1)), update(b"k", value(c2=2)), delete(b"k"),
            upsert(b"k", value(c1=4)),
        )
        await engine.apply([frame])
        found = [await engine.get_as_of(T, b"k", frame.timestamp + i) for i in range(5)]
        assert [None if row is None else row.value for row in found] == [
            None, value(c1=1), value(c1=1, c2=2), None, value(c1=4)
        ]
        assert [row.version - frame.timestamp for row in found if row is not None] == [1, 2, 4]

    async def test_history_that_is_switched_on_later_and_off(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        old = log.frame(put_table(), upsert(b"k", value(c1=1)))
        on = log.frame(put_table(history_s=60))
        new = log.frame(upsert(b"k", value(c1=2)))
        await engine.apply([old, on, new])
        assert await scan(engine, as_of=on.timestamp) == {b"k": value(c1=1)}
        await engine.apply([log.frame(put_table(history_s=0))])
        assert await scan(engine, as_of=on.timestamp) == {}
        assert await scan(engine, as_of=new.timestamp) == {b"k": value(c1=2)}

    async def test_purge_keeps_what_the_horizon_needs(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(history_s=100), put_table(T + 1, history_s=10_000))])
        times = []
        for round_ in range(5):
            log.timestamp += 50 * SECOND
            await engine.apply([log.frame(upsert(b"k", value(c1=round_)), upsert(b"k", value(c1=round_), T + 1))])
            times.append(log.timestamp - 1)
        await engine.purge((times[3] >> COUNTER_BITS) + 100_001)  # the horizon is just after round 3
        seen = [await engine.get_as_of(T, b"k", moment) for moment in times]
        assert [None if row is None else row.value for row in seen] == [None, None, None, value(c1=3), value(c1=4)]
        seen = [await engine.get_as_of(T, b"k", moment - 1) for moment in times[4:]]
        assert [row.value for row in seen if row is not None] == [value(c1=3)]
        assert [bool(await engine.get_as_of(T + 1, b"k", moment + 1)) for moment in times] == [True] * 5

    async def test_purge_at_the_very_end_of_a_version(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(history_s=1), upsert(b"k", value(c1=1)))])
        log.timestamp = 2000 * SECOND - 10
        await engine.apply([log.frame(upsert(b"k", value(c1=2)))])
        await engine.purge(2000 * 1000 + 999)
        assert await scan(engine, as_of=2000 * SECOND - 1) == {b"k": value(c1=1)}
        await engine.purge(2000 * 1000 + 1000)  # nobody can ask for less than second 2000 now
        assert await scan(engine, as_of=2000 * SECOND - 1) == {}

    async def test_request_outcomes(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        frame = log.frame(
            noop(), upsert(b"a", value(c1=1), request=request("three", 3)), upsert(b"b", value(c1=1)), delete(b"c"),
            upsert(b"d", value(c1=1), request=request("single")), flags=int(Flags.ASYNC),
        )
        later = log.frame(noop(), Record(kind=int(RecordKind.NOOP), request=request("nothing")))
        await engine.apply([frame, later])
        await engine.flush()
        for _ in range(2):
            outcome = await rig.engine.request_outcome("three")
            assert outcome is not None
            assert (outcome.digest, outcome.epoch, outcome.seq) == (b"digest of three", 1, frame.first_seq + 3)
            assert (outcome.version, outcome.count, outcome.was_async) == (frame.timestamp + 3, 3, True)
            single, nothing = await rig.engine.request_outcome("single"), await rig.engine.request_outcome("nothing")
            assert single is not None
            assert nothing is not None
            assert (single.seq, single.version, single.count) == (frame.last_seq, frame.timestamp + 4, 1)
            assert (nothing.seq, nothing.was_async) == (later.last_seq, False)
            assert await rig.engine.request_outcome("unknown") is None
            await rig.crash()

    async def test_purge_of_request_outcomes(self, rig: Rig) -> None:
        log, engine, day_ms = Log(), rig.engine, 24 * 3600 * 1000
        old = log.frame(upsert(b"a", value(c1=1), request=request("old")), upsert(b"b", value(c1=1), request=request("again")))
        log.timestamp += 10 * SECOND
        new = log.frame(upsert(b"a", value(c1=1), request=request("again")), noop())
        await engine.apply([old, new])
        await engine.purge((new.timestamp >> COUNTER_BITS) + day_ms - 5000)
        assert await engine.request_outcome("old") is None
        again = await engine.request_outcome("again")
        assert again is not None
        assert again.version == new.timestamp
        await engine.purge((new.timestamp >> COUNTER_BITS) + day_ms + 1)
        assert await engine.request_outcome("again") is None

    async def test_a_crash_goes_back_to_what_was_durable(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(), start_epoch(1), upsert(b"k", value(c1=1)))])
        assert engine.durable_seq == 0
        assert await engine.flush() == 3
        assert engine.durable_seq == 3
        lost = [
            log.frame(upsert(b"k", value(c1=2), request=request("r")), put_table(9)), log.frame(start_epoch(1, "b")),
            log.frame(drop_table()),
        ]
        await engine.apply(lost)
        assert (engine.applied.seq, engine.durable_seq) == (7, 3)
        await rig.crash()
        engine = rig.engine
        assert engine.applied.seq == engine.durable_seq
        assert engine.applied.seq in (3, 7)  # the whole call or nothing of it; a server that lives on has it all
        if engine.applied.seq == 3:
            assert await scan(engine) == {b"k": value(c1=1)}
            assert engine.applied.schemas() == {T: schema_of(T)}
            assert [entry.site for entry in engine.applied.epochs] == ["a"]
            assert await engine.request_outcome("r") is None
        await engine.apply(lost)
        assert (await scan(engine), engine.applied.schemas()) == ({}, {9: schema_of(9)})
        assert await engine.request_outcome("r") is not None

    async def test_close_keeps_everything(self, rig: Rig) -> None:
        log = Log()
        await rig.engine.apply([log.frame(upsert(b"k", value(c1=1)))])
        await rig.restart()
        assert (rig.engine.applied.seq, rig.engine.durable_seq) == (1, 1)
        assert await scan(rig.engine) == {b"k": value(c1=1)}
        await rig.engine.close()
        await rig.engine.close()

    async def test_notes_are_durable_at_once(self, rig: Rig) -> None:
        assert rig.engine.meta("role") is None
        await rig.engine.set_meta("role", b"standby")
        await rig.engine.set_meta("floor", b"1")
        await rig.engine.set_meta("role", b"active")
        await rig.engine.set_meta("floor", None)
        await rig.engine.set_meta("absent", None)
        assert rig.engine.meta("role") == b"active"
        await rig.crash()
        assert (rig.engine.meta("role"), rig.engine.meta("floor")) == (b"active", None)

    async def test_replace_rows(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        kept = log.frame(
            put_table(history_s=60), start_epoch(1), upsert(b"a", value(c1=1), request=request("kept")),
            upsert(b"b", value(c1=1)), upsert(b"untouched", value(c1=1)),
        )
        await engine.apply([kept])
        await engine.flush()
        log.epoch = 2
        cut = [
            log.frame(
                start_epoch(2), upsert(b"a", value(c1=2), request=request("cut")), delete(b"b"), upsert(b"new", value(c1=2))
            ),
            log.frame(upsert(b"a", value(c1=3), request=request("cut too", 2)), noop()),
        ]
        await engine.apply(cut)
        timestamp = engine.applied.timestamp
        fetched = StoredRow(b"a", value(c1="b's"), log.timestamp + 100)
        old_b = StoredRow(b"b", value(c1=1), kept.timestamp + 3)
        replaced = [(T, b"a", fetched), (T, b"b", old_b), (T, b"new", None)]
        await engine.replace_rows(replaced, kept.last_seq, 1, fetched.version + 7)
        for _ in range(2):
            engine = rig.engine
            assert (engine.applied.seq, engine.applied.epoch, engine.durable_seq) == (kept.last_seq, 1, kept.last_seq)
            assert engine.applied.timestamp == timestamp
            assert [entry.epoch for entry in engine.applied.epochs] == [1]
            assert (await engine.get(T, b"a"), await engine.get(T, b"b"), await engine.get(T, b"new")) == (fetched, old_b, None)
            assert list(await scan(engine)) == [b"a", b"b", b"untouched"]
            assert engine.applied.history_from(T, 0) == fetched.version + 7
            assert await engine.request_outcome("kept") is not None
            assert (await engine.request_outcome("cut"), await engine.request_outcome("cut too")) == (None, None)
            assert (await scan(engine, as_of=cut[1].timestamp - 1)).get(b"a") is None  # what was cut is not history
            await rig.crash()
        log.seq, log.epoch = kept.last_seq, 3
        await rig.engine.apply([log.frame(start_epoch(3, "b"), upsert(b"a", value(c1=9)))])
        assert [entry.epoch for entry in rig.engine.applied.epochs] == [1, 3]

    async def test_base_data(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply(
            [log.frame(put_table(), put_table(9), start_epoch(1), upsert(b"before", value(c1=1), request=request("before")))]
        )
        await engine.flush()
        rows = [StoredRow(key, value(c1=number), 500 * SECOND + number) for number, key in enumerate(TRICKY)]
        epochs = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(4, 80, 79, "b", "takeover")]
        outcomes = [(key, RequestOutcome(b"d", 4, 90 + n, (800 + n) * SECOND, 2, n == 1)) for n, key in enumerate("sr")]
        schemas = {T: schema_of(T, history_s=60)}
        await engine.load_base([(T, row) for row in rows[:5]], [], b"first", True, schemas)
        assert engine.applied.base == b"first"
        assert engine.applied.schemas() == schemas
        await engine.load_base([(T, row) for row in rows[5:]], outcomes, b"second", False, None)
        assert engine.applied.base == b"second"
        await engine.finish_base(100, 4, 900 * SECOND, epochs)
        for _ in range(2):
            engine = rig.engine
            assert (engine.applied.seq, engine.applied.epoch, engine.durable_seq) == (100, 4, 100)
            assert engine.applied.timestamp == engine.applied.history_from(T, 0) == 900 * SECOND
            assert not engine.applied.loading
            assert engine.applied.base is None
            assert (engine.applied.schemas(), list(engine.applied.epochs)) == (schemas, epochs)
            assert await engine.scan(T, None, None, reverse=False, limit=100) == rows
            assert await engine.request_outcome("before") is None
            assert [await engine.request_outcome(key) for key, _ in outcomes] == [outcome for _, outcome in outcomes]
            await rig.crash()
        log.seq, log.epoch = 100, 4
        changed = log.frame(upsert(b"a", value(c1="new")))
        await rig.engine.apply([changed])
        row = await rig.engine.get_as_of(T, b"a", changed.timestamp - 1)
        assert row == rows[TRICKY.index(b"a")]  # the table's history is known from its schema
        await rig.engine.purge((800 * SECOND >> COUNTER_BITS) + 24 * 3600 * 1000)  # outcomes of a base grow old too
        assert [await rig.engine.request_outcome(key) is None for key in "sr"] == [True, False]

    async def test_what_a_crash_leaves_of_a_base_is_as_far_as_its_progress_says(self, rig: Rig) -> None:
        rows = [StoredRow(b"%d" % n, value(c1=n), SECOND + n) for n in range(4)]
        await rig.engine.load_base([(T, rows[0])], [], b"0", True, {T: schema_of(T)})
        await rig.engine.load_base([(T, rows[1])], [], b"1", False, None)
        await rig.engine.flush()
        await rig.engine.load_base([(T, rows[2])], [], b"2", False, None)
        await rig.crash()
        assert rig.engine.applied.loading
        held = rig.engine.applied.base
        assert held in (b"1", b"2")  # what was not flushed may be there, as a whole
        assert await rig.engine.scan(T, None, None, reverse=False, limit=9) == rows[: int(held) + 1]
        await rig.engine.load_base([(T, rows[2])], [], b"2", False, None)
        await rig.restart()
        assert rig.engine.applied.base == b"2"
        await rig.engine.load_base([(T, rows[3])], [], b"3", False, None)
        await rig.engine.finish_base(2, 1, 2 * SECOND, [])
        assert await rig.engine.scan(T, None, None, reverse=False, limit=9) == rows

    async def test_a_base_of_two_snapshots_that_is_cut_off_anywhere_ends_the_same(self, rig: Rig) -> None:
        """Between them table 9 was dropped, 8 made, and T got another name and a history."""
        rows = [StoredRow(b"%d" % n, value(c1=n), SECOND + n) for n in range(5)]
        first, then = {T: schema_of(T), 9: schema_of(9)}, {T: schema_of(T, 60, "renamed"), 8: schema_of(8)}
        parts: list[tuple[list[tuple[int, StoredRow]], dict[int, bytes] | None]] = [
            ([(T, rows[0]), (9, rows[1])], first), ([(9, rows[2])], None), ([(T, rows[3])], then), ([(8, rows[4])], None)
        ]
        held = [
            {T: rows[:1], 9: rows[1:2]}, {T: rows[:1], 9: rows[1:3]},
            {T: [rows[0], rows[3]]}, {T: [rows[0], rows[3]], 8: rows[4:]},
        ]

        async def load(start: int, end: int) -> None:
            for number in range(start, end):
                await rig.engine.load_base(parts[number][0], [], b"%d" % number, not number, parts[number][1])

        async def check(number: int) -> None:
            assert rig.engine.applied.schemas() == (first if number < 2 else then)
            for table in (T, 8, 9):
                found = await rig.engine.scan(table, None, None, reverse=False, limit=9)
                assert found == held[number].get(table, [])

        for cut in range(1, len(parts) + 1):
            for durable in (False, True):
                await load(0, cut)
                if durable:
                    await rig.engine.flush()
                await rig.crash()
                number = int(rig.engine.applied.base or b"")
                assert number < cut
                assert number == cut - 1 or not durable
                await check(number)
                await load(number + 1, len(parts))
                await rig.engine.finish_base(2, 1, 2 * SECOND, [])
                await rig.crash()
                await check(len(parts) - 1)
                assert (rig.engine.applied.seq, rig.engine.applied.history_from(T, 0)) == (2, 2 * SECOND)

    async def test_history_is_answered_for_from_where_it_was_kept(self, rig: Rig) -> None:
        log = Log()
        made = log.frame(put_table(T, 0), upsert(b"k", value(c1=1)))
        await rig.engine.apply([made])
        assert rig.engine.applied.history_from(T, 0) == rig.engine.applied.timestamp  # nothing is kept: only what is there now
        assert rig.engine.applied.history_from(T + 1, 0) == 0
        on = log.frame(noop(), put_table(T, 60), put_table(T + 1, 60))
        await rig.engine.apply([on])
        assert rig.engine.applied.history_from(T, 0) == on.timestamp + 1
        assert rig.engine.applied.history_from(T + 1, 0) == 0  # it was empty before
        await rig.engine.apply([log.frame(put_table(T, 100))])
        assert rig.engine.applied.history_from(T, 0) == on.timestamp + 1
        now_ms = (on.timestamp >> COUNTER_BITS) + 200_000
        assert rig.engine.applied.history_from(T, now_ms) == (now_ms - 100_000) << COUNTER_BITS
        await rig.restart()
        assert rig.engine.applied.history_from(T, 0) == on.timestamp + 1
        off = log.frame(put_table(T, 0))
        await rig.engine.apply([off])
        again = log.frame(put_table(T, 60))
        await rig.engine.apply([again])
        assert rig.engine.applied.history_from(T, 0) == again.timestamp

    async def test_an_interrupted_base_begins_anew(self, rig: Rig) -> None:
        log = Log()
        await rig.engine.apply([log.frame(put_table(), upsert(b"before", value(c1=1)))])
        await rig.engine.set_meta("role", b"standby")
        half = RequestOutcome(b"d", 1, 1, SECOND, 1, False)
        schemas, row = {T: schema_of(T), 9: schema_of(9)}, StoredRow(b"half", value(c1=1), SECOND)
        await rig.engine.load_base([(T, row)], [("half", half)], b"p", True, schemas)
        await rig.engine.flush()
        await rig.crash()
        engine = rig.engine
        assert (engine.applied.seq, engine.durable_seq, engine.applied.epoch) == (0, 0, 0)
        assert engine.applied.loading
        assert engine.meta("role") == b"standby"
        assert engine.applied.schemas() == schemas
        with pytest.raises(Refused):
            await engine.apply([Log().frame(noop())])
        await engine.load_base([(T, StoredRow(b"whole", value(c1=2), SECOND))], [], b"p", True, {T: schema_of(T)})
        await engine.finish_base(2, 1, SECOND, [])
        assert engine.applied.schemas() == {T: schema_of(T)}
        assert await engine.request_outcome("half") is None
        assert await scan(engine) == {b"whole": value(c1=2)}
        assert not engine.applied.loading
        await engine.apply([log.frame(upsert(b"after", value(c1=3)))])
        assert list(await scan(engine)) == [b"after", b"whole"]

    async def test_a_base_without_its_first_part_is_refused(self, rig: Rig) -> None:
        with pytest.raises(Refused):
            await rig.engine.load_base([], [], b"p", False, None)
        with pytest.raises(Refused):
            await rig.engine.finish_base(1, 1, 1, [])

    async def test_counters(self, rig: Rig) -> None:
        await rig.engine.apply([Log().frame(upsert(b"k", value(c1=1)))])
        assert set(rig.engine.counters()) >= {"disk_bytes", "memtable_bytes", "cache_bytes", "pending_compaction_bytes"}
        assert all(count >= 0 for count in rig.engine.counters().values())
