"""Keeps the files of a site: its data directory, small sealed files, the journal, and the coordinator, both in SQLite."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from tests.chaos.crash_states.programs.planted import Marks, plant


async def main(root: Path, marks: Marks) -> None:
    from storage.clock import SystemClock
    from storage.disk.data_dir import open_data_dir
    from storage.disk.os_files import OsFiles
    from storage.disk.sealed_json import seal
    from switchover.operations.document import HistoryEntry, Operation
    from switchover.operations.sql_journal import SqlJournal
    from switchover.register.port import PairState
    from switchover.register.remembering import PATH
    from switchover.register.sql import SqlCoordinator

    data = root / "sites" / "a"
    folder = open_data_dir(data, "pair", "a")
    marks.say("identity " + (data / "twinlog.json").read_text().split('"')[-2])
    files = OsFiles(data)
    for state in range(1, 4):
        await files.write_new(PATH, seal(PairState(state, state, state, reason="because " * 90 * state)))
        marks.say(f"met {state}")

    async def parts() -> AsyncGenerator[bytes, None]:
        for _ in range(4):
            yield b"frames" * 50

    await files.write_parts("quarantine/one.frames", parts())
    marks.say("quarantined")
    await files.rename("quarantine/one.frames", "quarantine/one.frames.merged")
    marks.say("merged")
    coordinator = SqlCoordinator(f"sqlite:///{root}/coordinator/register.db", "pair", SystemClock(), 600.0)
    value = None
    for epoch in range(1, 4):
        new = PairState(0, epoch, epoch, "a", f"plan{epoch}", reason=f"epoch {epoch}")
        value = await coordinator.compare_and_set(value, new)
        marks.say(f"registered {epoch}")
    await coordinator.close()
    journal = SqlJournal(f"sqlite:///{data}/journal.db", 600.0)
    for number in range(1, 4):
        name = f"op{number}"
        operation = Operation(name, "switchover", "b", {"why": "because " * 300}, "ann", number, ())
        await journal.create(operation, HistoryEntry(number, name, "switchover", "b", "ann", "started"))
        marks.say(f"journaled {number}")
    await journal.close()
    await files.close()
    folder.close()


if __name__ == "__main__":
    plant(sys.argv[3:])
    asyncio.run(main(Path(sys.argv[1]), Marks(sys.argv[2])))
