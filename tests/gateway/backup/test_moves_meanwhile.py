"""The active moves, dies or breaks off in the middle of a call: the chain goes on, and nothing is kept for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from storage.backup.manifest import manifest_name
from storage.log.cursors import CursorRegistry
from tests.gateway.backup.rig import PairSites, back_up, target_at
from tests.gateway.backup.test_role_changes import check, followed, moment, switch_over, write_much
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from twinlog.errors import Conflict, PeerError, Unavailable

DEADLINE_S = 120.0


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path / "old", trim_interval_s=3600.0) as opened:  # `followed` trims: one round at a time
        yield opened


def at_piece(number: int, act: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[bytes], bytes]:
    """Does `act`, and waits for its end, before the reader gets this piece of the stream."""
    pieces, loop = list[bytes](), asyncio.get_running_loop()

    def spoil(piece: bytes) -> bytes:
        pieces.append(piece)
        if len(pieces) == number:
            asyncio.run_coroutine_threadsafe(act(), loop).result(DEADLINE_S)
        return piece

    return spoil


async def break_off() -> None:
    raise PeerError("the answer broke")


def holders(pair: Pair, name: str) -> list[str]:
    return site(pair, name).parts.cursors.of_kind("backup")


async def durable_holders(pair: Pair, name: str) -> list[str]:
    """Those that outlive a restart."""
    return (await CursorRegistry.open(site(pair, name).parts.files)).of_kind("backup")


async def test_a_new_base_that_breaks_lets_the_last_one_go_on(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    first = (await back_up(pair, folder)).manifest
    await write_much(pair, "a")
    sites = PairSites(pair)
    sites.spoil = at_piece(2, break_off)
    with pytest.raises(Unavailable):
        await back_up(sites, folder, new_base=True)
    await write_much(pair, "a")
    await followed(pair, "a")
    begins_at = site(pair, "a").parts.wal.first_previous
    assert begins_at is not None
    assert begins_at <= first.end.seq  # in its files: the tail in memory reaches further back
    wanted = await moment(pair, "a")
    taken = await back_up(pair, folder)
    assert (taken.is_new_base, taken.manifest.base.id) == (False, first.base.id)
    await check(folder, tmp_path, [wanted])


@pytest.mark.parametrize("piece", [1, 2])
async def test_the_active_moves_while_the_first_base_is_read(pair: Pair, tmp_path: Path, piece: int) -> None:
    """The base ends, and the next call goes on from it: both sites know of it before anybody reads the log."""
    folder, sites = tmp_path / "backup", PairSites(pair)
    await write_much(pair, "a")
    sites.spoil = at_piece(piece, lambda: switch_over(pair, "b"))
    with pytest.raises(Unavailable, match="the active moved during the backup"):
        await back_up(sites, folder)
    assert holders(pair, "a") == holders(pair, "b") != []
    await write_much(pair, "b")
    before = await moment(pair, "b")
    await followed(pair, "b")
    await switch_over(pair, "a")
    await write_much(pair, "a")
    await followed(pair, "a")
    behind = await moment(pair, "a")
    assert not (await back_up(pair, folder)).is_new_base
    await check(folder, tmp_path, [before, behind])


async def test_a_first_base_that_breaks_keeps_nothing(pair: Pair, tmp_path: Path) -> None:
    """Also where nobody tells the site so: its process, or that of the backup, is gone."""
    sites, seen = PairSites(pair), list[list[str]]()
    await write_much(pair, "a")

    async def look() -> None:
        seen.append(holders(pair, "a"))
        assert await durable_holders(pair, "a") == []
        await break_off()

    sites.spoil = at_piece(2, look)
    sites.ask = unheard  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await back_up(sites, tmp_path / "backup")
    assert len(seen[0]) == 1
    assert holders(pair, "a") == []
    await back_up(pair, tmp_path / "backup")
    assert holders(pair, "a") == await durable_holders(pair, "a") == holders(pair, "b") != []


def unheard(*words: Any) -> dict[str, Any]:
    raise PeerError("nobody answers")


async def test_a_first_base_that_is_not_named_keeps_nothing(pair: Pair, tmp_path: Path) -> None:
    folder, sites = tmp_path / "backup", PairSites(pair)
    await put(pair, "a", 1, "one")

    async def other_backup() -> None:
        async with target_at(folder) as target:
            await target.dfs.create_file(f"/{manifest_name(1)}", b"of another call")

    sites.spoil = at_piece(2, other_backup)
    with pytest.raises(Conflict, match="another backup wrote"):
        await back_up(sites, folder)
    assert holders(pair, "a") == []
