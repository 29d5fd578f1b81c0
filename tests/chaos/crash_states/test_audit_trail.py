"""The audit trail after a power loss: whatever was said to be written is there, and its chain is sound through two lives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.trail.chain import FOLDER, ChainVerifier, Verdict
from gateway.trail.entry import TrailEntry, TrailHead, read_line
from storage.disk.os_files import OsFiles
from tests.chaos.crash_states.rig import Judged, Plant, judge, recorded
from tests.gateway.trail.trail_rig import ANNA, opened

pytestmark = [pytest.mark.usefixtures("records_calls"), pytest.mark.long]
MOST = 24  # of one moment


@dataclass(frozen=True)
class Found:
    verdict: Verdict
    numbers: list[int]
    heads: dict[int, str]


async def start(root: Path) -> Found:
    """As a gateway starts, twice: what a crash left is declared by the next file, and stays declared."""
    for _ in range(2):
        files = OsFiles(root)
        async with opened(files) as trail:
            assert (await trail.write("table.drop", ANNA, "done")).is_written
        await files.close()
    entries: list[TrailEntry] = []
    verifier = ChainVerifier(seen=entries.append)
    heads: dict[int, str] = {}
    for path in sorted((root / FOLDER).iterdir()):
        verifier.file(path.name, path.read_bytes())
        heads |= {line.number: line.sha256 for line in _heads(path.read_bytes())}
    return Found(verifier.end(), [entry.what["n"] for entry in entries if "n" in entry.what], heads)


def _heads(data: bytes) -> list[TrailHead]:
    return [line.head for line in map(read_line, data.split(b"\n")) if line is not None]


def nothing_lost(found: Found, marks: tuple[str, ...]) -> str | None:
    if found.verdict.faults:
        return str(found.verdict.faults)
    said = [mark.split() for mark in marks]
    if found.numbers != list(range(1, len(found.numbers) + 1)) or len(found.numbers) not in (len(said), len(said) + 1):
        return f"it holds {found.numbers}, and {len(said)} were said to be written"
    wrong = [number for _, _, number, digest in said if found.heads.get(int(number)) != digest]
    return f"numbers {wrong} are other lines than those that were said to be written" if wrong else None


def judged(folder: Path, *plants: Plant) -> Judged:
    return judge(recorded("audit_trail", folder, plants).states(MOST), start, nothing_lost)


def test_the_trail_is_sound_in_every_state(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert not found.faults, str(found)
    assert found.states > 100


@pytest.mark.parametrize("plant", [
    pytest.param(
        ("storage.disk.os_files", "    return _write_at(descriptor, buffers, offset, os.RWF_DSYNC)\n",
         "    return _write_at(descriptor, buffers, offset)\n"),
        id="a line is not synced",
    ),
    pytest.param(
        ("gateway.trail.trail", "        await self._file.append(line)\n", "        self._file.append(line)\n"),
        id="a line is said to be written before it is",
    ),
])
def test_a_mistake_is_found(tmp_path: Path, plant: Plant) -> None:
    found = judged(tmp_path, plant)
    assert found.faults, str(found)
