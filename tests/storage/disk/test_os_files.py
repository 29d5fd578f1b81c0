"""The real disk behind the Files port: zeros, one sync for many appends, failures that stay, a full disk."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.disk.os_files import OsFiles, make_folders
from tests.failing_folders import FailingFolders
from tests.open_files import open_below
from tools.sources import ROOT
from twinlog.errors import LogError, SyncFailed

HEADER = b"H" * 64


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[OsFiles]:
    opened = OsFiles(tmp_path)
    yield opened
    await opened.close()


async def test_a_new_log_is_its_header_and_zeros_that_are_really_there(files: OsFiles, tmp_path: Path) -> None:
    size = (3 << 20) + 5
    log = await files.create_log("wal/a", HEADER, size)
    data = (tmp_path / "wal/a").read_bytes()
    assert data == HEADER + bytes(size - 64)
    # blocks of 512 bytes on the disk: neither a hole nor merely a promise
    assert (tmp_path / "wal/a").stat().st_blocks * 512 >= size
    await log.close()


async def test_a_log_is_created_once(files: OsFiles, tmp_path: Path) -> None:
    log = await files.create_log("wal/a", HEADER, 1000)
    with pytest.raises(LogError, match="exists already"):
        await files.create_log("wal/a", b"other", 1000)
    assert (tmp_path / "wal/a").read_bytes()[:64] == HEADER
    await log.close()


async def test_appends_land_in_the_order_of_the_calls_and_may_outgrow_the_file(files: OsFiles, tmp_path: Path) -> None:
    log = await files.create_log("a", HEADER, 2000)
    pieces = [bytes([n % 251 + 1]) * (n % 7 + 1) for n in range(3000)]
    await asyncio.gather(*[log.append(piece) for piece in pieces])
    assert (tmp_path / "a").read_bytes() == HEADER + b"".join(pieces)
    await log.close()
    await log.close()


async def test_what_waits_shares_one_write_that_syncs(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await files.create_log("a", HEADER, 5000)
    entered, gate = threading.Event(), threading.Event()
    calls: list[tuple[int, int]] = []
    real = os.pwritev

    def write(descriptor: int, buffers: list[bytes], offset: int, flags: int) -> int:
        calls.append((len(buffers), flags))
        entered.set()
        assert gate.wait(120)
        return real(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "pwritev", write)
    first = asyncio.ensure_future(log.append(b"x"))
    assert entered.wait(120)
    rest = [log.append(b"y") for _ in range(20)]
    assert not first.done()  # nothing resolves before it is written and synced
    gate.set()
    await asyncio.gather(first, *rest)
    assert calls == [(1, os.RWF_DSYNC), (20, os.RWF_DSYNC)]
    await log.close()


async def test_a_short_write_is_continued(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await files.create_log("a", HEADER, 500)
    real = os.pwritev
    flags_seen: list[int] = []

    def short(descriptor: int, buffers: list[bytes], offset: int, flags: int) -> int:
        flags_seen.append(flags)
        return real(descriptor, [b"".join(buffers)[:5]], offset, flags)

    monkeypatch.setattr(os, "pwritev", short)
    await asyncio.gather(log.append(b"abc"), log.append(b"defgh"), log.append(b"ij"))
    assert (tmp_path / "a").read_bytes()[64:80] == b"abcdefghij" + bytes(6)
    assert set(flags_seen) == {os.RWF_DSYNC}  # also the rest is synced
    await log.close()


async def test_after_a_failed_sync_that_descriptor_is_left_alone(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await files.create_log("a", HEADER, 500)
    other = await files.create_log("b", HEADER, 500)
    await log.append(b"good")
    real = os.pwritev
    calls = []

    def fail(descriptor: int, *_: object) -> int:
        calls.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(SyncFailed, match="cannot append to a: Input/output error"):
        await log.append(b"bad")
    monkeypatch.setattr(os, "pwritev", real)
    for _ in range(3):
        with pytest.raises(SyncFailed, match="sealed"):
            await log.append(b"more")
    assert len(calls) == 1
    await other.append(b"fine")
    await log.close()
    await other.close()


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from twinlog.errors import SyncFailed
from storage.disk.os_files import OsFiles, make_folders
from tests.failing_folders import FailingFolders

async def main():
    files = OsFiles(Path(sys.argv[1]))
    log = await files.create_log("wal/a", b"h" * 64, 4096)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
    done = 0
    try:
        for _ in range(100):
            await log.append(b"x" * 1000)
            done += 1
    except SyncFailed as error:
        print(done, error.message)
    try:
        await files.create_log("wal/b", b"h" * 64, 1 << 20)
    except SyncFailed as error:
        print(error.message)
    print(await files.list("wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    await (await files.create_log("wal/b", b"h" * 64, 1 << 20)).append(b"again")
    print(await files.list("wal"))

asyncio.run(main())
"""


def test_a_full_disk_fails_clearly_gives_its_space_back_and_heals(tmp_path: Path) -> None:
    # a file size limit is the full disk that needs no privileges: writes end with EFBIG in the kernel itself
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, str(tmp_path)],
        capture_output=True, text=True, timeout=300, cwd=ROOT, check=False,
    )
    lines = ended.stdout.splitlines()
    assert len(lines) == 4, ended.stderr
    assert lines[0].startswith("8 disk full: cannot append to wal/a")
    assert lines[1].startswith("disk full: cannot create wal/b")
    assert lines[2:] == ["['a']", "['a', 'b']"]


async def test_no_space_left_is_named(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await files.create_log("a", HEADER, 500)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(SyncFailed, match=r"disk full: cannot append to a \(No space left on device\)"):
        await log.append(b"x")
    await log.close()


async def test_reading_listing_and_sizes(files: OsFiles) -> None:
    await files.write_new("deep/er/x", b"0123456789")
    assert await files.read("deep/er/x") == b"0123456789"
    assert await files.read("deep/er/x", 3) == b"3456789"
    assert await files.read("deep/er/x", 3, 2) == b"34"
    assert await files.read("deep/er/x", 8, 20) == b"89"
    assert await files.size("deep/er/x") == 10
    assert await files.list("deep") == ["er"]
    assert await files.list("absent") == []
    with pytest.raises(LogError, match="cannot read absent"):
        await files.read("absent")


async def test_a_whole_file_is_replaced_at_once(files: OsFiles) -> None:
    await files.write_new("x", b"old")
    await files.write_new("x", b"new and longer")
    assert await files.read("x") == b"new and longer"
    assert await files.list("") == ["x"]


async def test_a_replacement_that_fails_leaves_the_old_file(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    await files.write_new("x", b"old")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(SyncFailed, match="cannot write x"):
            await files.write_new("x", b"new")
    assert await files.read("x") == b"old"


async def test_a_tail_is_cut_with_zeros(files: OsFiles) -> None:
    size = (2 << 20) + 100
    await files.write_new("x", b"\xff" * size)
    await files.truncate_tail("x", 1000)
    assert await files.read("x") == b"\xff" * 1000 + bytes(size - 1000)


async def test_nothing_blocks_the_event_loop(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    loop_thread = threading.get_ident()
    where: set[int] = set()
    for name in ("fsync", "fdatasync", "pwritev", "open", "replace", "listdir"):
        real = getattr(os, name)

        def noted(*args: object, real=real, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            where.add(threading.get_ident())
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, noted)
    log = await files.create_log("wal/a", HEADER, 1000)
    await log.append(b"x")
    await files.write_new("x", b"1")
    await files.rename("x", "y")
    await files.truncate_tail("y", 0)
    await files.delete("y")
    await files.list("wal")
    assert where
    assert loop_thread not in where
    await log.close()


async def test_a_deletion_that_is_repeated_after_a_failed_sync_syncs_the_folder(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.write_new("wal/a", b"x")
    folders = FailingFolders(tmp_path / "wal")
    monkeypatch.setattr(os, "fsync", folders)
    with pytest.raises(SyncFailed, match="cannot delete wal/a"):
        await files.delete("wal/a")
    assert await files.list("wal") == []
    await files.delete("wal/a")
    assert folders.synced == [tmp_path / "wal"]
    await files.delete("never/made")


@pytest.mark.parametrize("call", ["write_new", "create_log", "rename"])
async def test_a_folder_whose_name_could_not_be_synced_is_synced_by_the_next_call(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await files.write_new("old", b"x")

    async def make() -> None:
        match call:
            case "write_new":
                await files.write_new("x/y/a", b"x")
            case "create_log":
                await (await files.create_log("x/y/a", HEADER, 4096)).close()
            case _:
                await files.rename("old", "x/y/a")

    folders = FailingFolders(tmp_path / "x")
    monkeypatch.setattr(os, "fsync", folders)
    with pytest.raises(SyncFailed):
        await make()
    (tmp_path / "x" / "y").mkdir(exist_ok=True)  # a process that was killed in front of the sync leaves it
    await make()
    assert {tmp_path / "x", tmp_path / "x" / "y"} <= set(folders.synced)


def test_a_folder_whose_name_could_not_be_synced_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = FailingFolders(tmp_path)
    monkeypatch.setattr(os, "fsync", folders)
    with pytest.raises(OSError, match="injected"):
        make_folders(tmp_path / "data")
    make_folders(tmp_path / "data")
    assert tmp_path in folders.synced


async def test_a_log_whose_maker_gave_up_is_not_left_open(files: OsFiles, tmp_path: Path) -> None:
    """The end of an epoch cancels the roll of its WAL: the file is deleted later, and an open one would keep its room."""
    making = asyncio.create_task(files.create_log("wal/x", HEADER, 4096))
    await asyncio.sleep(0)
    making.cancel()
    await asyncio.wait([making])
    await files.list("wal")
    await files.write_new("behind", b"")  # on the same thread
    await asyncio.sleep(0)
    assert (tmp_path / "wal" / "x").exists()
    assert open_below(tmp_path) == []
