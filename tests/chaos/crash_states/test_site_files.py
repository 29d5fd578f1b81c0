"""The files of a site after a power loss: data directory, small sealed files, journal and coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.crash_states.disk import Disk
from storage.clock import SystemClock
from storage.disk.data_dir import open_data_dir
from storage.disk.os_files import OsFiles
from switchover.operations.sql_journal import SqlJournal
from switchover.register.remembering import last_met
from switchover.register.sql import SqlCoordinator
from tests.chaos.crash_states.rig import Judged, Plant, judge, recorded, without

pytestmark = [pytest.mark.usefixtures("records_calls"), pytest.mark.long]
MOST = 8  # of one moment


@dataclass(frozen=True)
class Found:
    identity: str
    met: int
    quarantine: list[str]
    registered: int
    journaled: int


async def start(root: Path) -> Found:
    """As a gateway starts, after a power loss at the coordinator as well."""
    data = root / "sites" / "a"
    folder = open_data_dir(data, "pair", "a")
    identity = (data / "twinlog.json").read_text().split('"')[-2]
    files = OsFiles(data)
    met = await last_met(files)
    quarantine = [name for name in await files.list("quarantine") if not name.endswith(".new")]
    assert [len(await files.read(f"quarantine/{name}")) for name in quarantine] == [1200] * len(quarantine)
    await files.close()
    coordinator = SqlCoordinator(f"sqlite:///{root}/coordinator/register.db", "pair", SystemClock(), 600.0)
    value = await coordinator.read()
    assert value is None or await coordinator.held(value)
    await coordinator.close()
    journal = SqlJournal(f"sqlite:///{data}/journal.db", 600.0)
    operations = await journal.operations(9)
    assert [operation.id for operation in operations] == [f"op{number}" for number in range(len(operations), 0, -1)]
    await journal.close()
    folder.close()
    return Found(identity, met.state_id if met else 0, quarantine, value.epoch if value else 0, len(operations))


def nothing_lost(found: Found, marks: tuple[str, ...]) -> str | None:
    said = [mark.split() for mark in marks]
    last = {mark[0]: mark[1] for mark in said if len(mark) > 1}
    if found.identity != last.get("identity", found.identity):
        return f"the directory is another one: {found.identity}"
    for what, number in (("met", found.met), ("registered", found.registered), ("journaled", found.journaled)):
        if not int(last.get(what, 0)) <= number <= int(last.get(what, 0)) + 1:
            return f"{what}: {number}"
    if ["merged"] in said and found.quarantine != ["one.frames.merged"]:
        return f"the quarantine holds {found.quarantine}"
    return None if ["quarantined"] not in said or found.quarantine else "the quarantine is empty"


def judged(folder: Path, *plants: Plant, most: int = MOST) -> Judged:
    disk = Disk("", "")
    disk.load({"coordinator": None})
    recording = recorded("site_files", folder, plants, before=disk, except_for=["-shm"])
    return judge(recording.states(most), start, nothing_lost)


def test_the_files_of_a_site_open_in_every_state(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert not found.faults, str(found)
    assert found.states > 100


FILES = "storage.disk.os_files"


@pytest.mark.parametrize("plant", [
    pytest.param(
        without(FILES, "    def finish(self) -> None:\n", "        os.fsync(self._descriptor)\n"),
        id="a whole file is renamed before it is synced",
    ),
    pytest.param(
        without(FILES, "        os.replace(self._beside, self._target)\n", "        sync_folder(self._target.parent)\n"),
        id="the folder of a whole file is not synced",
    ),
    pytest.param(
        without(
            FILES, "            os.replace(source, target)\n",
            "            sync_folder(target.parent)\n            sync_folder(source.parent)\n",
        ),
        id="the folder of a renamed file is not synced",
    ),
    pytest.param(
        without(FILES, "            made.mkdir(exist_ok=True)\n", "            sync_folder(made.parent)\n"),
        id="a new folder is not synced",
    ),
    pytest.param(
        ("switchover.sql_database", "PRAGMA synchronous=FULL", "PRAGMA synchronous=NORMAL"),
        id="SQLite syncs at checkpoints alone",
    ),
])
def test_a_mistake_is_found(tmp_path: Path, plant: Plant) -> None:
    found = judged(tmp_path, plant, most=24)
    assert found.faults, str(found)
