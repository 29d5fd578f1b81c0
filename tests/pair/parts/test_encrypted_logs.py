"""Encrypted logs of a whole pair: what lies on the other site's DFS shows no row, and role changes read it with the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.site.serving_facts import site_condition
from gateway.site.serving_judgement import KEYS
from storage.disk.os_files import OsFiles
from storage.log.encryption import NO_KEYS, Keyring, LogKey
from storage.log.segment import parse_header, parse_remote_name, parse_wal_name
from storage.log.wal import Wal
from tests.pair.pair_rig import caught_up, holds, open_pair, put, site
from tests.storage.log.keys import SETTING, ring
from twinlog.errors import KeyUnavailable

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


def written(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in [*files(root, wal=False), *files(root, wal=True)]}


@pytest.mark.parametrize(("keys", "said"), [
    (NO_KEYS, "encrypted with the key 'k1', which remote_log.encryption_keys (of a WAL: wal.encryption_keys) does not have"),
    (ring("k2"), "encrypted with the key 'k1', which remote_log.encryption_keys does not have"),
    (Keyring(SETTING, [LogKey("k1", bytes(32))], bytes), "the key of that id in remote_log.encryption_keys does not open it"),
])
async def test_a_standby_without_the_key_says_so_before_it_is_needed_and_nothing_is_lost(
    tmp_path: Path, keys: Keyring, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.site.supervisor.PROBE_INTERVAL_S", 0.05)
    async with open_pair(tmp_path, remote_keys=ring("k1")) as pair:
        assert (await put(pair, "a", 1, WORD)).mode == "sync"
        await pair.stop("b")
        pair.remote_keys["b"] = keys
        await pair.start("b")

        def told() -> bool:
            _, troubles, *_ = site_condition(site(pair, "b"))
            return any(one.about == KEYS and said.split(",")[0] in str(one.error) for one in troubles)

        await pair.until(told)
        checks = await pair.running["b"].operations.checks("failover")
        (found,) = [check for check in checks.checks if check.id == "remote-log.readable"]
        assert (found.status, said in found.seen) == ("failed", True), found
        pair.cut = True
        assert (await put(pair, "a", 2, WORD)).mode == "sync"
        await pair.crash("a")
        before = written(tmp_path / "b" / "dfs")
        refused = await pair.operate("b", "failover", "b")
        assert refused.state == "failed"
        assert "remote-log.readable" in str(refused.error)
        assert written(tmp_path / "b" / "dfs") == before
        await pair.stop("b")
        pair.cut, pair.remote_keys["b"] = False, ring("k1")
        await pair.start("b")
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        assert await holds(pair, "b", {1: WORD, 2: WORD})


async def test_a_gateway_without_the_key_of_its_wal_does_not_start_and_leaves_it(tmp_path: Path) -> None:
    async with open_pair(tmp_path, wal_keys=ring("w1", setting="wal.encryption_keys")) as pair:
        assert (await put(pair, "a", 1, WORD)).mode == "sync"
        await pair.stop("a")
        before = written(tmp_path / "a")
        for keys in (ring("w2", setting="wal.encryption_keys"), NO_KEYS):
            with pytest.raises(KeyUnavailable, match=r"wal/.* is encrypted with the key 'w1'.*wal\.encryption_keys"):
                await Wal.open(OsFiles(tmp_path / "a"), keys=keys)
        assert written(tmp_path / "a") == before
        pair.wal_keys["a"] = ring("w2", "w1", setting="wal.encryption_keys")
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        assert (await put(pair, "a", 2, WORD)).mode == "sync"
        assert await holds(pair, "a", {1: WORD, 2: WORD})


async def test_encryption_is_begun_while_plain_segments_are_left_and_ends_when_plain_is_removed(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        assert (await put(pair, "a", 1, WORD)).mode == "sync"
        for name in "ba":
            await pair.stop(name)
            pair.remote_keys[name], pair.wal_keys[name] = ring("k1", "plain"), ring("w1", "plain")
            await pair.start(name)
        await pair.until(lambda: pair.role("a") == "ACTIVE" and caught_up(pair, "a", "b"))
        assert (await put(pair, "a", 2, WORD)).mode == "sync"
        await pair.until(lambda: key_ids(tmp_path / "b" / "dfs", wal=False) == {"k1"})
        await pair.stop("b")
        pair.remote_keys["b"] = ring("k1")
        await pair.start("b")
        await pair.crash("a")
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        assert await holds(pair, "b", {1: WORD, 2: WORD})
