"""Writes a local log as an active does: epochs, segments that fill, appends in flight, a roll, a trim, a withdrawn start."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant

SEGMENT_BYTES = 4000


async def main(root: Path, marks: Marks) -> None:
    from storage.disk.os_files import OsFiles
    from storage.log.wal import Wal, WalSettings
    from tests.storage.log.frames import a_frame

    files = OsFiles(root)
    settings = WalSettings(segment_bytes=SEGMENT_BYTES, tail_bytes_max=1 << 20)

    async def write(wal: Wal, epoch: int, first: int, last: int, at_once: int) -> None:
        """Frames of one record each, `at_once` of them in flight together, as a commit log sends them."""
        for begin in range(first, last + 1, at_once):
            appended = []
            for seq in range(begin, min(begin + at_once, last + 1)):
                marks.say(f"sent {epoch} {seq}")
                frame = a_frame(seq, epoch=epoch, committed=begin - 1, value=b"%04d" % seq * (1 + seq % 4 * 120))  # some tear
                appended.append(wal.append(frame))
                appended[-1].add_done_callback(lambda done, seq=seq: done.result() or marks.say(f"durable {epoch} {seq}"))
            await asyncio.gather(*appended)

    wal = await Wal.open(files, settings=settings)
    await wal.start(1, 1)
    await write(wal, 1, 1, 14, 3)
    for first in (15, 17, 19):  # segments of two frames, however fast the disk was before
        await wal.roll(first)
        await write(wal, 1, first, first + 1, 1)
    await wal.close()
    wal = await Wal.open(files, settings=settings)
    await wal.start(2, 21)
    await write(wal, 2, 21, 28, 2)
    marks.say("trims 20")
    await wal.trim(20)
    await write(wal, 2, 29, 32, 4)
    await wal.close()
    await files.close()


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
