"""The directory DFS: the contract, leases against crashes and pauses at every step, and a real process that sleeps."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remote_log.dfs import directory_lease
from remote_log.dfs.directory import AHEAD_BYTES, DirectoryDfs
from tests.failing_folders import FailingFolders
from tests.remote_log.dfs.dfs_contract import DfsContract, close_by_recovery, content
from tools.sources import ROOT
from twinlog.errors import DfsError, DfsExists, DfsNotFound, InvalidInput


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dfs").mkdir()
    return tmp_path / "dfs"


@pytest.fixture
def dfs(root: Path) -> DirectoryDfs:
    return DirectoryDfs(root, "dfs.root")


class TestDirectoryDfs(DfsContract):
    @pytest.fixture
    def dfs(self, root: Path) -> DirectoryDfs:
        return DirectoryDfs(root, "dfs.root")

    @pytest.fixture
    def other(self, root: Path) -> DirectoryDfs:
        return DirectoryDfs(root, "dfs.root")


class StepOs:
    """The `os` module as directory_lease sees it, with something happening before the n-th call."""

    def __init__(self, n: int, happen: Callable[[], None]) -> None:
        self.calls = 0
        self._n, self._happen = n, happen
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if not callable(real):
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread:
                self.calls += 1
                if self.calls == self._n:
                    self._happen()
            return real(*args, **kwargs)

        return call


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], None]) -> int:
    """Returns how many calls to the operating system `work` on a fresh file makes."""
    counted = StepOs(-1, crash)
    with monkeypatch.context() as patch:
        patch.setattr(directory_lease, "os", counted)
        work(open_file(tmp_path / "count"))
    return counted.calls


def open_file(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "s"
    path.write_bytes(b"acknowledged")
    return path


def test_recovery_that_crashes_at_any_step_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = steps(tmp_path, monkeypatch, directory_lease.recover)
    assert total > 10
    for n in range(1, total + 1):
        path = open_file(tmp_path / str(n))
        with monkeypatch.context() as patch:
            patch.setattr(directory_lease, "os", StepOs(n, crash))
            with pytest.raises(Crash):
                directory_lease.recover(path)
        if directory_lease.is_closed(path):
            closed = os.stat(path).st_ino
            directory_lease.recover(path)
            assert os.stat(path).st_ino == closed
        directory_lease.recover(path)
        assert directory_lease.is_closed(path)
        assert path.read_bytes() == b"acknowledged"


def test_a_recovery_paused_at_any_step_changes_nothing_once_another_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first recovery stops at step n; the old writer adds bytes; a second one closes the file; the first wakes."""
    for n in range(1, steps(tmp_path, monkeypatch, directory_lease.recover) + 1):
        path = open_file(tmp_path / str(n))
        stopped, go_on = threading.Event(), threading.Event()
        failures: list[BaseException] = []
        with open(path, "ab") as old_writer, monkeypatch.context() as patch:

            def pause(stopped: threading.Event = stopped, go_on: threading.Event = go_on) -> None:
                stopped.set()
                go_on.wait()

            def first(
                n: int = n, path: Path = path, patch: pytest.MonkeyPatch = patch, pause: Callable[[], None] = pause,
                failures: list[BaseException] = failures,
            ) -> None:
                patch.setattr(directory_lease, "os", StepOs(n, pause))
                try:
                    directory_lease.recover(path)
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=first)
            thread.start()
            assert stopped.wait(120)
            old_writer.write(b", then more that was not")
            old_writer.flush()
            directory_lease.recover(path)
            assert directory_lease.is_closed(path)
            before = (os.stat(path).st_ino, path.read_bytes())
            go_on.set()
            thread.join()
            old_writer.write(b"?")
            old_writer.flush()
        assert not failures
        assert directory_lease.is_closed(path)
        assert (os.stat(path).st_ino, path.read_bytes()) == before
        assert before[1].startswith(b"acknowledged")
        assert sorted(os.listdir(path.parent)) == [".s.closed", ".s.recovering", "s"]


def test_the_writers_own_close_and_a_recovery_decide_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery stops at any step, the writer closes (or is told that it may not), recovery goes on: one content."""
    outcomes = set()
    for n in range(1, steps(tmp_path, monkeypatch, directory_lease.recover) + 1):
        path = open_file(tmp_path / str(n))
        own = os.stat(path)
        seen: list[bytes] = []

        def writer_closes(path: Path = path, own: os.stat_result = own, seen: list[bytes] = seen) -> None:
            try:
                directory_lease.close_own(path, own)
                assert directory_lease.is_closed(path)
                seen.append(path.read_bytes())
                outcomes.add("own")
            except DfsError:
                outcomes.add("lost")

        with monkeypatch.context() as patch:
            patch.setattr(directory_lease, "os", StepOs(n, writer_closes))
            directory_lease.recover(path)
        assert directory_lease.is_closed(path)
        assert all(path.read_bytes() == content for content in seen)
    assert outcomes == {"own", "lost"}


def test_a_file_is_never_seen_without_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(path: Path) -> None:
        assert not path.exists() or path.read_bytes() == b"claim"

    for n in range(1, 12):
        (tmp_path / str(n)).mkdir()
        path = tmp_path / str(n) / "s"
        with monkeypatch.context() as patch:
            patch.setattr(directory_lease, "os", StepOs(n, partial(look, path)))
            directory_lease.publish(path, b"claim")
        with monkeypatch.context() as patch:
            patch.setattr(directory_lease, "os", StepOs(n, partial(look, path)))
            with pytest.raises(FileExistsError):
                directory_lease.publish(path, b"other")
        assert sorted(os.listdir(path.parent)) == [".s.closed", "s"]


WRITER = """
import asyncio, signal, sys, threading
from pathlib import Path
from remote_log.dfs import directory, directory_lease
from remote_log.dfs.directory import DirectoryDfs
from twinlog.errors import DfsError, LeaseLost

async def main():
    writer = await DirectoryDfs(Path(sys.argv[1]), "dfs.root").create("/p/0/s")
    await writer.append(b"first.")
    target, name = (directory, "write_synced") if sys.argv[2] == "write" else (directory_lease, "check_lease")
    real = getattr(target, name)
    def stop_then(*args):
        setattr(target, name, real)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread goes no further before the stop
        return real(*args)
    setattr(target, name, stop_then)
    try:
        await writer.append(b"second.")
        print("acknowledged")
    except LeaseLost:
        print("LeaseLost")
    try:
        await writer.append(b"third.")
        print("acknowledged")
    except DfsError:
        print("failed")

asyncio.run(main())
"""


@pytest.fixture
def sleeper(root: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A writer process that has stopped itself in the middle of its second append, before the step `request.param`."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), request.param], stdout=subprocess.PIPE, text=True,
        cwd=ROOT,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    yield process
    process.kill()
    process.communicate()


def wake(process: subprocess.Popen[str]) -> list[str]:
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=30)[0].split()


@pytest.mark.parametrize("sleeper", ["write", "check"], indirect=True)
@pytest.mark.parametrize("deleted", [False, True])
async def test_a_stopped_writer_that_was_fenced_wakes_and_fails(
    dfs: DirectoryDfs, sleeper: subprocess.Popen[str], deleted: bool
) -> None:
    await close_by_recovery(dfs, "/p/0/s")
    before = await dfs.read("/p/0/s")
    assert before.rstrip(b"\0") in (b"first.", b"first.second.")
    if deleted:
        await dfs.delete("/p/0/s")
    assert wake(sleeper) == ["LeaseLost", "failed"]
    if deleted:
        assert await dfs.list("/p/0") == []
    else:
        assert await dfs.read("/p/0/s") == before


@pytest.mark.parametrize("sleeper", ["check"], indirect=True)
async def test_a_stopped_writer_that_nobody_fenced_goes_on(dfs: DirectoryDfs, sleeper: subprocess.Popen[str]) -> None:
    assert wake(sleeper) == ["acknowledged", "acknowledged"]
    assert await content(dfs, "/p/0/s") == b"first.second.third."


async def test_a_missing_root_is_named_with_its_setting(tmp_path: Path) -> None:
    dfs = DirectoryDfs(tmp_path / "gone", "sites.b.dfs.root")
    for call in (dfs.probe(), dfs.list("/p"), dfs.create_file("/p/a", b""), dfs.create("/p/s"), dfs.delete("/p")):
        with pytest.raises(DfsError, match=r"gone.*sites\.b\.dfs\.root"):
            await call
    assert not (tmp_path / "gone").exists()


async def test_another_directory_in_the_place_of_the_root_is_not_an_empty_dfs(root: Path, dfs: DirectoryDfs) -> None:
    await dfs.create_file("/p/0/claims/1", b"x")
    await asyncio.to_thread(root.rename, root.with_name("unmounted"))
    await asyncio.to_thread(root.mkdir)
    with pytest.raises(DfsError, match="not the one that was there before"):
        await dfs.list("/p/0/claims")


async def test_another_directory_counts_for_the_other_site_once_its_own_gateway_has_marked_it(root: Path) -> None:
    of_peer, own = DirectoryDfs(root, "dfs.peer.path"), DirectoryDfs(root, "dfs.own.path", marks=True)
    await of_peer.create_file("/p/0/claims/1", b"x")
    assert [entry.name for entry in await own.list("/p/0/claims")] == ["1"]
    await asyncio.to_thread(root.rename, root.with_name("lost"))
    await asyncio.to_thread(root.mkdir)
    with pytest.raises(DfsError, match="restart the gateway of the site whose own it is"):
        await of_peer.probe()
    with pytest.raises(DfsError, match="restart this gateway"):  # its own one it takes with its next start only
        await own.probe()
    with pytest.raises(DfsError, match="restart the gateway of the site"):
        await of_peer.list("/p")
    await DirectoryDfs(root, "dfs.own.path", marks=True).probe()
    assert await of_peer.list("/p") == []
    await of_peer.probe()


async def test_two_names_of_one_directory_are_not_two_dfss(root: Path) -> None:
    root.with_name("link").symlink_to(root)
    own = DirectoryDfs(root, "dfs.own.path", marks=True)
    of_peer = DirectoryDfs(root.with_name("link"), "dfs.peer.path", apart_from=own)
    await own.probe()
    with pytest.raises(DfsError, match=r"is that of dfs\.own\.path, by a link"):
        await of_peer.create_file("/p/0/claims/1", b"x")
    assert await own.list("/p") == []


async def test_a_directory_that_takes_no_folder_is_marked_later(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = DirectoryDfs(root, "dfs.own.path", marks=True)
    mkdir = os.mkdir

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "mkdir", full)
    assert await own.list("/p") == []
    monkeypatch.setattr(os, "mkdir", mkdir)
    assert not (root / ".twinlog").exists()
    await own.probe()
    assert (root / ".twinlog").is_dir()


async def test_paths_stay_below_the_root(dfs: DirectoryDfs) -> None:
    for path in ("p/a", "/p/../../a", "/p/.hidden", "/", "/p//a"):
        with pytest.raises(InvalidInput):
            await dfs.create_file(path, b"")


async def test_errors_of_the_disk_are_dfs_errors_and_final(dfs: DirectoryDfs, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, says in (
        (errno.ENOSPC, "free some space"), (errno.EIO, "Input/output error"), (errno.EROFS, "mount it for writing"),
        (errno.EACCES, "let the user of this process read and write there"),
    ):
        writer = await dfs.create(f"/p/0/{number}")
        await writer.append(b"before")

        def fail(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", fail)
            with pytest.raises(DfsError, match=says):
                await writer.append(b"fails")
        with pytest.raises(DfsError, match=says):
            await writer.append(b"a sync that failed is not tried again")
        await writer.close()
        assert not await dfs.is_closed(writer.path)


async def test_every_append_is_synced_before_it_is_answered(dfs: DirectoryDfs, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = await dfs.create("/p/0/s")
    real = os.pwritev
    flags_seen: list[int] = []

    def seen(descriptor: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
        flags_seen.append(flags)
        return real(descriptor, [b"".join(buffers)[: 1 << 15]], offset, flags)  # a short write: the rest is synced too

    monkeypatch.setattr(os, "pwritev", seen)
    await writer.append(b"x" * (1 << 17))
    assert set(flags_seen) == {os.RWF_DSYNC}
    assert len(flags_seen) > 1
    await writer.close()
    assert await content(dfs, "/p/0/s") == b"x" * (1 << 17)


async def test_a_disk_that_hangs_fails_by_the_deadline(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dfs = DirectoryDfs(root, "dfs.root")
    writer = await dfs.create("/p/0/s")
    dfs._deadline_s = writer._deadline_s = 0.05  # only now: a disk that is merely busy is another finding
    disk_answers = threading.Event()
    monkeypatch.setattr(os, "pwritev", lambda *_: disk_answers.wait())
    results = await asyncio.gather(*[writer.append(b"x") for _ in range(3)], return_exceptions=True)
    assert all(isinstance(result, DfsError) and "0.05 s" in result.message for result in results)
    monkeypatch.setattr(directory_lease, "recover", lambda path: disk_answers.wait())
    with pytest.raises(DfsError, match="no answer within"):
        await dfs.recover_lease("/p/0/s")
    dfs._deadline_s = writer._deadline_s = 120.0
    disk_answers.set()
    await writer.close()
    assert not await dfs.is_closed("/p/0/s")


async def test_appends_that_wait_behind_a_failed_one_are_not_acknowledged_by_close(
    dfs: DirectoryDfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await dfs.create("/p/0/s")
    failing, go_on = threading.Event(), threading.Event()

    real = os.pwritev

    def fail(*write: Any) -> int:
        if not failing.is_set():
            failing.set()
            go_on.wait()
            raise OSError(errno.EIO, "Input/output error")
        return real(*write)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        first = writer.append(b"1")
        await asyncio.to_thread(failing.wait)
        second = writer.append(b"2")
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        go_on.set()
        results = await asyncio.gather(first, second, closing, return_exceptions=True)
    assert all(isinstance(result, DfsError) for result in results)


async def test_zeros_ahead_are_few_and_end_with_the_close(dfs: DirectoryDfs) -> None:
    writer = await dfs.create("/p/0/s")
    await writer.append(b"x" * (3 * AHEAD_BYTES))
    await writer.append(b"y")
    assert len(await dfs.read("/p/0/s")) <= 4 * AHEAD_BYTES + 1
    await writer.close()
    assert await dfs.read("/p/0/s") == b"x" * (3 * AHEAD_BYTES) + b"y"


async def test_exists_and_not_found_are_told_apart(dfs: DirectoryDfs) -> None:
    await dfs.create_file("/p/a", b"")
    with pytest.raises(DfsExists):
        await dfs.create_file("/p/a", b"")
    with pytest.raises(DfsNotFound):
        await dfs.read("/p/b")
    with pytest.raises(DfsError):
        await dfs.create_file("/p/a/b", b"")


async def test_a_claim_whose_name_could_not_be_synced_is_found_by_the_next_call_once_it_is_durable(
    dfs: DirectoryDfs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan that made it takes what it finds for its own claim."""
    folders = FailingFolders(root / "p")
    monkeypatch.setattr(os, "fsync", folders)
    with pytest.raises(DfsError, match="cannot create"):
        await dfs.create_file("/p/claim", b"x")
    assert await dfs.read("/p/claim") == b"x"
    with pytest.raises(DfsExists):
        await dfs.create_file("/p/claim", b"x")
    assert root / "p" in folders.synced


@pytest.mark.parametrize("whole", [True, False])
async def test_a_folder_whose_name_could_not_be_synced_is_synced_by_the_next_call(
    dfs: DirectoryDfs, root: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    folders = FailingFolders(root)
    monkeypatch.setattr(os, "fsync", folders)
    for _ in range(2):
        try:
            await (dfs.create_file("/p/q/a", b"x") if whole else dfs.create("/p/q/a"))
        except DfsError:
            assert (root / "p").is_dir()
    assert {root, root / "p", root / "p" / "q"} <= set(folders.synced)
