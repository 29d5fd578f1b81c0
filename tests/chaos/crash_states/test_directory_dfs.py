"""The DFS on a plain directory after a power loss: claims, the register, and segments that their next reader fences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.crash_states.disk import Disk
from remote_log.dfs.directory import DirectoryDfs
from remote_log.fencing.claims import claimed_epochs, read_claim
from remote_log.fencing.fence import fence
from remote_log.fencing.reading import read_frames, segments_below
from remote_log.layout import RemoteLayout
from storage.clock import SystemClock
from switchover.register.dfs_folder import RegisterFolder
from tests.chaos.crash_states.rig import Judged, Plant, judge, recorded, without

pytestmark = pytest.mark.usefixtures("records_calls")
MOST = 32  # of one moment
LAYOUT = RemoteLayout("pair")


@dataclass(frozen=True)
class Found:
    claims: dict[int, str]  # epochs and their plans
    registered: int  # number of the newest value
    segments: list[str]
    open: list[str]
    seqs: list[int]


async def fence_and_read(root: Path) -> Found:
    """As the next site that takes over. Fenced and read again, the log is the same."""
    dfs = DirectoryDfs(root / "dfs", "dfs.path", 600.0)
    claims = {epoch: (await read_claim(dfs, LAYOUT, epoch)).plan for epoch in await claimed_epochs(dfs, LAYOUT)}
    tip = await RegisterFolder(dfs, LAYOUT, "a", SystemClock()).tip()
    segments = await segments_below(dfs, LAYOUT, 9)
    still_open = [path for path in segments if not await dfs.is_closed(path)]
    seqs: list[list[int]] = []
    for _ in range(2):
        await fence(dfs, LAYOUT, 9, SystemClock(), 600.0)
        seqs.append([frame.last_seq for frame in await read_frames(dfs, LAYOUT, 9)])
    assert seqs[0] == seqs[1], f"fenced again it holds {seqs[1]}, and before {seqs[0]}"
    dfs._threads.shutdown()
    return Found(claims, tip.number, segments, still_open, seqs[0])


def nothing_lost(found: Found, marks: tuple[str, ...]) -> str | None:
    said = [mark.split() for mark in marks]
    numbers = {
        what: {int(mark[1]) for mark in said if mark[0] == what}
        for what in ("claims", "claimed", "sent", "durable", "registered")
    }
    deleting = {int(seq) for mark in said if mark[0] == "deletes" for seq in (mark[2:] or numbers["sent"])}
    read = next(({int(seq) for seq in mark[1:]} for mark in said if mark[0] == "read"), None)
    deleted = {mark[1] for mark in said if mark[0] == "deleted"}
    seqs = set(found.seqs)
    if not numbers["claimed"] <= set(found.claims) <= numbers["claims"]:
        return f"the claims are {found.claims}"
    if any(plan != f"plan{epoch}" for epoch, plan in found.claims.items()):
        return f"the claims hold {found.claims}"
    if found.registered < max(numbers["registered"], default=0):
        return f"the newest value of the register is number {found.registered}"
    if not numbers["durable"] - deleting <= seqs <= numbers["sent"]:
        return f"it holds {found.seqs}"
    if read is not None and not (read - deleting <= seqs <= read):
        return f"it holds {found.seqs}, and {sorted(read)} were read when all was closed"
    if read is not None and found.open and not deleting:
        return f"{found.open} had been proven closed"
    if deleted & {*found.segments} or ("all" in deleted and found.segments):
        return f"{found.segments} is there, and was deleted"
    return None


def judged(folder: Path, *plants: Plant, most: int = MOST) -> Judged:
    disk = Disk("", "")
    disk.load({"dfs": None})
    return judge(recorded("directory_dfs", folder, plants, before=disk).states(most), fence_and_read, nothing_lost)


def test_a_directory_opens_in_every_state(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert not found.faults, str(found)
    assert found.states > 100


LEASE, DIRECTORY = "remote_log.dfs.directory_lease", "remote_log.dfs.directory"


@pytest.mark.parametrize("plants", [
    pytest.param([without(LEASE, "", "            os.fsync(target)\n")], id="the closing copy is not synced"),
    pytest.param(
        [without(LEASE, "            write_all(fd, content, 0)\n", "            os.fsync(fd)\n")],
        id="a claim is linked before it is synced",
    ),
    pytest.param([
        without(LEASE, "link.unlink(missing_ok=True)\n", "    sync_folder(path.parent)\n"),
        without(LEASE, "        return False\n", "    sync_folder(path.parent)\n", "    return True"),
    ], id="nobody syncs the folder of a renamed copy"),
    pytest.param(
        [without(LEASE, "        temp.unlink(missing_ok=True)\n", "    sync_folder(path.parent)\n")],
        id="the folder of a claim is not synced",
    ),
    pytest.param(
        [without(DIRECTORY, "                os.fsync(fd)\n", "                lease.sync_folder(target.parent)\n")],
        id="the folder of a new segment is not synced",
    ),
    pytest.param(
        [without(
            DIRECTORY, "            if (seen.st_dev, seen.st_ino) not in self._durable:\n",
            "                lease.sync_folder(folder.parent)\n",
            "                self._durable.add((seen.st_dev, seen.st_ino))\n",
        )],
        id="a new folder is not synced",
    ),
    pytest.param(
        [(DIRECTORY, "write_synced(self._fd, [group], self._written)", "os.pwrite(self._fd, group, self._written)")],
        id="an append is not synced",
    ),
    pytest.param(
        [without(LEASE, "    recovering_mark(path).unlink(missing_ok=True)\n", "    sync_folder(path.parent)\n")],
        id="a deletion is not synced",
    ),
])
def test_a_mistake_is_found(tmp_path: Path, plants: list[Plant]) -> None:
    found = judged(tmp_path, *plants, most=128)
    assert found.faults, str(found)
