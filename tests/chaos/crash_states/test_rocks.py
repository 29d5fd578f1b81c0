"""RocksDB after a power loss: rows, notes and kept snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.crash_states.disk import Disk
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from tests.chaos.crash_states.rig import Judged, Plant, judge, recorded, without
from tests.storage.engines.engine_rig import scan
from tests.storage.engines.kept_reading import read_kept

pytestmark = [pytest.mark.usefixtures("records_calls"), pytest.mark.long]
MOST = 6  # of one moment
SETTINGS = RocksSettings(write_buffer_bytes=1 << 20)


@dataclass(frozen=True)
class Found:
    seq: int
    rows: list[bytes]
    note: bytes | None
    kept: dict[str, int]


async def start(root: Path) -> Found:
    engine = await RocksEngine.open(root / "storage", SETTINGS)
    rows = [*await scan(engine)]
    kept = {}
    for snapshot in engine.kept_snapshots():
        kept[snapshot.name] = snapshot.seq
        assert (await read_kept(engine, snapshot.name)).seq == snapshot.seq
    found = Found(engine.durable_seq, rows, engine.meta("note"), kept)
    await engine.close()
    return found


def nothing_lost(found: Found, marks: tuple[str, ...]) -> str | None:
    said = [mark.split() for mark in marks]
    durable = max((int(mark[1]) for mark in said if mark[0] == "durable"), default=0)
    noted = max((int(mark[1]) for mark in said if mark[0] == "noted"), default=-1)
    kept = {f"barrier{mark[1]}": int(mark[2]) for mark in said if mark[0] == "kept"}
    releasing = {f"barrier{mark[1]}" for mark in said if mark[0] == "releases"}
    released = {f"barrier{mark[1]}" for mark in said if mark[0] == "released"}
    if found.seq < durable:
        return f"it holds {found.seq}, and {durable} was durable"
    if sorted(found.rows) != sorted(b"k%d" % seq for seq in range(2, found.seq)):
        return f"up to {found.seq} it holds {found.rows}"
    if (int(found.note) if found.note else -1) not in (noted, noted + 1):
        return f"the note is {found.note!r}"
    if any(found.kept.get(name) != seq for name, seq in kept.items() if name not in releasing) or released & {*found.kept}:
        return f"it keeps {found.kept}"
    return None


def judged(folder: Path, *plants: Plant, most: int = MOST) -> Judged:
    """RocksDB itself relies on the order of names: it syncs the folder once for a MANIFEST and the CURRENT that names it."""
    disk = Disk("", "", in_order="")
    return judge(recorded("rocks", folder, plants, before=disk).states(most), start, nothing_lost)


def test_a_storage_opens_in_every_state(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert not found.faults, str(found)
    assert found.states > 100


@pytest.mark.parametrize("plant", [
    pytest.param(
        without(
            "storage.engines.kept_snapshots", "            part.rename(self._folder / name)\n",
            "            sync_folder(self._folder)\n",
        ),
        id="the folder of a kept snapshot is not synced",
    ),
    pytest.param(
        ("storage.engines.rocks.engine", "                self._database.flush(True)\n", "                pass\n"),
        id="what was never flushed counts as durable",
    ),
])
def test_a_mistake_is_found(tmp_path: Path, plant: Plant) -> None:
    found = judged(tmp_path, plant)
    assert found.faults, str(found)
