"""The age of a stale read counts from the moment for which the active vouched, by the standby's own clock alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remote_log.replication.messages import FollowRequest, Position, ReplicateRequest, Stamp, Vouched, pack_history
from tests.remote_log.replication.follower import EPOCH, Follower
from tests.storage.engines.engine_rig import noop


async def heartbeat(follower: Follower, vouched: Vouched | None) -> Position:
    return await follower.sink.replicate(ReplicateRequest(EPOCH, follower.sink.point, b"", vouched=vouched))


async def following() -> tuple[Follower, Stamp]:
    """At 100 s it has given the answer whose stamp comes back."""
    follower = Follower()
    await follower.begin()
    position = await heartbeat(follower, None)
    assert position.stamp is not None
    return follower, position.stamp


async def test_a_word_that_travelled_for_long_is_of_its_own_moment() -> None:
    """The active held the answer for 0.3 s, and its word arrives 5 s after the answer left."""
    follower, stamp = await following()
    follower.clock.now_s += 5
    await heartbeat(follower, Vouched(stamp, 0.3, follower.sink.point.seq))
    assert follower.sink.as_of_s == pytest.approx(100.3)
    assert follower.sink.heard_s == 105


async def test_what_is_still_missing_is_not_vouched_for() -> None:
    """A backlog that comes in parts: each of them says how far the active had acknowledged."""
    follower, stamp = await following()
    follower.clock.now_s += 5
    await heartbeat(follower, Vouched(stamp, 0.3, follower.sink.point.seq + 1))
    assert follower.sink.as_of_s is None
    frame = follower.log.frame(noop())
    word = Vouched(stamp, 0.3, frame.last_seq)
    await follower.sink.replicate(ReplicateRequest(EPOCH, follower.sink.point, frame.data, vouched=word))
    assert follower.sink.as_of_s == pytest.approx(100.3)


async def test_words_that_cannot_be_are_none_or_bounded() -> None:
    follower, stamp = await following()
    follower.clock.now_s += 5
    at = follower.sink.point.seq
    await heartbeat(follower, Vouched(replace(stamp, life="another process"), 0.3, at))
    assert follower.sink.as_of_s is None
    await heartbeat(follower, Vouched(stamp, 1e9, at))
    assert follower.sink.as_of_s == 105, "no word is of a moment after its arrival"
    await heartbeat(follower, Vouched(stamp, 0.0, at))
    assert follower.sink.as_of_s == 105, "an older word takes nothing back"


@pytest.mark.parametrize("event", ["settle", "reopen_storage"])
async def test_once_less_may_be_here_no_word_of_before_counts(event: str) -> None:
    follower, stamp = await following()
    await heartbeat(follower, Vouched(stamp, 0.0, follower.sink.point.seq))
    assert follower.sink.as_of_s is not None
    await getattr(follower.sink, event)()
    assert follower.sink.as_of_s is None


async def test_the_drift_of_the_other_clock_is_taken_off() -> None:
    follower, stamp = await following()
    follower.sink._drift_margin = 0.2
    follower.clock.now_s += 20
    await heartbeat(follower, Vouched(stamp, 10.0, follower.sink.point.seq))
    assert follower.sink.as_of_s == pytest.approx(108.0)


async def test_an_answer_to_an_invitation_bears_a_stamp() -> None:
    follower, _ = await following()
    history = pack_history(follower.engine.applied.epochs)
    position = await follower.sink.follow(FollowRequest(EPOCH, "a", history))
    assert position.stamp is not None
    assert position.stamp.at_s == follower.clock.now_s
