"""A real local log on a disk that fails: what it says is what an operator is told, and what it acknowledged is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.disk_faults.control import DiskFaults, Rule, failing, failing_sync, freezing, full
from storage.disk.os_files import OsFiles
from storage.log.chain import standing
from storage.log.wal import Wal
from tests.chaos.disk_faults.child import Child, child
from tests.processes import wait_for

SYNC_AGAIN = (  # the mistake that this is about: a sync that failed is tried again on the same descriptor
    "storage.disk.os_files", 'raise SyncFailed(f"{self.path} is sealed since an earlier failure: {self._failure}")', "pass",
)


class Rig:
    def __init__(self, root: Path, faults: DiskFaults, program: Child) -> None:
        self.root, self.faults, self.program = root, faults, program
        self.last = 0  # the last sequence that was acknowledged

    def append(self, seq: int, told: str = "ok") -> None:
        line = f"append {seq} {self.last}"
        said = self.program.ask(line)
        assert said.startswith(f"{line}: "), said
        assert told in said, said
        if said == f"{line}: ok":
            self.last = seq

    def roll(self) -> int:
        """Returns the next sequence, as an active goes on after a failure."""
        assert self.program.ask(f"roll {self.last + 1}").endswith("ok")
        return self.last + 1

    def begin(self, rule: Rule) -> int:
        return self.faults.begin(self.root / "wal", rule)


@contextmanager
def a_log(folder: Path, *planted: str) -> Iterator[Rig]:
    root = folder / "root"
    root.mkdir()
    with DiskFaults(folder / "table") as faults, child("wal", faults.environ(), str(root), *planted) as program:
        rig = Rig(root, faults, program)
        rig.append(1)
        yield rig


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Rig]:
    with a_log(tmp_path) as rig:
        yield rig
        assert rig.program.end() == ""


async def stored(root: Path) -> list[int]:
    """The sequences that stand in what a process finds that starts now."""
    files = OsFiles(root)
    wal = await Wal.open(files)
    seqs = [frame.last_seq for frame in standing(await wal.read_all())]
    await wal.close()
    await files.close()
    return seqs


async def test_a_sync_that_failed_seals_the_segment_and_the_log_goes_on_in_another(log: Rig) -> None:
    number = log.begin(failing_sync(after=2))
    for seq in (2, 3):
        log.append(seq)
    log.append(4, "cannot append to wal/000000000001-00000001: Input/output error")
    log.append(4, "is sealed since an earlier failure")
    again = log.roll()
    for seq in range(again, again + 30):  # over the end of a segment
        log.append(seq)
    assert (log.faults.hits(number), log.faults.used_again(number)) == (1, 0)
    log.program.kill()
    assert await stored(log.root) == list(range(1, log.last + 1))


def test_a_log_that_syncs_again_is_seen(tmp_path: Path) -> None:
    with a_log(tmp_path, *SYNC_AGAIN) as log:
        number = log.begin(failing_sync())
        log.append(2, "cannot append")
        log.append(2)
        assert log.faults.used_again(number) > 0


@pytest.mark.parametrize(("rule", "told"), [
    (failing("EIO"), "cannot append to wal/"), (failing("EROFS"), "Read-only file system"), (failing("ENOSPC"), "disk full: "),
    (full(0), "disk full: cannot append to wal/"),
])
async def test_what_was_acknowledged_outlives_a_disk_that_takes_nothing(log: Rig, rule: Rule, told: str) -> None:
    number = log.begin(rule)
    while (said := log.program.ask(f"append {log.last + 1} {log.last}")).endswith("ok"):
        log.last += 1  # a full disk takes what was made ahead
    assert told in said
    assert "No space left" not in said or "make room" in said
    assert not log.program.ask(f"roll {log.last + 1}").endswith("ok")
    log.faults.end(number)
    again = log.roll()
    for seq in range(again, again + 3):
        log.append(seq)
    log.program.kill()
    assert await stored(log.root) == list(range(1, log.last + 1))


def test_what_hangs_is_not_acknowledged_and_ends_in_order(log: Rig) -> None:
    written = {path: path.read_bytes() for path in (log.root / "wal").iterdir()}
    number = log.begin(freezing())
    for seq in range(2, 6):
        log.program.send(f"append {seq} {seq - 1}")
    assert wait_for(lambda: log.faults.hits(number))
    assert {path: path.read_bytes() for path in (log.root / "wal").iterdir()} == written
    log.faults.end(number)
    assert [log.program.hear() for _ in range(2, 6)] == [f"append {seq} {seq - 1}: ok" for seq in range(2, 6)]
    log.last = 5
    log.append(6)
