"""A closed active looks at itself before a degrade lets it open without the other site's DFS."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from remote_log.replication.messages import StatusReply
from storage.log.frame import Frame
from switchover.activation.alone import check_whole_alone
from tests.storage.log.frames import run
from twinlog.errors import LogGap, PeerError

AWAY = PeerError("site b does not answer")


def parts(frames: Sequence[Frame], applied_seq: int, told: StatusReply | None) -> Any:
    """Site a with a WAL of `frames` and a storage at `applied_seq` of epoch 1; `told` None: the other site is away."""
    async def settle() -> None:
        return None

    async def read_all(after_seq: int = 0) -> list[Frame]:
        return [frame for frame in frames if frame.last_seq > after_seq]

    async def status(timeout_s: float) -> StatusReply:
        if told is None:
            raise AWAY
        return told

    return SimpleNamespace(
        site="a", peer="b", engine=SimpleNamespace(applied=SimpleNamespace(seq=applied_seq, epoch=1)),
        wal=SimpleNamespace(settle=settle, read_all=read_all, is_unbroken=True, last_seq=frames[-1].last_seq),
        other_site=SimpleNamespace(status=status),
    )


def other(role: str, applied_seq: int) -> StatusReply:
    return StatusReply("b", role, 1, "sync", applied_seq, applied_seq, 0, "")


@pytest.mark.parametrize("told", [None, other("STANDBY", 12), other("STANDBY", 9), other("CLOSED", 99)])
async def test_a_log_that_holds_all_that_is_known_of_is_whole(told: StatusReply | None) -> None:
    await check_whole_alone(parts(run(1, 12), 10, told))
    await check_whole_alone(parts(run(5, 8), 12, told))


async def test_a_log_that_ends_before_its_storage_is_an_older_copy() -> None:
    """Storage and log alone do not show what the log held behind the storage; nor does the other site, which is away."""
    with pytest.raises(LogGap, match=r"ends at 9 .*before its storage at 10"):
        await check_whole_alone(parts(run(1, 9), 10, None))


async def test_a_log_that_does_not_continue_the_storage_is_not_whole() -> None:
    with pytest.raises(LogGap) as gap:
        await check_whole_alone(parts(run(14, 3), 10, None))
    assert "`twinlog failover --to b`" in gap.value.message


async def test_a_standby_that_has_applied_more_shows_that_both_are_older() -> None:
    with pytest.raises(LogGap, match="at least 1 acknowledged records are missing"):
        await check_whole_alone(parts(run(1, 12), 10, other("STANDBY", 13)))
