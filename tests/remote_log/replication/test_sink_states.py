"""The state of a sink where a step of it fails, or its storage is opened anew: nothing counts that is not durable."""

from __future__ import annotations

import pytest

from remote_log.replication.messages import ReplicateRequest
from tests.remote_log.replication.follower import EPOCH, Follower
from tests.remote_log.replication.tables import upsert
from tests.storage.engines.engine_rig import value
from twinlog.errors import EngineFailed, Fenced, Unavailable


@pytest.fixture
async def follower() -> Follower:
    one = Follower()
    await one.begin()
    return one


async def test_an_epoch_is_followed_only_once_that_is_durable(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else this process would refuse the old active, and the next one would take its frames again."""
    async def set_meta(name: str, value: bytes | None) -> None:
        raise EngineFailed("no")

    sink = follower.sink
    monkeypatch.setattr(follower.engine, "set_meta", set_meta)
    with pytest.raises(EngineFailed):
        await sink.set_followed_epoch(EPOCH + 1)
    assert sink.followed_epoch == EPOCH
    monkeypatch.undo()
    await sink.set_followed_epoch(EPOCH + 1)
    assert sink.followed_epoch == EPOCH + 1
    assert follower.engine.meta("followed_epoch") == b"%d" % (EPOCH + 1)
    with pytest.raises(Fenced):
        await follower.ship(upsert(b"9", value(c1=9, c2="x")))


async def test_base_data_counts_only_with_the_word_that_this_process_gave(follower: Follower) -> None:
    sink = follower.sink
    with pytest.raises(Unavailable, match="has not asked for this base data"):
        sink._check_base(EPOCH, "a guess")
    await sink.want_base()
    sink._nonce = "the word"
    sink._check_base(EPOCH, "the word")
    for epoch, nonce in ((EPOCH, "a guess"), (EPOCH + 1, "the word")):
        with pytest.raises(Unavailable, match="has not asked for this base data"):
            sink._check_base(epoch, nonce)


async def test_a_storage_that_was_opened_anew_does_not_vouch_for_its_last_frame(follower: Follower) -> None:
    sink = follower.sink
    sink.as_of_s = 7.0
    assert sink.point.crc is not None
    await sink.reopen_storage()
    assert (sink.point.crc, sink.as_of_s) == (None, None)


async def test_what_is_shipped_is_durable_in_the_answer_to_a_call_that_asks_for_it(follower: Follower) -> None:
    """A resync, a step down and trimming wait for that word; and nobody else pays for it."""
    flushed = follower.engine.durable_seq
    position = await follower.ship(upsert(b"7", value(c1=7, c2="x")))
    assert position.durable_seq == flushed < position.applied_seq
    asked = await follower.sink.replicate(ReplicateRequest(EPOCH, follower.sink.point, b"", flush=True))
    assert asked.durable_seq == asked.applied_seq == position.applied_seq
