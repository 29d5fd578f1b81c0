"""Two sites on one directory: one claims an epoch and writes segments, the other one keeps a register, claims the next epoch,
fences, reads, and deletes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant


async def main(root: Path, marks: Marks) -> None:
    from remote_log.dfs.directory import DirectoryDfs
    from remote_log.dfs.port import DfsWriter
    from remote_log.fencing.claims import ClaimContent, claim
    from remote_log.fencing.fence import fence
    from remote_log.fencing.reading import read_frames, segments_below
    from remote_log.layout import RemoteLayout
    from storage.clock import SystemClock
    from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, encode_frames, encode_header, wal_name
    from switchover.register.dfs_folder import RegisterFolder
    from switchover.register.port import PairState
    from tests.storage.log.frames import a_frame

    layout = RemoteLayout("pair")
    ours, theirs = (DirectoryDfs(root / "dfs", "dfs.path", 600.0, marks=marks) for marks in (False, True))

    async def take(dfs: DirectoryDfs, epoch: int) -> None:
        marks.say(f"claims {epoch}")
        await claim(dfs, layout, epoch, ClaimContent("b", f"plan{epoch}", "failover", "because " * 90, 1, epoch - 1))
        marks.say(f"claimed {epoch}")

    async def segment(number: int, first: int) -> DfsWriter:
        path = layout.segment(1, wal_name(1, 1), number)
        writer = await ours.create(path)
        await writer.append(encode_header(SegmentHeader(0, 1, first, wal_name(1, 1), REMOTE_ALIGNMENT)))
        return writer

    async def write(writer: DfsWriter, first: int, last: int) -> None:
        appended = []
        for seq in range(first, last + 1):
            marks.say(f"sent {seq}")
            frame = a_frame(seq, committed=first - 1, value=b"%04d" % seq * (1 + seq % 3 * 200))
            appended.append(asyncio.ensure_future(writer.append(encode_frames([frame], REMOTE_ALIGNMENT))))
            appended[-1].add_done_callback(lambda done, seq=seq: done.result() or marks.say(f"durable {seq}"))
        await asyncio.gather(*appended)

    await theirs.probe()
    register, tip = RegisterFolder(theirs, layout, "b", SystemClock()), None
    await take(ours, 1)
    closed = await segment(0, 1)
    await write(closed, 1, 3)
    await closed.close()
    for number, first in ((1, 4), (2, 7)):
        writer = await segment(number, first)
        await write(writer, first, first)
        await write(writer, first + 1, first + 2)
    tip = await register.tip()
    for epoch in range(1, 4):
        added = await register.add(tip, PairState(epoch, epoch, epoch, "a", "plan"))
        assert added is not None
        tip = added
        marks.say(f"registered {tip.number}")
    await take(theirs, 2)
    await fence(theirs, layout, 2, SystemClock(), 600.0)
    frames = await read_frames(theirs, layout, 2)
    marks.say("read " + " ".join(str(frame.last_seq) for frame in frames))
    for path in (await segments_below(theirs, layout, 2))[:1]:
        marks.say(f"deletes {path} " + " ".join(str(seq) for seq in range(1, 4)))
        await theirs.delete(path)
        marks.say(f"deleted {path}")
    marks.say("deletes all")
    await theirs.delete(layout.epoch_folder(1))
    marks.say("deleted all")


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
