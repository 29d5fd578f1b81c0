"""A call of `twinlog backup` ends at any step, in a directory and in a DFS as HDFS is: what was there before is whole, the next
call continues, and what is left over goes as soon as nobody can need it any more."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.backup.pruning import remove_unfinished, sweep
from gateway.backup.restoring import Restorer
from gateway.backup.taking import BackupTaker, Taken
from gateway.backup.target import Target
from gateway.backup.verifying import verify
from remote_log.dfs.directory import DirectoryDfs
from storage.backup import manifest as layout
from storage.backup.manifest import NEWEST, newest_of_each_base
from storage.engines.opening import open_engine
from tests.gateway.backup.rig import DEADLINE_S, PairSites, Quiet, Rows, new_site, rows_of
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from tests.remote_log.dfs.memory_dfs import MemoryDfs, MemoryDisk
from twinlog.errors import Conflict, DfsError, NotFound


class Place:
    """Each call gives a client of the one DFS, which survives those who write to it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._disk = folder, MemoryDisk()

    def __call__(self) -> Any:
        return MemoryDfs(self._disk) if self._folder is None else DirectoryDfs(self._folder, "the place", DEADLINE_S)

    def files(self) -> set[str]:
        if self._folder is None:
            return {name.removeprefix("/") for name in self._disk.files}
        return {str(one.relative_to(self._folder)) for one in self._folder.rglob("[!.]*") if one.is_file()}


class Killed(BaseException):
    pass


class EndingDfs:
    """At the change number `at`, before or behind it, its process dies: nothing that it still asks for happens. Or, with
    `is_full`, the place takes no more files from there on."""

    def __init__(self, dfs: Any, at: int, *, before: bool = True, is_full: bool = False) -> None:
        self._dfs, self._at, self._before, self._is_full, self.changes = dfs, at, before, is_full, 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._dfs, name)

        async def asked(*words: Any) -> Any:
            if self._is_full:
                self.changes += name == "create_file"
                if name == "create_file" and self.changes >= self._at:
                    raise DfsError("cannot create: No space left on device; free some space there", errno=errno.ENOSPC)
                return await call(*words)
            if self.changes >= self._at:
                raise Killed
            self.changes += name in ("create_file", "delete")
            if self.changes < self._at:
                return await call(*words)
            if not self._before:
                await call(*words)
            raise Killed

        return asked


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr("gateway.backup.target.PartWriter.__init__.__defaults__", (300,))  # several files of each kind
    async with open_pair(tmp_path / "old") as opened:
        yield opened


@pytest.fixture(params=["directory", "as HDFS"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    numbers = count(1)

    def make() -> Place:
        folder = tmp_path / f"place {next(numbers)}"
        folder.mkdir()
        return Place(None if request.param == "as HDFS" else folder)

    return make


def target_of(dfs: Any) -> Target:
    return Target("the place", dfs)


async def take(pair: Pair | PairSites, dfs: Any, *, new_base: bool = False, progress: Quiet | None = None) -> Taken:
    sites = PairSites(pair) if isinstance(pair, Pair) else pair
    taker = BackupTaker(sites, target_of(dfs), progress or Quiet(), in_the_clear=False)  # type: ignore[arg-type]
    return await taker.take(new_base=new_base)


async def named(place: Place) -> set[str]:
    """All that should be there: what the manifests name, and they themselves."""
    manifests = await target_of(place()).held()
    found = {part.name for one in manifests for part in one.parts}
    return found | {layout.manifest_name(one.number) for one in manifests}


async def restored(place: Place, root: Path) -> Rows:
    config = new_site(root)
    await Restorer(target_of(place()), config, Quiet()).restore(NEWEST)
    engine = await open_engine(config.engine, config.data_dir, config.pair, config.site)
    try:
        return await rows_of(engine)
    finally:
        await engine.close()


async def bases(place: Place) -> set[str]:
    return {one.base.id for one in await target_of(place()).manifests()}


async def prepared(pair: Pair, place: Place, case: str) -> bool:
    """A place before the call that breaks off, and whether that call begins a base."""
    if case != "the first base":
        await take(pair, place())
        await put(pair, "a", 3, f"behind the base {case}")
        await take(pair, place())
        await put(pair, "a", 3, f"since then {case}")
    return case == "another base"


@pytest.mark.parametrize("case", ["the first base", "another base", "an increment"])
@pytest.mark.parametrize("before", [True, False])
async def test_a_call_that_is_killed_at_any_step(
    pair: Pair, places: Callable[[], Place], tmp_path: Path, case: str, before: bool
) -> None:
    for key in range(3):
        await put(pair, "a", key, "v" * 200)
    at, is_whole = 0, False
    while not is_whole:
        at += 1
        place = places()
        new_base = await prepared(pair, place, case)
        held = newest_of_each_base(await target_of(place()).manifests())
        try:
            await take(pair, EndingDfs(place(), at, before=before), new_base=new_base)
            is_whole = True
        except Killed:
            pass
        if held or await target_of(place()).manifests():
            assert (await verify(target_of(place()), Quiet()))[1] == []
        else:
            with pytest.raises(NotFound, match="holds no backup that is whole"):
                await restored(place, tmp_path / f"nothing {at}")
        await put(pair, "a", 9, f"later {at}")
        await take(pair, place())
        assert place.files() == await named(place)
        if at == 3:
            rows = await rows_of(site(pair, "a").parts.engine)
            assert await restored(place, tmp_path / f"new {at}") == rows
    assert at > 4


@pytest.mark.parametrize("case", ["the first base", "another base", "an increment"])
async def test_a_place_that_is_full_holds_what_it_held(pair: Pair, places: Callable[[], Place], case: str) -> None:
    """So the next call finds the space that this one found. Its holder goes, too, where nobody can continue it."""
    for key in range(3):
        await put(pair, "a", key, "v" * 200)
    removed = list[bool]()
    for at in count(1):
        place = places()
        new_base = await prepared(pair, place, case)
        before, held, holders = place.files(), await bases(place), site(pair, "a").parts.cursors.of_kind("backup")
        try:
            await take(pair, EndingDfs(place(), at, is_full=True), new_base=new_base)
            break
        except DfsError as error:
            said = error.message
        assert "No space left" in said
        left = {name for name in place.files() if not name.startswith(layout.UNNAMED)}
        if "this one may be whole" in said:  # its manifest may be there or not: nothing of it goes
            assert left > before
        elif await bases(place) == held:  # else its base is whole by now
            assert left == before
            if "removed" in said:
                assert "what this call wrote is removed again, and what was there before is whole" in said
                assert site(pair, "a").parts.cursors.of_kind("backup") == holders
            removed.append("removed" in said)
        await put(pair, "a", 9, f"later {at}")
        await take(pair, place())
        assert place.files() == await named(place)
    assert True in removed


def stopping(task: asyncio.Task[Taken]) -> Callable[[bytes], bytes]:
    """Cancels `task` with the third piece that comes."""
    pieces, loop = list[bytes](), asyncio.get_running_loop()

    def stop(piece: bytes) -> bytes:
        pieces.append(piece)
        if len(pieces) == 3:
            loop.call_soon_threadsafe(task.cancel)
        return piece

    return stop


async def test_a_stop_removes_what_was_written(pair: Pair, places: Callable[[], Place]) -> None:
    """Ctrl-C and SIGTERM cancel the call."""
    for key in range(3):
        await put(pair, "a", key, "v" * 200)
    for new_base in (False, True):
        place = places()
        if new_base:
            await take(pair, place())
        before = place.files()
        sites = PairSites(pair)
        task = asyncio.create_task(take(sites, place(), new_base=new_base))
        sites.spoil = stopping(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {one for one in place.files() if not one.startswith(layout.UNNAMED)} == before


class WaitingDfs:
    """Waits before it makes a manifest, until `goes`."""

    def __init__(self, dfs: Any) -> None:
        self._dfs, self.waits, self.goes = dfs, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dfs, name)

    async def create_file(self, path: str, content: bytes) -> None:
        if path.startswith(f"/{layout.FOLDER}"):
            self.waits.set()
            await self.goes.wait()
        await self._dfs.create_file(path, content)


@pytest.mark.parametrize("has_another", [False, True])
async def test_a_call_that_runs_keeps_its_base_unless_an_operator_gives_it_up(
    pair: Pair, places: Callable[[], Place], has_another: bool
) -> None:
    await put(pair, "a", 1, "v" * 200)
    place = places()
    if has_another:
        await take(pair, place())
    dfs = WaitingDfs(place())
    running = asyncio.create_task(take(pair, dfs, new_base=True))
    await dfs.waits.wait()
    target = target_of(place())
    manifests = await target.manifests()
    await sweep(target, manifests)
    unfinished = await target.unfinished(manifests)
    assert [one.size_bytes > 200 for one in unfinished] == [True]
    progress = Quiet()
    with pytest.raises(DfsError):
        await take(pair, EndingDfs(place(), 1, is_full=True), new_base=True, progress=progress)
    assert "belong to a backup that runs now or did not end" in progress.lines[0]
    assert await remove_unfinished(target, unfinished) == 1
    dfs.goes.set()
    with pytest.raises(Conflict, match="somebody removed what this backup wrote to the place"):
        await running
    assert await target.manifests() == manifests
    await put(pair, "a", 2, "w")
    await take(pair, place())
    assert (await verify(target, Quiet()))[1] == []
    assert place.files() == await named(place)


async def test_a_base_that_was_published_meanwhile_is_not_given_up(pair: Pair, places: Callable[[], Place]) -> None:
    await put(pair, "a", 1, "v" * 200)
    place = places()
    dfs = WaitingDfs(place())
    running = asyncio.create_task(take(pair, dfs))
    await dfs.waits.wait()
    target = target_of(place())
    unfinished = await target.unfinished([])
    dfs.goes.set()
    await running
    assert await remove_unfinished(target, unfinished) == 0
    assert (await verify(target, Quiet()))[1] == []
    assert place.files() == await named(place)


async def test_what_is_not_ours_stays(pair: Pair, places: Callable[[], Place]) -> None:
    """Folders and files that look like ours and are marked by nobody, or by a mark that we did not make."""
    place = places()
    dfs = place()
    strange = {"base-1-1-ab/rows-000001", "base-notes/rows-000001", "unnamed/1-1-ab", "unnamed/notes", "base-1-2-ab/rows"}
    for name in strange:
        await dfs.create_file(f"/{name}", b"7")
    for key in range(2):
        await put(pair, "a", key, "v")
        await take(pair, place(), new_base=True)
        assert place.files() == await named(place) | strange
