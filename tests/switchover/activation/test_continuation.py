"""The frames that a new epoch continues from: random histories of writers against what stands by definition, as modelled."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.frame import Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from switchover.activation.continuation import (
    check_told,
    ends_before,
    frames_after,
    frames_after_by_force,
    frames_to_copy,
    from_first_of,
    is_broken,
    joined,
    staying,
    unopened_starts,
)
from switchover.register.port import Beat, PairState
from twinlog.errors import LogGap


def kind_at(seq: int, *, first: int) -> RecordKind:
    """An epoch begins with the record at `first`."""
    return RecordKind.EPOCH_START if seq == first else RecordKind.NOOP


def made(epoch: int, seq: int, previous: int, kind: RecordKind = RecordKind.NOOP) -> Frame:
    return make_frame(
        epoch=epoch, first_seq=seq, previous=previous, timestamp=seq, committed=0, flags=0, records=[Record(kind)]
    )


def chain(frames: list[Frame]) -> list[Frame] | None:
    """The model's definition, frame by frame: None where a link is missing."""
    out: list[Frame] = []
    for frame in sorted({f.position: f for f in frames}.values(), key=lambda f: f.position):
        while out and out[-1].last_seq > frame.previous:
            out.pop()
        if out and out[-1].last_seq != frame.previous:
            return None
        out.append(frame)
    return out


@dataclass
class History:
    """One writer after another: what it wrote to its WAL and to the remote log, and what stands at the end of both."""

    local: list[Frame] = field(default_factory=list)
    remote: list[Frame] = field(default_factory=list)
    log: list[Frame] = field(default_factory=list)  # committed: in both logs, in order


def a_history(rng: random.Random, epochs: int = 3) -> History:
    """Restarts of one site in synchronous mode, as in the model: a write may be in either log, in both, or in none."""
    history, seq = History(), 0
    for epoch in range(1, epochs + 1):
        union = chain(history.local + history.remote) or []
        history.remote += [f for f in union if f not in history.remote]
        history.local += [f for f in union if f not in history.local]
        history.log = union
        standing, seq = (union[-1].last_seq if union else 0), seq + 1
        start = made(epoch, seq, standing, RecordKind.EPOCH_START)
        history.local.append(start)
        history.remote.append(start)
        history.log.append(start)
        standing = seq
        for _ in range(rng.randrange(6)):
            seq += 1
            frame = made(epoch, seq, standing)
            where = rng.choice(("both", "both", "both", "remote", "none"))
            if where != "none":
                history.remote.append(frame)
            if where == "both":
                history.local.append(frame)
                history.log.append(frame)
                standing = seq
        seq += 1
        if rng.random() < 0.5:  # the last one, of which the remote log never heard
            history.local.append(made(epoch, seq, standing))
    return history


@given(st.integers(0, 10**9))
def test_a_restart_continues_with_what_stands_in_both_logs(seed: int) -> None:
    rng = random.Random(seed)
    history = a_history(rng)
    frames = rng.sample(history.local + history.remote, len(history.local) + len(history.remote))
    stands = chain(frames)
    assert stands is not None
    at = rng.randrange(len(history.log))
    seq, epoch = history.log[at].last_seq, history.log[at].epoch
    tail = frames_after(frames, seq, epoch)
    assert tail == stands[at + 1 :]
    assert history.log[at + 1 :] == tail[: len(history.log) - at - 1], "everything committed is in it"


@given(st.integers(0, 10**9))
def test_what_is_copied_makes_the_remote_log_whole(seed: int) -> None:
    rng = random.Random(seed)
    history = a_history(rng)
    trimmed = rng.randrange(len(history.log))  # the peer has durably applied so many
    durable = history.log[trimmed - 1].last_seq if trimmed else 0
    remote = [frame for frame in history.remote if frame.last_seq > durable]
    kept = rng.randrange(trimmed + 1)  # the own engine blocks less, or more, of the own WAL
    local = [frame for frame in history.local if frame.last_seq > (history.log[kept - 1].last_seq if kept else 0)]
    end = (chain(history.local + history.remote) or [])[-1]
    copied = frames_to_copy(joined([*remote, *local], (end.epoch, end.last_seq)), remote, whole=True)
    assert not {frame.position for frame in copied} & {frame.position for frame in remote}
    at = (durable, history.log[trimmed - 1].epoch) if trimmed else (0, 0)
    assert frames_after([*remote, *copied], *at) == (chain(history.local + history.remote) or [])[trimmed:]


@given(st.integers(0, 10**9))
def test_what_a_damaged_remote_log_lost_is_copied_from_the_own_one(seed: int) -> None:
    """Also what lay before the first frame that can still be read."""
    rng = random.Random(seed)
    history = a_history(rng)
    trimmed = rng.randrange(len(history.log))
    durable = history.log[trimmed - 1].last_seq if trimmed else 0
    remote = [frame for frame in history.log if frame.last_seq > durable and rng.random() < 0.5]
    copied = frames_to_copy(history.log, remote, whole=False)
    at = (durable, history.log[trimmed - 1].epoch) if trimmed else (0, 0)
    assert frames_after([*remote, *copied], *at) == history.log[trimmed:]


@given(st.integers(0, 10**9))
def test_a_wal_that_went_back_leaves_no_hole_in_either_log(seed: int) -> None:
    """It ends anywhere, the remote log begins anywhere behind what the storages have: both logs continue from the storage, and
    from everything behind it that stands."""
    rng = random.Random(seed)
    log = a_history(rng).log
    at = rng.randrange(len(log))
    applied, end = (log[at].epoch, log[at].last_seq), (log[-1].epoch, log[-1].last_seq)
    remote = log[rng.randrange(at + 2) :]
    local = log[rng.randrange(at + 2) :][: rng.randrange(len(log) + 1)]
    whole = joined([*remote, *local], end)
    assert whole == log[len(log) - len(whole) :]
    copied = frames_to_copy(whole, remote, whole=True)
    assert [*frames_after([*remote, *copied], *applied[::-1])] == log[at + 1 :]
    written = from_first_of(local, whole)
    wal = whole if is_broken([*local, *written], end) else {frame.position: frame for frame in [*local, *written]}.values()
    assert joined(list(wal), end) == chain(list(wal)), "no hole"
    assert frames_after(list(wal), *applied[::-1]) == log[at + 1 :]
    if not is_broken([*local, *written], end):
        assert all(frame.position > local[-1].position for frame in written if local and frame not in local), "in their order"


@given(st.integers(0, 10**9))
def test_what_stays_in_the_own_log_is_what_the_rest_can_be_written_behind(seed: int) -> None:
    rng = random.Random(seed)
    log = a_history(rng).log
    share = rng.choice((0.0, 0.5, 1.0))
    local = log[: rng.randrange(len(log) + 1)] if rng.random() < 0.5 else [frame for frame in log if rng.random() < share]
    kept = staying(local, log)
    assert kept == log[: len(kept)]
    assert kept == (local if local == log[: len(local)] else []), "all of it, or all of the log is written anew"


def test_a_wal_is_an_older_copy_when_it_ends_before_the_storage() -> None:
    log = [made(1, 1, 0), made(1, 2, 1), made(1, 3, 2)]
    assert not ends_before(log, (1, 3))
    assert not ends_before(log, (1, 2)), "a crash took the end from the storage"
    assert ends_before(log[:2], (1, 3))
    assert ends_before(log, (2, 3)), "of an older epoch"
    assert ends_before([], (1, 1))
    assert not ends_before([], (0, 0))


def test_what_leads_elsewhere_is_joined_to_nothing() -> None:
    dead = [made(1, 1, 0), made(1, 2, 1), made(1, 3, 2)]
    assert joined(dead, (1, 3)) == dead
    assert joined(dead, (2, 3)) == [], "a dead epoch's frame of the same number"
    assert joined([dead[0], dead[2]], (1, 3)) == [dead[2]]
    assert is_broken([dead[0], dead[2]], (1, 3))
    assert is_broken(dead, (2, 3))
    assert not is_broken([], (2, 3)), "an empty log has no hole"


@given(st.integers(0, 10**9))
def test_a_hole_stops_whoever_is_not_forced_and_costs_only_what_lies_behind_it(seed: int) -> None:
    rng = random.Random(seed)
    log = a_history(rng).log
    hole = rng.randrange(len(log))
    at = rng.randrange(hole + 1)
    seq, epoch = (log[at - 1].last_seq, log[at - 1].epoch) if at else (0, 0)
    frames = log[:hole] + log[hole + 1 :]
    if hole + 1 < len(log):
        with pytest.raises(LogGap):
            frames_after(frames, seq, epoch)
    assert frames_after_by_force(frames, [], seq, epoch) == log[at:hole]


@given(st.integers(0, 10**9))
def test_a_storage_that_diverged_is_never_continued_by_the_numbers_alone(seed: int) -> None:
    """The other site went on from `end` in an epoch of its own; this one has written above `end` meanwhile."""
    rng = random.Random(seed)
    shared = [made(1, seq, seq - 1, kind_at(seq, first=1)) for seq in range(1, rng.randrange(2, 6))]
    end = shared[-1].last_seq
    own = [made(1, seq, seq - 1) for seq in range(end + 1, end + rng.randrange(2, 6))]
    theirs = [made(2, seq, seq - 1, kind_at(seq, first=end + 1)) for seq in range(end + 1, end + 9)]
    seen = theirs[rng.randrange(len(theirs)) :]  # its remote log was switched on later, or trimmed
    applied = own[rng.randrange(len(own))].last_seq
    if any(frame.last_seq > applied for frame in seen):
        with pytest.raises(LogGap):
            frames_after(seen, applied, 1)
    assert frames_after_by_force(seen, own, applied, 1) == [frame for frame in own if frame.last_seq > applied]


def a_start(epoch: int, seq: int, previous: int, site: str) -> Frame:
    value = msgspec.msgpack.encode(EpochStart(epoch, site, "takeover", "plan"))
    return make_frame(
        epoch=epoch, first_seq=seq, previous=previous, timestamp=seq, committed=0, flags=0,
        records=[Record(RecordKind.EPOCH_START, value=value)],
    )


@pytest.mark.parametrize("unseen", [1, 2, 5])
def test_an_attempt_s_start_does_not_cut_off_what_the_next_takeover_copies(unseen: int) -> None:
    """The old active brought `unseen` frames into the remote log that the first attempt had not found there."""
    begun = [a_start(1, 1, 0, "a"), made(1, 2, 1)]
    attempt = [*begun, a_start(2, 3, 2, "b")]
    late = [made(1, seq, seq - 1) for seq in range(3, 3 + unseen)]
    end = late[-1].last_seq
    remote = [*begun, *late, a_start(3, end + 1, end, "a")]
    starts = unopened_starts(attempt, remote, "b", 1)
    assert starts == attempt[-1:]
    opened = a_start(4, end + 2, end + 1, "b")
    kept = [frame for frame in attempt if frame not in starts]
    assert frames_after([*kept, *remote, opened], 2, 1) == [*late, remote[-1], opened]
    with_it = [*attempt, *remote, opened]
    if unseen > 1:
        with pytest.raises(LogGap):
            frames_after(with_it, 2, 1)
    else:
        assert not set(late) & set(frames_after(with_it, 2, 1)), "taken for the frame that ends at the same sequence"


def test_which_starts_are_of_an_attempt() -> None:
    begun = [a_start(1, 1, 0, "a"), made(1, 2, 1)]
    twice = [*begun, a_start(2, 3, 2, "b"), a_start(3, 4, 3, "b")]
    assert unopened_starts(twice, begun, "b", 1) == [twice[3], twice[2]]
    assert unopened_starts(twice, [*begun, twice[2]], "b", 1) == [twice[3]], "the other site may have continued the shared one"
    assert unopened_starts(twice, begun, "b", 2) == [twice[3]], "the storage is in epoch 2: it opened"
    assert unopened_starts([*twice, made(3, 5, 4)], begun, "b", 1) == [], "more was written in epoch 3: it opened"
    assert unopened_starts(twice, begun, "a", 1) == [], "the other site's, copied: the chain goes through it"
    assert unopened_starts([], begun, "b", 1) == []


def test_a_site_that_holds_less_than_its_last_renewal_reported_does_not_open() -> None:
    renewed = PairState(mode="async", beat=Beat(committed_seq=40, wall_ms=1, lease_s=1.0))
    check_told("a", PairState(), 0)
    check_told("a", renewed, 40)
    with pytest.raises(LogGap, match="had committed 40, but its storage and log end at 39") as missing:
        check_told("a", renewed, 39)
    assert "whether the other site has applied more than 39" in str(missing.value)
