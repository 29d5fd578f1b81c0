"""A restart on a disk that is not this site's newest is found out by the epoch that it opened itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage.log.frame import Frame
from switchover.activation.activation import Activation
from switchover.activation.ports import ActivationRequest
from switchover.register.port import Mode, PairState
from tests.storage.log.frames import a_frame
from twinlog.errors import LogGap


def restarting(mode: Mode, applied_epoch: int, begun: tuple[int, ...]) -> Activation:
    """A restart of site a, the active of epoch 3; its storage is of `applied_epoch`, its WAL has segments of epochs `begun`."""
    segments = [SimpleNamespace(epoch=epoch) for epoch in begun]
    parts: Any = SimpleNamespace(
        site="a", peer="b", clock=None, wal=SimpleNamespace(segments=lambda: segments),
        engine=SimpleNamespace(applied=SimpleNamespace(epoch=applied_epoch, seq=9)),
    )
    request, nothing = ActivationRequest(plan_id="p", kind="restart", reason=""), SimpleNamespace()
    activation = Activation(request, parts, nothing, nothing)  # type: ignore[arg-type]
    activation.before = PairState(state_id=4, epoch=3, epoch_allocated=3, active="a", mode=mode)
    return activation


def tail_of(epoch: int) -> list[Frame]:
    return [a_frame(10, epoch=epoch)]


@pytest.mark.parametrize(("mode", "applied_epoch", "begun", "tail"), [
    ("async", 2, (2, 3), tail_of(3)),  # the WAL began epoch 3 itself, and the storage is only behind it
    ("async", 3, (), []), ("sync", 3, (3,), []),
    ("sync", 2, (2,), tail_of(3)),  # read out of the remote log, which was fenced for this
])
def test_a_disk_that_has_the_own_epoch_is_the_right_one(
    mode: Mode, applied_epoch: int, begun: tuple[int, ...], tail: list[Frame]
) -> None:
    restarting(mode, applied_epoch, begun)._check_own_epoch(tail)


@pytest.mark.parametrize(("mode", "applied_epoch", "begun", "tail"), [
    ("async", 2, (2,), tail_of(3)),  # a copy of an attempt that did not end: without the remote log it proves nothing
    ("async", 2, (2,), []), ("async", 2, (2, 3), tail_of(2)), ("sync", 2, (2, 3), []), ("async", 0, (), []),
])
def test_one_that_has_not_is_another_one(
    mode: Mode, applied_epoch: int, begun: tuple[int, ...], tail: list[Frame]
) -> None:
    with pytest.raises(LogGap, match="but it opened epoch 3: its disk was replaced, or is an older copy"):
        restarting(mode, applied_epoch, begun)._check_own_epoch(tail)
