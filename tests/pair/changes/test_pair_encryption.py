"""Encrypted logs of a whole pair: what lies on the other site's DFS shows no row, and role changes read it with the keys."""

from __future__ import annotations

from pathlib import Path

from storage.log.segment import parse_header, parse_remote_name, parse_wal_name
from tests.pair.pair_rig import caught_up, holds, open_pair, put, site
from tests.storage.log.keys import ring

WORD = "a-word-that-nobody-else-writes"


def files(root: Path, *, wal: bool) -> list[Path]:
    named = parse_wal_name if wal else parse_remote_name
    return [path for path in sorted(root.rglob("*")) if path.is_file() and named(path.name) is not None]


def key_ids(root: Path, *, wal: bool) -> set[str]:
    return {parse_header(path.read_bytes()).key_id for path in files(root, wal=wal)}


async def test_a_takeover_reads_what_was_written_with_keys_that_were_rotated_since(tmp_path: Path) -> None:
    async with open_pair(tmp_path, remote_keys=ring("k1"), wal_keys=ring("w1")) as pair:
        assert (await put(pair, "a", 1, WORD)).mode == "sync"
        assert key_ids(tmp_path / "b" / "dfs", wal=False) == {"k1"}
        assert key_ids(tmp_path / "a", wal=True) == {"w1"}
        logs = [*files(tmp_path / "b" / "dfs", wal=False), *files(tmp_path / "a", wal=True)]
        assert logs
        assert all(WORD.encode() not in path.read_bytes() for path in logs)
        pair.cut = True  # what follows is in the remote log alone
        assert (await put(pair, "a", 2, WORD)).mode == "sync"
        await pair.stop("b")
        pair.remote_keys["b"], pair.wal_keys["b"] = ring("k2", "k1"), ring("w2", "w1")
        await pair.crash("a")
        pair.cut = False
        await pair.start("b")
        await pair.until(lambda: pair.role("b") in ("CLOSED", "STANDBY"))
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        assert await holds(pair, "b", {1: WORD, 2: WORD})
        assert "w2" in key_ids(tmp_path / "b", wal=True)
        pair.remote_keys["a"], pair.wal_keys["a"] = ring("k2", "k1"), ring("w1")
        await pair.start("a")
        await pair.until(lambda: caught_up(pair, "b", "a") and site(pair, "b").mode == "sync")
        assert (await put(pair, "b", 3, WORD)).mode == "sync"
        assert key_ids(tmp_path / "a" / "dfs", wal=False) == {"k2"}
        assert await holds(pair, "b", {1: WORD, 2: WORD, 3: WORD})
