"""Keeps rows in RocksDB as a site does: frames applied, flushed, notes, kept snapshots that come and go, base data."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant


async def main(root: Path, marks: Marks) -> None:
    from storage.engines.rocks.engine import RocksEngine
    from storage.engines.rocks.opening import RocksSettings
    from tests.storage.engines.engine_rig import Log, put_table, start_epoch, upsert, value

    engine = await RocksEngine.open(root / "storage", RocksSettings(write_buffer_bytes=1 << 20))
    marks.say("opened")
    log = Log()
    await engine.apply([log.frame(start_epoch(1), put_table())])
    for turn in range(3):
        for _ in range(3):
            marks.say(f"applies {log.seq + 1}")
            await engine.apply([log.frame(upsert(b"k%d" % log.seq, value(c1=log.seq)))])
        marks.say(f"durable {await engine.flush()}")
        await engine.set_meta("note", b"%d" % turn)
        marks.say(f"noted {turn}")
        await engine.keep_snapshot(f"barrier{turn}", turn)
        marks.say(f"kept {turn} {log.seq}")
    await engine.close()
    engine = await RocksEngine.open(root / "storage", RocksSettings(write_buffer_bytes=1 << 20))
    marks.say("releases 0")
    await engine.release_snapshot("barrier0")
    marks.say("released 0")
    await engine.close()
    marks.say("closed")


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
