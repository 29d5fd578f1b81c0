"""A rejoin in the process whose epoch has just ended: what was being appended then. The rest is in tests/gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from remote_log.replication.messages import EpochsReply, LogPoint, pack_history
from remote_log.replication.understanding import Understanding
from remote_log.replication.verification import Verifier
from storage.clock import SystemClock
from storage.engine import EpochEntry
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.failpoints import Failpoints
from storage.log.frame import Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.log.wal import Wal
from switchover.other_site import OtherSite
from switchover.quarantine import QUARANTINE
from switchover.rejoin import Rejoin
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import run
from tests.storage.log.test_wal import in_two_files
from tests.storage.log.wal_rig import paths, settle
from twinlog.errors import Diverged

HISTORY = [EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(2, 9, 8, "b", "takeover")]


class Transport:
    """To an active whose epoch 2 began behind sequence 8."""

    async def call(self, method: str, message: Any, kind: Any, timeout_s: float) -> EpochsReply:
        return EpochsReply(2, 9, pack_history(HISTORY), True, 0)


class Sink:
    followed_epoch = 1
    wants_base = False
    point = LogPoint(8, 1)
    verifier = Verifier(("a", "b"))

    async def confirm(self, epoch: int) -> None:
        """Every epoch was given away."""

    async def settle(self) -> None:
        """Nothing arrives here."""

    async def want_base(self) -> None:
        self.wants_base = True

    async def set_followed_epoch(self, epoch: int) -> None:
        self.followed_epoch = epoch


def a_rejoin(
    files: MemoryFiles, engine: MemoryEngine, wal: Wal, sink: Any, accepted: int | str | None = None
) -> Rejoin:
    return Rejoin(
        site="a", peer="b", engine=engine, wal=wal, accepted=accepted,
        applier=FrameApplier(engine, SystemClock(), BarrierLimits(), on_refused=lambda name, why: None),
        files=files, other=OtherSite("b", Transport(), "", Understanding(files)), sink=sink, failpoints=Failpoints(),
        clear_wal=wal.clear,
    )


@pytest.mark.parametrize("first_fails", [False, True])
async def test_what_was_being_appended_has_ended_before_the_log_is_read(first_fails: bool) -> None:
    """Two files were being written, and what lands in both is told of; or the first one fails, and what is in the second links
    to nothing."""
    files, engine = MemoryFiles(), MemoryEngine()
    wal, outstanding, in_first = await in_two_files(files)
    await engine.apply(run(1, 8))
    sink: Any = Sink()
    rejoin = a_rejoin(files, engine, wal, sink)
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


@pytest.mark.parametrize("logged", [[(9, 10)], [(7, 8), (11, 12)], [(9, 9), (11, 12)], []])
async def test_a_log_that_lacks_a_part_of_what_was_applied_does_not_say_what_to_fetch(logged: list[tuple[int, int]]) -> None:
    """The storage is at 12, the active has it up to 8; the log ends earlier, or has a hole: it is an older copy, or the site
    never was the active. What the storage alone holds is dropped by command only, and by the count of that moment."""
    files, engine = MemoryFiles(), MemoryEngine()
    await engine.apply(run(1, 12))
    wal = await Wal.open(files)
    for epoch, (first, last) in enumerate(logged, 1):  # of a restart each, which may leave a hole
        await wal.start(epoch, first)
        for frame in run(1, 12)[first - 1 : last]:
            await wal.append(frame)
    sink: Any = Sink()
    for accepted in (None, 3, 12, "unknown"):
        with pytest.raises(Diverged) as caught:
            await a_rejoin(files, engine, wal, sink, accepted).run()
        assert (caught.value.fields["at_risk"], sink.wants_base, engine.applied.seq) == (4, False, 12)
    report = await a_rejoin(files, engine, wal, sink, 4).run()
    assert (sink.wants_base, report.base_needed, report.refetched_rows) == (True, True, 0)
    assert report.end_seq == 8
    assert engine.applied.seq == 12, "filled with base data, not cut"


@pytest.mark.parametrize("logged_from", [9, 12])
async def test_an_epoch_that_the_active_does_not_know_is_dropped_only_as_far_as_the_log_has_it(logged_from: int) -> None:
    """The active opened on an older copy, by force, and has never heard of epoch 5. The log here was trimmed by what the other
    site had before: what it lacks of that epoch, only the storage has."""
    files, engine = MemoryFiles(), MemoryEngine()
    frames = [started(1, 1), *run(2, 7), started(5, 9), *run(10, 6, epoch=5)]
    await engine.apply(frames)
    wal = await Wal.open(files)
    await wal.start(5, logged_from)
    for frame in frames[logged_from - 1 :]:
        await wal.append(frame)
    sink: Any = Sink()
    if logged_from > 9:
        with pytest.raises(Diverged) as caught:
            await a_rejoin(files, engine, wal, sink).run()
        assert (caught.value.fields["at_risk"], sink.wants_base, engine.applied.seq) == ("unknown", False, 15)
        assert await files.list(QUARANTINE) == []
    report = await a_rejoin(files, engine, wal, sink, None if logged_from == 9 else "unknown").run()
    assert (sink.wants_base, report.quarantined_frames) == (True, 16 - logged_from)


def started(epoch: int, seq: int) -> Frame:
    mark = EpochStart(epoch, "a", "bootstrap", f"p{epoch}")
    return make_frame(
        epoch=epoch, first_seq=seq, previous=seq - 1, timestamp=seq, committed=seq - 1,
        records=[Record(RecordKind.EPOCH_START, value=msgspec.msgpack.encode(mark))],
    )
