"""Files that a directory DFS has open, or leaves: no descriptor of a file that was closed, given up or deleted, and no mark."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

from remote_log.dfs.directory import DirectoryDfs
from tests.open_files import open_below
from tests.remote_log.dfs.dfs_contract import close_by_recovery
from twinlog.errors import LeaseLost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dfs").mkdir()
    return tmp_path / "dfs"


@pytest.fixture
def dfs(root: Path) -> DirectoryDfs:
    return DirectoryDfs(root, "dfs.root")


@pytest.mark.parametrize("recovered", [False, True])
async def test_nothing_is_left_of_a_file_that_was_deleted(root: Path, dfs: DirectoryDfs, recovered: bool) -> None:
    """A mark that stays would close the next file of that name under its writer."""
    writer = await dfs.create("/folder/segment")
    if recovered:
        await close_by_recovery(dfs, "/folder/segment")
        with pytest.raises(LeaseLost):
            await writer.close()
    else:
        await writer.close()
    await dfs.delete("/folder/segment")
    assert list((root / "folder").iterdir()) == []


@pytest.mark.parametrize("fails", [False, True])
async def test_a_writer_that_was_closed_holds_no_descriptor(dfs: DirectoryDfs, fails: bool) -> None:
    """A site makes segments for years, and its process has a bound of open files."""
    writer = await dfs.create("/segment")
    await writer.append(b"x")
    if fails:
        await dfs.recover_lease("/segment")
        with pytest.raises(LeaseLost):
            await writer.close()
    else:
        await writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer._fd)


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_file_whose_maker_gave_up_is_not_left_open(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """By a deadline, or since the writer of the remote log was stopped."""
    dfs = DirectoryDfs(root, "dfs.root", deadline_s=30.0 if is_cancelled else 0.05)
    is_there, resumes, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            is_there.set()
            resumes.wait()
        fsync(fd)

    monkeypatch.setattr(os, "fsync", slow)
    making = asyncio.create_task(dfs.create("/p/s"))
    await asyncio.to_thread(is_there.wait)
    assert len(open_below(root)) == 1
    if is_cancelled:
        making.cancel()
    await asyncio.wait([making])
    resumes.set()
    dfs._threads.shutdown()
    assert (root / "p" / "s").exists()
    assert open_below(root) == []
