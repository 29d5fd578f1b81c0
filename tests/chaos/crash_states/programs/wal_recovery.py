"""Opens a local log after the death of its writer; from then on whoever asks is answered with all that it found."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant


async def main(root: Path, marks: Marks) -> None:
    from storage.disk.os_files import OsFiles
    from storage.log.chain import standing
    from storage.log.wal import Wal

    files = OsFiles(root)
    wal = await Wal.open(files)
    frames = standing(await wal.read_all())
    for frame in frames:
        marks.say(f"durable {frame.epoch} {frame.last_seq}")
    marks.say(f"found {len(frames)}")
    await wal.close()
    await files.close()


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
