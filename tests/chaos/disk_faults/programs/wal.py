"""A local log that does what it is asked for, and says what came of it: `append SEQ PREVIOUS`, `roll SEQ`.

It is started as `python -m tests.chaos.disk_faults.programs.wal ROOT [MODULE RIGHT WRONG]...`: a mistake may be planted.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import plant

SEGMENT_BYTES = 4000
VALUE = b"v" * 100


async def main(root: Path) -> None:
    from storage.disk.os_files import OsFiles
    from storage.log.wal import Wal, WalSettings
    from tests.storage.log.frames import a_frame
    from twinlog.errors import SyncFailed

    files = OsFiles(root)
    wal = await Wal.open(files, settings=WalSettings(segment_bytes=SEGMENT_BYTES, tail_bytes_max=1 << 20))
    await wal.start(1, 1)

    async def make(line: str) -> None:
        what, *numbers = line.split()
        seqs = list(map(int, numbers))
        try:
            if what == "append":
                await wal.append(a_frame(seqs[0], previous=seqs[1], value=VALUE))
            else:
                wal.forget_after(seqs[0] - 1)
                await wal.roll(seqs[0])
            print(f"{line}: ok", flush=True)  # noqa: T201
        except SyncFailed as error:
            print(f"{line}: {error.message}", flush=True)  # noqa: T201

    running = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        running.add(asyncio.ensure_future(make(line.strip())))
        await asyncio.sleep(0)
    await asyncio.gather(*running)
    await wal.close()
    await files.close()


if __name__ == "__main__":
    plant(sys.argv[2:])
    asyncio.run(main(Path(sys.argv[1])))
