"""Admission: what enters, what is refused, and that its check sees each mistake that is planted in it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gateway.epoch.commit_rule import CommitSettings
from gateway.service import admission
from gateway.service.admission import Admission
from storage.invariants import InvariantBroken, watched
from tests.planting import planted
from twinlog.errors import Overloaded


def test_a_full_queue_refuses_and_counts_nothing() -> None:
    path = Admission(CommitSettings(queue_bytes_max=100, requests_max=3))
    path.enter(60)
    with pytest.raises(Overloaded):
        path.enter(41)
    assert (path.requests, path.queued_bytes, path.refused) == (1, 60, 1)
    path.enter(40)
    path.leave(60)
    path.leave(40)
    assert (path.requests, path.queued_bytes) == (0, 0)


def test_a_request_above_the_limit_enters_an_idle_path_alone() -> None:
    path = Admission(CommitSettings(queue_bytes_max=100, requests_max=3))
    path.enter(1_000)
    with pytest.raises(Overloaded):
        path.enter(1)


def test_a_request_that_leaves_twice_is_seen() -> None:
    path = Admission(CommitSettings())
    path.enter(5)
    path.leave(5)
    with watched() as broken, pytest.raises(InvariantBroken):
        path.leave(5)
    assert len(broken) == 1


def walk(module: Any, seed: int) -> None:
    chance = Random(seed)
    path = module.Admission(CommitSettings(queue_bytes_max=100, requests_max=3))
    inside: list[int] = []
    for _ in range(60):
        if inside and chance.random() < 0.4:
            path.leave(inside.pop(chance.randrange(len(inside))))
            continue
        try:
            path.enter(size := chance.choice((10, 50, 90, 200)))
        except Overloaded:
            continue
        inside.append(size)


def walks(module: Any) -> list[InvariantBroken]:
    with watched(costly_too=False) as broken:
        for seed in range(20):
            try:
                walk(module, seed)
            except InvariantBroken:
                break
    return broken


def test_admission_as_it_is_breaks_none() -> None:
    assert not walks(admission)


@pytest.mark.parametrize(("right", "wrong", "message"), [
    ("self.requests >= self._limits.requests_max", "False", "were let in"),
    ("self.queued_bytes + size_bytes > self._limits.queue_bytes_max or", "", "were let in"),
    ("self.queued_bytes -= size_bytes", "pass", "with another size"),
    ("self.requests -= 1", "self.requests -= 2", "left twice"),
    ("self.requests += 1", "pass", "left twice"),
])
def test_a_planted_mistake_is_seen(right: str, wrong: str, message: str) -> None:
    (broken,) = walks(planted(admission, right, wrong))
    assert message in str(broken)
