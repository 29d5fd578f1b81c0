"""Old bases go from a place, and a prune that ends at any step leaves one that `verify` accepts and a next prune finishes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.backup.pruning import prune
from gateway.backup.target import Target
from storage.backup.manifest import newest_of_each_base
from storage.backup.pruning import by_count
from tests.gateway.backup.rig import PairSites, back_up, target_at, verified
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put
from twinlog.errors import DamagedLog


class Ended(Exception):
    pass


class EndingDfs:
    """Ends at the change number `at`, before or behind it."""

    def __init__(self, dfs: Any, at: int, *, before: bool) -> None:
        self._dfs, self._at, self._before, self._changes = dfs, at, before, 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._dfs, name)
        return self._changing(call) if name in ("create_file", "delete") else call

    def _changing(self, call: Any) -> Any:
        async def changed(*words: Any) -> None:
            self._changes += 1
            if self._changes == self._at and self._before:
                raise Ended
            await call(*words)
            if self._changes == self._at:
                raise Ended

        return changed


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path / "old") as opened:
        yield opened


async def bases(folder: Path) -> list[str]:
    async with target_at(folder) as target:
        return [one.base.id for one in newest_of_each_base(await target.held())]


@pytest.mark.parametrize("before", [True, False])
async def test_a_prune_that_ends_anywhere(pair: Pair, tmp_path: Path, before: bool) -> None:
    folder, sites = tmp_path / "backup", PairSites(pair)
    for key in range(3):
        await put(pair, "a", key, "v")
        await back_up(sites, folder, new_base=True)
        await put(pair, "a", key, "w")
        await back_up(sites, folder)
    sites.spoil = lambda piece: piece[:-1] + bytes([piece[-1] ^ 1])
    with pytest.raises(DamagedLog):
        await back_up(sites, folder)
    held = await bases(folder)
    at = 0
    while True:
        at += 1
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "copy")
        async with target_at(tmp_path / "copy") as target:
            ending: Any = EndingDfs(target.dfs, at, before=before)
            try:
                await prune(Target(target.place, ending), by_count(await target.held(), 1))
            except Ended:
                is_whole = False
            else:
                is_whole = True
            left = await bases(tmp_path / "copy")
            assert set(left) <= set(held)  # some may still be there
            assert left[-1] == held[-1]
            assert (await verified(tmp_path / "copy"))[1] == []
            await prune(target, by_count(await target.held(), 1))
        assert await bases(tmp_path / "copy") == held[-1:]
        assert [one.name for one in (tmp_path / "copy").glob("base-*")] == [f"base-{held[-1]}"]
        assert list((tmp_path / "copy/unnamed").glob("[0-9]*")) == []
        if is_whole:
            break
    assert at > 8


async def test_what_an_interrupted_base_left_goes_once_a_later_one_is_whole(pair: Pair, tmp_path: Path) -> None:
    folder, sites = tmp_path / "backup", PairSites(pair)
    await back_up(sites, folder)
    pieces = [0]

    def spoil(piece: bytes) -> bytes:
        pieces[0] += 1
        return piece if pieces[0] < 3 else piece[:-1] + bytes([piece[-1] ^ 1])

    sites.spoil = spoil
    with pytest.raises(DamagedLog):
        await back_up(sites, folder, new_base=True)
    sites.spoil = lambda piece: piece
    async with target_at(folder) as target:
        await prune(target, by_count(await target.held(), 5))
        assert len(list((folder / "unnamed").glob("[0-9]*"))) == 1  # a call that runs may still name it
        await put(pair, "a", 1, "v")
        await back_up(sites, folder, new_base=True)
        await prune(target, by_count(await target.held(), 5))
    assert list((folder / "unnamed").glob("[0-9]*")) == []
    assert len(list(folder.glob("base-*"))) <= 2
