"""A directory as DFS says whose it is. HDFS: tests/remote_log/dfs/hdfs/test_hdfs_dfs.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.owner import Owner
from twinlog.errors import DfsError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    folder.mkdir()
    return folder


async def test_a_dfs_that_the_other_site_has_marked_is_neither_written_nor_taken_for_an_own_one(root: Path) -> None:
    """Both logs of site a would be at one site if its file exchanged `[dfs.own]` and `[dfs.peer]`."""
    theirs = root.with_name("b")
    theirs.mkdir()
    a, b = Owner("shop", "a"), Owner("shop", "b")
    await DirectoryDfs(root, "dfs.own.path", owner=a, marks=True).probe()
    await DirectoryDfs(theirs, "dfs.own.path", owner=b, marks=True).probe()
    own = DirectoryDfs(theirs, "dfs.own.path", owner=a, marks=True)
    of_peer = DirectoryDfs(root, "dfs.peer.path", owner=b, apart_from=own)
    for call in (own.probe(), own.create_file("/shop/0/claims/1", b"x"), own.list("/shop")):
        with pytest.raises(DfsError, match=r"\(dfs\.own\.path\) is marked as that of site b.*exchanged"):
            await call
    for call in (of_peer.create("/shop/0/1/s"), of_peer.create_file("/shop/0/claims/1", b"x"), of_peer.read("/shop/x")):
        with pytest.raises(DfsError, match=r"\(dfs\.peer\.path\) is marked as that of site a.*delete \.twinlog/shop\.a"):
            await call
    assert [each.name for each in (theirs / ".twinlog").iterdir()] == ["shop.b"]
    await DirectoryDfs(theirs, "dfs.peer.path", owner=b).probe()
    await DirectoryDfs(theirs, "dfs.own.path", owner=Owner("other", "a"), marks=True).probe()  # a pair of its own


async def test_a_mark_that_was_wrong_is_deleted_by_hand_and_nobody_restarts(root: Path) -> None:
    dfs = DirectoryDfs(root, "dfs.own.path", owner=Owner("shop", "b"), marks=True)
    (root / ".twinlog" / "shop.a").mkdir(parents=True)
    with pytest.raises(DfsError, match="marked as that of site a"):
        await dfs.probe()
    await asyncio.to_thread((root / ".twinlog" / "shop.a").rmdir)
    await dfs.probe()
    assert [each.name for each in (root / ".twinlog").iterdir()] == ["shop.b"]


async def test_of_two_gateways_that_mark_at_once_none_takes_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = os.mkdir

    def other_first(path: Path) -> None:
        if path.name == "shop.b":
            mkdir(path.with_name("shop.a"))
        mkdir(path)

    monkeypatch.setattr(os, "mkdir", other_first)
    with pytest.raises(DfsError, match="marked as that of site a"):
        await DirectoryDfs(root, "dfs.own.path", owner=Owner("shop", "b"), marks=True).probe()
