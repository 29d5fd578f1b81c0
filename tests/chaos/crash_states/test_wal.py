"""The local log after a power loss: the recovery opens every state, and finds all that was durable, in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.crash_states.disk import Disk
from storage.disk.os_files import OsFiles
from storage.log.chain import standing
from storage.log.encryption import PLAIN, Keyring, LogKey
from storage.log.segment import HEADER_BYTES, parse_header, wal_name
from storage.log.wal import Wal, WalSettings
from tests.chaos.crash_states.programs.wal import SEGMENT_BYTES
from tests.chaos.crash_states.rig import Judged, Plant, judge, recorded
from tests.storage.log.frames import a_frame, segment_bytes

pytestmark = pytest.mark.usefixtures("records_calls")
MOST = 48  # of one moment
KEYS = Keyring("wal.encryption_keys", [LogKey("k", bytes(32)), LogKey(PLAIN)])  # reads what `ENCRYPTED` wrote, and plain logs
ENCRYPTED: Plant = (
    "storage.log.encryption", "NO_KEYS = Keyring()",
    "from os import urandom\nNO_KEYS = Keyring(SETTINGS, [LogKey('k', bytes(KEY_BYTES)), LogKey(PLAIN)], urandom)",
)
SETTINGS = WalSettings(segment_bytes=SEGMENT_BYTES, tail_bytes_max=1 << 20)
Found = list[tuple[int, int]]  # epoch and sequence of each frame that stands


async def open_twice(root: Path) -> Found:
    """A log that was recovered opens the same way again."""
    found = []
    for _ in range(2):
        files = OsFiles(root)
        wal = await Wal.open(files, settings=SETTINGS, keys=KEYS)
        frames = standing(await wal.read_all())
        assert wal.last_seq == (frames[-1].last_seq if frames else 0)
        found.append([(frame.epoch, frame.last_seq) for frame in frames])
        await wal.close()
        await files.close()
    assert found[0] == found[1], f"opened again it holds {found[1]}, and before {found[0]}"
    return found[0]


def nothing_lost(found: Found, marks: tuple[str, ...]) -> str | None:
    said = [mark.split() for mark in marks]
    sent = [(int(mark[1]), int(mark[2])) for mark in said if mark[0] == "sent"]
    durable = max((int(mark[2]) for mark in said if mark[0] == "durable"), default=0)
    below = max((int(mark[1]) for mark in said if mark[0] == "trims"), default=1)
    seqs = [seq for _, seq in found]
    if seqs != list(range(seqs[0], seqs[-1] + 1)) if seqs else False:
        return f"it holds {seqs}, with a gap"
    if durable and (not seqs or seqs[-1] < durable or seqs[0] > below):
        return f"it holds {seqs}, and {below} to {durable} were durable"
    return None if set(found) <= set(sent) else f"it holds what was never sent: {found}"


def judged(folder: Path, *plants: Plant) -> Judged:
    return judge(recorded("wal", folder, plants).states(MOST), open_twice, nothing_lost)


@pytest.mark.parametrize("plants", [(), (ENCRYPTED,)], ids=["plain", "encrypted"])
def test_a_log_that_was_being_written_opens_in_every_state(tmp_path: Path, plants: tuple[Plant, ...]) -> None:
    found = judged(tmp_path, *plants)
    if plants:
        names = sorted((tmp_path / "root" / "wal").iterdir())
        assert {parse_header(name.read_bytes()).key_id for name in names} == {"k"}
    assert not found.faults, str(found)
    assert found.states > 100


@pytest.mark.parametrize("plant", [
    pytest.param((
        "storage.disk.os_files", "            os.fsync(descriptor)\n            sync_folder(target.parent)\n",
        "            os.fsync(descriptor)\n",
    ), id="the folder of a new segment is not synced"),
    pytest.param((
        "storage.disk.os_files", "return _write_at(descriptor, buffers, offset, os.RWF_DSYNC)",
        "return _write_at(descriptor, buffers, offset)",
    ), id="an append is not synced"),
    pytest.param((
        "storage.log.wal_segments", "sorted(set(range(begin)) - needed, key=lambda place: (place in useful, place))",
        "sorted(set(range(begin)) - needed, reverse=True)",
    ), id="the newest is trimmed first"),
])
def test_a_mistake_of_the_writer_is_found(tmp_path: Path, plant: Plant) -> None:
    found = judged(tmp_path, plant)
    assert found.faults, str(found)


def half_synced() -> Disk:
    """A writer died while it synced appends to two segments: what it wrote can be read, and is not durable."""
    frames = [a_frame(seq, committed=min(seq - 1, 2)) for seq in range(1, 7)]
    first, second = segment_bytes(frames[:2], index=1), segment_bytes([], index=2, first_seq=4)
    disk = Disk("", "")
    disk.load({"wal": None, f"wal/{wal_name(1, 1)}": (1, first), f"wal/{wal_name(1, 2)}": (2, second)})
    at = len(first) - 200
    disk.write_unsynced(f"wal/{wal_name(1, 1)}", frames[2].data, at)
    disk.write_unsynced(f"wal/{wal_name(1, 2)}", b"".join(frame.data for frame in frames[3:]), HEADER_BYTES)
    disk.marks = [*(f"sent 1 {frame.last_seq}" for frame in frames), "durable 1 2"]
    return disk


def recovered(folder: Path, before: Disk, *plants: Plant) -> Judged:
    return judge(recorded("wal_recovery", folder, plants, before=before).states(MOST), open_twice, nothing_lost)


def test_what_a_recovery_has_found_is_durable_from_then_on(tmp_path: Path) -> None:
    found = recovered(tmp_path, half_synced())
    assert not found.faults, str(found)


@pytest.mark.parametrize("right", [
    pytest.param("    for segment in segments:\n        await files.make_durable(segment.path)", id="nothing is made durable"),
    pytest.param("    for segment in segments:\n        await", id="the last segment alone is made durable"),
])
def test_a_recovery_that_leaves_unsynced_what_it_found_is_found_out(tmp_path: Path, right: str) -> None:
    wrong = "    for segment in segments[-1:]:\n        await" if right.endswith("await") else "    pass"
    found = recovered(tmp_path, half_synced(), ("storage.log.wal_recovery", right, wrong))
    assert found.faults, str(found)


def test_a_recovery_that_is_cut_off_itself_loses_nothing(tmp_path: Path) -> None:
    writing = recorded("wal", tmp_path / "writing")
    changing = [at for at, call in enumerate(writing.calls, 1) if call.name in ("pwritev2", "unlink")]
    for number, after in enumerate(random.Random(7).sample(changing[20:], 3)):
        found = recovered(tmp_path / str(number), writing.died_after(after))
        assert not found.faults, str(found)
