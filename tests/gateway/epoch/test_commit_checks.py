"""The checks of the commit rule: each mistake that is planted in it breaks an invariant, on one of a hundred random orders."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest

from gateway.epoch import commit_rule
from storage.invariants import InvariantBroken, watched
from storage.log.record import Record, RecordKind
from tests.planting import planted

EVENTS = ("make", "make", "make", "local", "remote", "fail", "async", "catch", "tighten", "sync")


def walk(rule: Any, seed: int) -> None:
    """Sixty events, as a driver with two logs brings them."""
    chance, modes = Random(seed), rule.CommitMode
    core = rule.CommitCore(epoch=3, standing=10, next_seq=11, mode=modes.SYNC)
    local, remote = deque[Any](), deque[Any]()
    goal = 0
    for _ in range(60):
        match chance.choice(EVENTS):
            case "make":
                frame = core.make([Record(RecordKind.NOOP)] * chance.randint(1, 3), 1)
                local.append(frame)
                if core.writes_remote:
                    remote.append(frame)
            case "local" if local:
                core.local_synced(local.popleft().last_seq)
            case "remote" if remote:
                core.remote_synced(remote.popleft().last_seq)
            case "fail":
                standing = core.local_failed().standing
                local.clear()
                remote = deque(frame for frame in remote if frame.last_seq <= standing)
            case "async":
                remote.clear()
                core.set_mode(modes.ASYNC)
            case "catch" if core.mode is modes.ASYNC:
                core.switch_remote_on()
            case "tighten" if core.mode is modes.CATCHING:
                core.set_mode(modes.TIGHTENING)
                goal = core.committed  # without the remote log
            case "sync" if core.mode is modes.TIGHTENING and core.remote >= goal:
                core.set_mode(modes.SYNC)


def walks(rule: Any, *, costly: bool) -> list[InvariantBroken]:
    with watched(costly_too=costly) as broken:
        for seed in range(100):
            try:
                walk(rule, seed)
            except InvariantBroken:
                break
    return broken


def test_the_rule_as_it_is_breaks_none() -> None:
    assert not walks(commit_rule, costly=True)


@pytest.mark.parametrize(("right", "wrong", "costly", "message"), [
    ("limit = min(self.local, self.remote) if", "limit = self.local if", False, "in both logs"),
    ("self.next_seq += frame.count", "self.next_seq = frame.last_seq", False, "standing < next"),
    ("self.local = max(self.local, seq)", "self.local = self.next_seq", False, "local < next"),
    ("self.remote = max(self.remote, seq)", "self.remote = self.next_seq", False, "remote < next"),
    ("frames.append(self._in_flight.popleft())", "frames.insert(0, self._in_flight.popleft())", True, "continues"),
    ("previous=self.standing", "previous=self.committed", True, "continues"),
    ("self.standing = failed[0].previous", "pass", True, "which is what stands"),
    ("self.mode in (CommitMode.SYNC, CommitMode.TIGHTENING)", "self.mode is CommitMode.SYNC", False, "once both logs hold"),
    ("self._in_flight = deque(kept)", "pass", True, "which is what stands"),
    ("self._in_flight = deque(kept)", "self._in_flight = deque(failed)", True, "which is what stands"),
])
def test_a_planted_mistake_is_seen(right: str, wrong: str, costly: bool, message: str) -> None:
    rule = planted(commit_rule, right, wrong)
    (broken,) = walks(rule, costly=costly)
    assert message in str(broken)
