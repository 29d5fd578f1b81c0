"""The WAL's disk is full: what is durable elsewhere gives its room back, and nobody blames the other site's DFS."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.pair.pair import Pair
from tests.pair.pair_rig import NEVER_S, caught_up, epoch, open_pair, put, site
from twinlog.errors import OutcomeUnknown, SyncFailed


async def fill_the_disk(pair: Pair) -> Any:
    """The next append fails, and no segment can be made. Returns what makes room again."""
    files = site(pair, "a").parts.wal._files
    making = files.create_log

    async def full(path: str, header: bytes, size_bytes: int) -> Any:
        raise SyncFailed(f"disk full: cannot create {path}")

    files.create_log = full  # type: ignore[method-assign]
    pair.faults["a"].fail_local = 1
    with suppress(OutcomeUnknown):
        await put(pair, "a", 2, "y", deadline_s=5)
    await pair.until(lambda: "disk full" in (epoch(pair, "a").commit.local_trouble or ""))
    return lambda: setattr(files, "create_log", making)


async def test_both_storages_are_flushed_so_that_the_log_can_be_trimmed(tmp_path: Path) -> None:
    """Neither storage asks for it by itself for an hour. The log had filled its own disk meanwhile, for ever."""
    async with open_pair(tmp_path, flush_interval_s=NEVER_S) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        engines = [site(pair, name).parts.engine for name in "ab"]
        assert all(engine.durable_seq < engine.applied.seq for engine in engines)
        make_room = await fill_the_disk(pair)
        await pair.until(lambda: all(engine.durable_seq == engine.applied.seq for engine in engines))
        make_room()
        await pair.until(lambda: epoch(pair, "a").commit.local_trouble is None)
        assert (await put(pair, "a", 3, "z")).mode == "sync"


async def test_its_storage_is_not_flushed_where_its_disk_is_full_too(tmp_path: Path) -> None:
    async with open_pair(tmp_path, flush_interval_s=NEVER_S) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        one, other = [site(pair, name).parts.engine for name in "ab"]
        rounds: list[int] = []

        async def little() -> int:
            rounds.append(1)
            return 1 << 20

        object.__setattr__(site(pair, "a").parts, "free_bytes", little)
        durable = one.durable_seq
        await fill_the_disk(pair)
        await pair.until(lambda: other.durable_seq == other.applied.seq and len(rounds) > 2)
        assert one.durable_seq == durable


async def test_the_policy_does_not_degrade_for_it(tmp_path: Path) -> None:
    async with open_pair(tmp_path, degrade_after_s=0.1) as pair:
        await put(pair, "a", 1, "x")
        await fill_the_disk(pair)
        one = epoch(pair, "a")
        await pair.until(lambda: one.proof_age_s > 1.0)
        assert site(pair, "a").mode == "sync"
