"""A restart that looks at no other log reads the end of its own, and decides as by the whole."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.log.frame import Frame
from switchover.activation.continuation import ends_before, frames_after, from_first_of, is_broken, joined, older_wal, staying
from switchover.activation.own_log import frames_from
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import run
from tests.storage.log.test_wal_in_groups import STEPS, a_log
from tests.storage.log.wal_rig import SMALL, append_all, started
from twinlog.errors import LogGap


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 100))
@example([("run", 3), ("hole", 4), ("run", 5)], 6)
async def test_a_restart_that_reads_no_other_log_decides_by_the_end_of_its_own_as_by_the_whole(
    steps: list[tuple[str, int]], place: int
) -> None:
    """The storage is at the end of some frame, or where no frame ends."""
    wal = await a_log(MemoryFiles(), steps)
    whole = await wal.read_all()
    applied = (whole[place % len(whole)].epoch, whole[place % len(whole)].last_seq) if whole and place % 5 else (1, place % 40)
    assert decided(await frames_from(wal, applied[1]), applied) == decided(whole, applied)


def decided(local: list[Frame], applied: tuple[int, int]) -> object:
    """All that a restart in an asynchronous mode decides by its own log: see Activation.replay."""
    epoch, seq = applied
    if ends_before(local, applied):
        return str(older_wal("a", local, applied))
    try:
        tail = frames_after(local, seq, epoch)
    except LogGap as error:
        return error.message
    end = (tail[-1].epoch, tail[-1].last_seq) if tail else applied
    log = from_first_of(local, joined(local, end))
    kept = staying(local, log)
    high_seq = max([frame.last_seq for frame in local] + [seq])
    if is_broken([*local, *log], end):
        return tail, high_seq, len(kept), log
    return tail, high_seq, [frame for frame in log[len(kept) :]], "nothing is dropped"


async def test_a_restart_behind_a_long_log_reads_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby was away for days: what waits for it would not fit into memory."""
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 500))
    read: list[int] = []
    plain = files.read

    async def counted(path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = await plain(path, offset, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(files, "read", counted)
    found = await frames_from(wal, 495)
    assert [frame.last_seq for frame in found] == list(range(495, 501))
    assert sum(read) <= 2 * SMALL.segment_bytes
