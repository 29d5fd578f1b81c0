"""Writes an audit trail in two lives, with files so short that it goes over several of them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant


async def main(root: Path, marks: Marks) -> None:
    from gateway.trail import chain
    from gateway.trail.entry import Who
    from gateway.trail.trail import Trail
    from storage.clock import SystemClock
    from storage.disk.os_files import OsFiles

    chain.FILE_BYTES_MAX = 6000
    files = OsFiles(root)
    number = 0
    for _ in range(2):
        trail = Trail(files, SystemClock(), pair="p", site="a")
        await trail.open()
        for _ in range(5):
            number += 1
            placed = await trail.write("table.drop", Who("anna", "token"), "done", {"n": number, "table": "t" * 1800})
            if placed.is_written:
                marks.say(f"written {number} {trail.head.number} {trail.head.sha256}")
        await trail.close()
    await files.close()


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
