"""A rejoin in the process whose epoch has just ended: what was being appended then. The rest is in tests/gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remote_log.replication.messages import EpochsReply, LogPoint, pack_history, to_message
from remote_log.replication.verification import Verifier
from storage.clock import SystemClock
from storage.engine import EpochEntry
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.failpoints import Failpoints
from switchover.rejoin import QUARANTINE, Rejoin
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import run
from tests.storage.log.test_wal import in_two_files
from tests.storage.log.wal_rig import paths, settle

HISTORY = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(2, 9, 8, "b", "takeover")]


class Transport:
    """To an active whose epoch 2 began behind sequence 8."""

    async def call(self, path: str, message: Any, timeout_s: float) -> Any:
        return to_message(EpochsReply(2, 9, pack_history(HISTORY), True, 0))


class Sink:
    followed_epoch = 1
    point = LogPoint(8, 1)
    verifier = Verifier(("a", "b"))

    async def confirm(self, epoch: int) -> None:
        """Every epoch was given away."""

    async def settle(self) -> None:
        """Nothing arrives here."""

    async def set_followed_epoch(self, epoch: int) -> None:
        self.followed_epoch = epoch


@pytest.mark.parametrize("first_fails", [False, True])
async def test_what_was_being_appended_has_ended_before_the_log_is_read(first_fails: bool) -> None:
    """Two files were being written, and what lands in both is told of; or the first one fails, and what is in the second links
    to nothing."""
    files, engine = MemoryFiles(), MemoryEngine()
    wal, outstanding, in_first = await in_two_files(files)
    await engine.apply(run(1, 8))
    sink: Any = Sink()
    rejoin = Rejoin(
        site="a", engine=engine, wal=wal,
        applier=FrameApplier(engine, SystemClock(), BarrierLimits(), on_refused=lambda name, why: None),
        files=files, transport=Transport(), sink=sink, failpoints=Failpoints(),  # type: ignore[arg-type]
    )
    first, second = paths(files)
    running = asyncio.ensure_future(rejoin.run())
    await settle()
    files.sync(second)
    await settle()
    assert not running.done()
    (files.fail if first_fails else files.sync)(first)
    files.hold = False
    report = await running
    assert (report.end_seq, sink.followed_epoch, wal.segments()) == (8, 2, [])
    assert report.dropped_frames == (0 if first_fails else len(outstanding)), "never acknowledged"
    assert 0 < in_first < len(outstanding)
    assert await files.list(QUARANTINE) == []
