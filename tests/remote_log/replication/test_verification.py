"""Whatever a message says: it is refused without any effect, or is one that an honest active could have sent."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simulate.actors.lies import LIES, raw_frame, shipped
from remote_log.replication.messages import BASE, BASE_DONE, FOLLOW, Position, decode_reply, to_message
from storage.log.frame import latest_timestamp, parse_frame
from storage.log.record import Record, decode_records, encode_records
from storage.rows.codec import RowCodec
from storage.rows.schema import decode_schema
from storage.rows.stored import StoredTable, stored_schema
from tests.remote_log.replication.follower import EPOCH, KINDS, Follower
from tests.remote_log.replication.tables import key, put_table, schema_of, upsert
from tests.storage.engines.engine_rig import T, noop, value
from twinlog.errors import InvalidInput, PeerError, TwinlogError, Unavailable

AT_THE_DOOR = ("merge", "other-pair", "rows-", "prepare", "drain", "undrain", "step-down")
AT_THE_SINK = [name for name in LIES if not name.startswith(AT_THE_DOOR)]


@pytest.mark.parametrize("name", AT_THE_SINK)
async def test_a_lie_is_refused_without_any_effect(name: str) -> None:
    follower = Follower()
    await follower.begin()
    before = await follower.everything()
    with pytest.raises(TwinlogError) as refused:
        await follower.take(LIES[name](follower.victim()))
    assert refused.value.code != "internal"
    assert await follower.everything() == before
    await follower.ship(upsert(b"after", value(c1=7)))  # and the honest active goes on


async def test_an_honest_message_is_taken() -> None:
    follower = Follower()
    await follower.begin()
    victim = follower.victim()
    position = await follower.take(shipped(victim, upsert(b"9", value(c1=1))))
    assert position.applied_seq == victim.point.seq + 1
    assert position.applied_crc is not None


async def test_a_message_leaves_nothing_that_only_the_collector_frees() -> None:
    """Each message is walked along with checks of its tables: while they held themselves, they stayed for minutes."""
    follower = Follower()
    await follower.begin()
    await follower.ship(upsert(b"0", value(c1=0)))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for number in range(20):
            await follower.ship(upsert(b"%d" % number, value(c1=number)))
        gc.collect()
        left = [type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith(("storage.rows", "remote_log"))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []


async def test_frames_that_continue_elsewhere_are_not_looked_at() -> None:
    """A repeated message, or one on its way for long: its sender hears where the follower stands."""
    follower = Follower()
    await follower.begin()
    late = shipped(follower.victim(), noop())
    position = await follower.ship(upsert(b"4", value(c1=4)))
    before = await follower.everything()
    assert await follower.take(late) == position
    assert await follower.everything() == before


async def test_a_base_that_was_asked_for_is_taken_from_the_one_who_was_asked_only() -> None:
    follower = Follower()
    await follower.begin()
    await follower.sink.want_base()
    history = [(EPOCH, 1, 0, "a", "bootstrap")]
    asked = await follower.take((FOLLOW, {"epoch": EPOCH, "site": "a", "history": history}))
    assert (asked.state, asked.nonce) == ("loading", "nonce 1")
    before = await follower.everything()
    for name in ("base", "base-without-a-word", "base-epoch"):
        with pytest.raises(TwinlogError):
            await follower.take(LIES[name](follower.victim()))
    assert await follower.everything() == before
    method, body = LIES["base"](follower.victim())
    taken = await follower.take((method, {**body, "nonce": asked.nonce}))
    assert taken.base is not None


BASE_LIES: dict[str, dict[str, Any]] = {
    "garbage": {"rows": [(T, key(b"1"), b"garbage", 1)]},
    "a table without a schema": {"rows": [(T + 1, key(b"1"), value(c1=1), 1)]},
    "a timestamp": {"rows": [(T, key(b"1"), value(c1=1), (1 << 63) - 1)]},
    "rows that do not ascend": {"rows": [(T, key(b"2"), value(c1=1), 1), (T, key(b"1"), value(c1=1), 1)]},
    "an end elsewhere": {"rows": [(T, key(b"1"), value(c1=1), 1)]},
    "no schemas": {"schemas": None},
    "a bad schema": {"schemas": {T: b"garbage"}},
    "a schema of another table": {"schemas": {T: schema_of(T + 1)}},
    "two tables of one name": {"schemas": {T: schema_of(T), T + 1: schema_of(T).replace(b"\x07", b"\x08", 1)}},
    "an outcome of nowhere": {"outcomes": [("r", b"", EPOCH, 1 << 60, 1, 1, False)]},
    "an outcome's key": {"outcomes": [("r" * 5000, b"", EPOCH, 1, 1, 1, False)]},
}


@pytest.mark.parametrize("name", BASE_LIES)
async def test_base_data_is_checked_before_it_empties_anything(name: str) -> None:
    follower = Follower()
    await follower.begin()
    await follower.sink.want_base()
    nonce = (await follower.take((FOLLOW, {
        "epoch": EPOCH, "site": "a", "history": [(EPOCH, 1, 0, "a", "bootstrap")],
    }))).nonce
    before = await follower.everything()
    _, body = LIES["base"](follower.victim())
    end = {"key": key(b"1"), "table": T} if name in ("garbage", "a timestamp", "rows that do not ascend") else {}
    upto = {**to_message(body["upto"]), **end}
    with pytest.raises((InvalidInput, PeerError)):
        await follower.take((BASE, {**body, "nonce": nonce, "schemas": {T: schema_of(T)}, "upto": upto, **BASE_LIES[name]}))
    assert await follower.everything() == before


async def test_an_epoch_that_nobody_was_given_is_not_followed() -> None:
    follower = Follower()
    await follower.begin()
    with pytest.raises(Unavailable, match="nobody was given"):
        await follower.take(LIES["follow-later"](follower.victim()))
    assert follower.sink.followed_epoch == EPOCH


@pytest.mark.parametrize("change", [
    {"applied_seq": -1}, {"applied_seq": 1 << 63}, {"durable_seq": 2**64 - 1}, {"applied_epoch": 1 << 62}, {"state": "fine"},
    {"applied_crc": 1 << 32}, {"nonce": "x" * 1000},
])
def test_an_answer_out_of_bounds_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        decode_reply(Position, FOLLOW, msgspec.msgpack.encode({**to_message(Position("following", 5, 1, 4)), **change}))


# ---- any field of a real message, changed
async def is_sound(follower: Follower) -> None:
    """Asserts that all that is stored could have come from an honest active: it decodes, in bounds, and reads."""
    applied = follower.engine.applied
    assert applied.timestamp <= latest_timestamp(follower.clock.ms)
    assert applied.seq < 1 << 62
    assert applied.epochs[-1].epoch == applied.epoch == follower.sink.followed_epoch == EPOCH
    for number, data in applied.schemas().items():
        assert stored_schema(data).id == number
        table, codec = StoredTable(decode_schema(data)), RowCodec(decode_schema(data))
        for row in await follower.engine.scan(number, None, None, reverse=False, limit=1000):
            table.row(row.key, row.value)
            codec.decode_row(row.key, row.value)
            assert 0 < row.version <= latest_timestamp(follower.clock.ms)
    for kept in follower.engine.kept_snapshots():
        assert "/" not in kept.name


numbers = st.one_of(st.integers(-2, 60), st.sampled_from([1 << 20, 1 << 32, (1 << 63) - 1, (1 << 64) - 2, (1 << 64) - 1]))
anything = st.one_of(
    numbers, st.none(), st.booleans(), st.binary(max_size=20), st.text(max_size=10), st.lists(numbers, max_size=3),
)
sound_records = st.lists(st.sampled_from([
    upsert(b"5", value(c1=1)), upsert(b"1", value(c2="y")), noop(), put_table(T, 60), put_table(T + 1),
]), min_size=1, max_size=4)
field_of_a_frame = st.sampled_from(["epoch", "first_seq", "previous", "timestamp", "committed", "count", "flags", "log"])
bits = {"flags": 0xFF, "log": 0xFFFF, "count": 0xFFFF_FFFF}


def changed_record(record: Record, change: tuple[str, Any]) -> Record:
    field, new = change
    return msgspec.structs.replace(record, **{field: new})


record_changes = st.one_of(
    st.tuples(st.just("kind"), st.integers(0, 12)), st.tuples(st.just("table"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["key", "value", "request"]), st.binary(max_size=30)),
)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """A function from a victim to a real message with something changed in it."""
    records = draw(sound_records)
    what = draw(st.sampled_from(["frame", "record", "byte of the payload", "message", "nothing"]))
    fields: dict[str, Any] = {}
    if what == "frame":
        name = draw(field_of_a_frame)
        fields[name] = draw(numbers.filter(lambda n: n >= 0)) & bits.get(name, (1 << 64) - 1)
    elif what == "record":
        at = draw(st.integers(0, len(records) - 1))
        records = [*records[:at], changed_record(records[at], draw(record_changes)), *records[at + 1 :]]
    elif what == "byte of the payload":
        payload = bytearray(encode_records(records))
        payload[draw(st.integers(0, len(payload) - 1))] ^= 1 << draw(st.integers(0, 7))
        fields["payload"] = bytes(payload)
    top = (draw(st.sampled_from(["epoch", "after", "frames", "flush"])), draw(anything)) if what == "message" else None

    def made(victim: Any) -> Any:
        method, body = shipped(victim, *records, **fields)
        return method, body if top is None else {**body, top[0]: top[1]}

    return made


@settings(max_examples=400)
@given(st.lists(messages(), min_size=1, max_size=4))
def test_a_changed_message_is_refused_without_effect_or_leaves_all_sound(changed: list[Any]) -> None:
    async def run() -> None:
        follower = Follower()
        await follower.begin()
        for make in changed:
            before = await follower.everything()
            message = make(follower.victim())
            try:
                await follower.take(message)
            except TwinlogError:
                assert await follower.everything() == before
            await is_sound(follower)

    asyncio.run(run())


@settings(max_examples=200)
@given(st.sampled_from([FOLLOW, BASE, BASE_DONE]), st.sampled_from(["base", "base-done", "follow-later"]), st.data())
def test_a_changed_call_that_begins_something_changes_nothing(method: str, name: str, data: st.DataObject) -> None:
    async def run() -> None:
        follower = Follower()
        await follower.begin()
        before = await follower.everything()
        called, body = LIES[name](follower.victim())
        fields = KINDS[called].__struct_fields__
        body = {**body, data.draw(st.sampled_from(fields)): data.draw(anything)}
        try:
            position = await follower.take((called, body))
        except TwinlogError:
            pass
        else:
            assert position.state in ("following", "diverged")
        assert await follower.everything() == before

    asyncio.run(run())


def test_the_frames_of_lies_are_frames() -> None:
    data = raw_frame(epoch=1, first_seq=3, previous=2, timestamp=9, committed=2, records=[noop()])
    frame = parse_frame(data)
    assert (frame.last_seq, frame.records) == (3, decode_records(encode_records([noop()])))
