"""Base data: how it is cut into parts, and that a sink takes one base whole, without holes and unmixed, or begins again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import cast

import msgspec
import pytest

from remote_log.replication.base_sender import BasePart, BaseSender, BaseSettings, base_parts
from remote_log.replication.messages import (
    BaseDoneRequest,
    BaseProgress,
    BaseRequest,
    FollowRequest,
    Position,
    ReplicateRequest,
    pack_history,
    pack_outcomes,
)
from remote_log.replication.sink import Sink
from remote_log.replication.verification import Verifier
from storage.clock import SystemClock
from storage.engine import EpochEntry, RequestOutcome
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.log.wal import Wal
from storage.prefix import FLOOR
from tests.remote_log.replication import tables
from tests.remote_log.replication.base_world import confirmed
from tests.remote_log.replication.tables import key, schema_of
from tests.storage.engines.engine_rig import Log, T, noop, put_table, request, start_epoch, upsert, value
from twinlog.errors import EngineFailed, Fenced, Unavailable

HISTORY = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(3, 90, 89, "b", "takeover")]
LATER = [*HISTORY, EpochEntry(4, 131, 130, "b", "restart")]


NOTHING = BaseProgress(3, 1, 0, 100, 3, 100, 3)


async def parts_of(engine: MemoryEngine, progress: BaseProgress = NOTHING, **bounds: int) -> list[BasePart]:
    snapshot = await engine.snapshot()
    try:
        return [part async for part in base_parts(snapshot, sorted(engine.applied.schemas()), progress, **bounds)]
    finally:
        snapshot.close()


async def filled(tables: int, rows: int, row_bytes: int) -> MemoryEngine:
    engine, log = MemoryEngine(), Log()
    await engine.apply([log.frame(*(put_table(table) for table in range(1, tables + 1)))])
    for table in range(1, tables + 1):
        keys = [b"%03d" % n for n in range(rows)]
        marks = [request(f"{table} {n:03}") for n in range(rows)]
        await engine.apply([
            log.frame(*(upsert(key, b"x" * (row_bytes - 3), table, mark) for key, mark in zip(keys, marks, strict=True)))
        ])
    return engine


async def test_parts_hold_everything_once_and_in_order() -> None:
    engine = await filled(tables=3, rows=7, row_bytes=10)
    for entries_max in (1, 2, 5, 7, 21, 1000):
        parts = await parts_of(engine, entries_max=entries_max, bytes_max=1 << 20)
        rows = [(table, row.key) for part in parts for table, row in part.rows]
        assert rows == [(table, b"%03d" % n) for table in (1, 2, 3) for n in range(7)]
        outcomes = [outcome for part in parts for outcome in part.outcomes]
        assert outcomes == [(key, await engine.request_outcome(key)) for key in sorted(key for key, _ in outcomes)]
        assert len(outcomes) == 21
        assert all(part.entries == entries_max for part in parts[:-1])


async def test_parts_are_bounded_by_bytes_too() -> None:
    engine = await filled(tables=2, rows=10, row_bytes=100)
    parts = await parts_of(engine, entries_max=1000, bytes_max=250)
    sizes = [sum(len(row.key) + len(row.value) for _, row in part.rows) for part in parts]
    assert sizes == [300, 300, 300, 300, 300, 300, 200]  # also across the border of two tables
    assert sum(len(part.outcomes) for part in parts) == 20


async def test_what_lies_behind_a_progress_is_all_that_was_not_in_it() -> None:
    engine = await filled(tables=3, rows=4, row_bytes=10)
    whole = await parts_of(engine, entries_max=5, bytes_max=1 << 20)
    progress = NOTHING
    for number, part in enumerate(whole):
        progress = part.moves(progress)
        assert progress.part == number + 1
        rest = await parts_of(engine, progress, entries_max=5, bytes_max=1 << 20)
        assert rest == (whole[number + 1 :] or [BasePart()])


async def test_nothing_at_all_is_one_empty_part() -> None:
    assert await parts_of(MemoryEngine(), entries_max=10, bytes_max=10) == [BasePart()]


async def test_a_storage_that_fails_under_a_base_ends_it_and_its_snapshot_goes() -> None:
    """The storage may have been opened anew since, and a snapshot of before never gives a row again."""
    engine = await filled(tables=1, rows=3, row_bytes=10)
    called: list[str] = []

    async def call(method: str, request: object) -> Position:
        called.append(method)
        raise EngineFailed("the storage was closed")

    sender = BaseSender(epoch=3, engine=engine, wal=cast(Wal, None), clock=SystemClock(), call=call, settings=BaseSettings())
    for number in (1, 2):
        with pytest.raises(EngineFailed, match="the storage was closed"):
            await sender.send(None, "nonce")
        assert (len(called), sender._held) == (number, None)


NONCES = count()


@dataclass
class Standby:
    """A sink on an engine that outlives it."""

    engine: MemoryEngine = field(default_factory=MemoryEngine)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        applier = FrameApplier(self.engine, SystemClock(), BarrierLimits(), on_refused=lambda name, why: None)
        self.nonce = "none"
        self.sink = Sink(
            self.engine, SystemClock(), applier, Verifier("ab"), refusal=lambda: None,
            on_applied=lambda: self.told.append("applied"), confirm=confirmed, new_nonce=lambda: f"nonce {next(NONCES)}",
        )

    def progress(self, part: int, load: int = 1, epoch: int = 3) -> BaseProgress:
        request = f"r{part - 1}" if part else None
        row = key(b"%d" % (part - 1)) if part else b""
        return BaseProgress(epoch, load, part, 100, 3, 100, 3, T if part else 0, row, request)

    async def part(self, part: int, load: int = 1, epoch: int = 3) -> str:
        """Asks the standby first, unless it may have restarted since it asked itself."""
        if not part:
            if self.engine.applied.seq == 0 and not self.sink.needs_base:
                await self.sink.want_base()
            await self.follow(epoch)
        rows = [(T, key(b"%d" % part), value(c1=load), 1000 + part)]
        outcome = RequestOutcome(b"digest", epoch, 50 + part, 1000 + part, 1, part == 1)
        after = self.progress(part, load, epoch) if part else None
        upto = self.progress(part + 1, load, epoch)
        schemas = None if part else {T: schema_of(T)}
        message = BaseRequest(epoch, self.nonce, after, upto, schemas, rows, pack_outcomes([(f"r{part}", outcome)]))
        position = await self.sink.base(message)
        assert position.base == upto
        return position.state

    async def done(self, parts: int, load: int = 1, epoch: int = 3) -> str:
        after = self.progress(parts, load, epoch)
        return (await self.sink.base_done(
            BaseDoneRequest(epoch, self.nonce, after, 5000, pack_history(HISTORY))
        )).state

    async def follow(self, epoch: int = 3) -> str:
        position = await self.sink.follow(FollowRequest(epoch, "b", pack_history(LATER if epoch == 4 else HISTORY)))
        self.nonce = position.nonce or self.nonce
        return position.state

    async def keys(self) -> list[bytes]:
        return [row.key.removesuffix(key(b"")) for row in await self.engine.scan(T, None, None, reverse=False, limit=100)]


async def test_a_base_in_parts() -> None:
    standby = Standby()
    assert [await standby.part(n) for n in range(3)] == ["loading"] * 3
    assert standby.sink.needs_base
    assert await standby.follow() == "loading"
    assert await standby.done(3) == "following"
    assert not standby.sink.needs_base
    assert (standby.engine.applied.seq, standby.sink.followed_epoch) == (100, 3)
    assert await standby.keys() == [b"0", b"1", b"2"]
    assert await standby.engine.request_outcome("r1") == RequestOutcome(b"digest", 3, 51, 1001, 1, True)
    assert await standby.follow() == "following"
    assert standby.told == ["applied", "applied"]  # emptied, and filled: who keeps schemas reads them again


async def test_a_base_has_no_holes() -> None:
    standby = Standby()
    with pytest.raises(Unavailable):
        await standby.part(1)
    await standby.part(0)
    with pytest.raises(Unavailable):
        await standby.part(2)
    with pytest.raises(Unavailable):
        await standby.done(2)
    await standby.part(1)
    with pytest.raises(Unavailable):
        await standby.part(1)
    with pytest.raises(Unavailable):
        await standby.done(1)
    assert await standby.done(2) == "following"
    assert await standby.keys() == [b"0", b"1"]


async def test_after_a_crash_the_base_goes_on_where_the_engine_stands() -> None:
    """The engine may have lost parts that were answered for: it is not durable in between."""
    standby = Standby()
    await standby.part(0)
    await standby.part(1)
    await standby.engine.flush()
    await standby.part(2)
    standby.engine.crash()
    standby.restart()
    assert standby.sink.needs_base
    position = await standby.sink.follow(FollowRequest(3, "b", pack_history(HISTORY)))
    assert (position.state, position.base) == ("loading", standby.progress(2))
    for call in (standby.part(3), standby.part(1), standby.done(3)):
        with pytest.raises(Unavailable):
            await call
    assert position.nonce not in ("", standby.nonce), "what this process did not ask for it does not take"
    standby.nonce = position.nonce
    await standby.part(2)
    assert await standby.done(3) == "following"
    assert await standby.keys() == [b"0", b"1", b"2"]


async def test_another_snapshot_goes_on_behind_what_is_in_and_is_a_prefix_only_at_its_own_point() -> None:
    standby = Standby()
    await standby.part(0)
    later = msgspec.structs.replace(standby.progress(1), epoch=4, load=1, part=2, floor=120, floor_epoch=4, key=key(b"9"))
    rows = [(T, key(b"9"), value(c1=9), 1009)]
    await standby.follow(epoch=4)
    await standby.sink.base(BaseRequest(4, standby.nonce, standby.progress(1), later, {T: schema_of(T)}, rows, []))
    with pytest.raises(Fenced):
        await standby.part(1)
    history = pack_history(HISTORY)
    await standby.sink.base_done(BaseDoneRequest(4, standby.nonce, later, 5000, history))
    assert await standby.keys() == [b"0", b"9"]
    assert (standby.engine.applied.seq, standby.engine.applied.epoch) == (100, 3)
    standby.restart()
    assert not standby.sink.needs_base
    assert not standby.sink.is_prefix
    log = Log()
    log.seq, log.epoch = 100, 3
    await standby.engine.apply([log.frame(*[noop()] * 19)])
    assert not standby.sink.is_prefix
    await standby.engine.apply([log.frame(noop())])
    assert standby.sink.is_prefix


async def test_a_base_in_one_piece_forgets_the_floor_of_a_rejoin() -> None:
    standby = Standby()
    await standby.engine.set_meta(FLOOR, b"5000")
    await standby.part(0)
    await standby.done(1)
    assert standby.sink.is_prefix


async def test_a_progress_that_is_not_understood_is_as_good_as_none() -> None:
    standby = Standby()
    await standby.engine.load_base([], [], b"", True, {})
    position = await standby.sink.follow(FollowRequest(3, "b", pack_history(HISTORY)))
    assert (position.state, position.base) == ("loading", None)


async def test_an_unfinished_base_is_made_durable_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remote_log.replication.sink.BASE_FLUSH_BYTES", 12)
    standby = Standby()
    for part in range(5):
        await standby.part(part)
    row_bytes = len(key(b"0")) + len(value(c1=1))
    standby.engine.crash()
    parts = -(-12 // row_bytes)
    standby.restart()
    assert len(await standby.keys()) == 5 // parts * parts


async def test_after_the_storage_was_opened_anew_the_base_begins_again() -> None:
    standby = Standby()
    for n in range(2):
        await standby.part(n)
    standby.engine.break_down("the disk is full")  # a flush finds it out, between two parts
    with pytest.raises(EngineFailed):
        await standby.sink.reopen_storage()
    standby.engine.repair()
    await standby.sink.reopen_storage()
    assert await standby.follow() == "loading"
    for call in (standby.part(2), standby.done(2)):
        with pytest.raises(Unavailable):
            await call
    await standby.part(0, load=2)
    assert await standby.done(1, load=2) == "following"
    assert await standby.keys() == [b"0"]


async def test_two_bases_never_mix() -> None:
    standby = Standby()
    await standby.part(0, load=1)
    await standby.part(0, load=2)
    with pytest.raises(Unavailable):
        await standby.part(1, load=1)  # of the base before, on its way for long
    await standby.part(1, load=2)
    await standby.part(0, load=1, epoch=4)
    for load in (1, 2):
        with pytest.raises(Fenced):
            await standby.part(1, load=load)
        with pytest.raises(Fenced):
            await standby.part(0, load=load)
    assert await standby.done(1, load=1, epoch=4) == "following"
    assert await standby.keys() == [b"0"]


async def test_a_first_part_that_comes_again_late_does_not_empty_a_follower() -> None:
    standby, log = Standby(), Log()
    log.epoch, log.seq = 3, 100
    await standby.part(0)
    await standby.done(1)
    for late in range(2):
        with pytest.raises(Unavailable, match="has not asked"):
            await standby.part(0)
        assert not standby.sink.needs_base
        assert standby.engine.durable_seq >= 100
        if not late:
            frame = log.frame(tables.upsert(b"new", value(c1=1)))
            await standby.sink.replicate(ReplicateRequest(3, standby.sink.point, frame.data, flush=True))
    assert await standby.keys() == [b"0", b"new"]


async def test_a_follower_is_emptied_by_nobody_but_itself() -> None:
    """Also one that the log of the active does not reach: it says so, and its rejoin asks the active."""
    standby, log = Standby(), Log()
    await standby.engine.apply([log.frame(tables.put_table(), start_epoch(1), tables.upsert(b"old", value(c1=1)))])
    position = await standby.sink.follow(FollowRequest(3, "b", pack_history(HISTORY), begins_after=50))
    assert (position.state, position.nonce) == ("diverged", "")
    with pytest.raises(Unavailable, match="has not asked"):
        await standby.part(0)
    assert await standby.keys() == [b"old"]
    await standby.sink.want_base()
    await standby.part(0)
    assert standby.sink.needs_base
    assert await standby.keys() == [b"0"]


async def test_a_site_that_wants_base_data_takes_no_frames_and_forgets_what_it_had() -> None:
    standby, log = Standby(), Log()
    old = tables.upsert(b"old", value(c1=1), request=request("old"))
    await standby.engine.apply([log.frame(tables.put_table(), start_epoch(1), old)])
    await standby.sink.set_followed_epoch(1)
    more = ReplicateRequest(1, standby.sink.point, log.frame(noop()).data)
    await standby.sink.want_base()
    standby.restart()
    assert standby.sink.needs_base
    assert not standby.engine.applied.loading
    with pytest.raises(Unavailable):
        await standby.sink.replicate(more)
    assert standby.engine.applied.seq == 3
    assert await standby.follow() == "loading"
    await standby.part(0)
    assert await standby.done(1) == "following"
    assert not standby.sink.needs_base
    assert await standby.keys() == [b"0"]
    assert await standby.engine.request_outcome("old") is None
