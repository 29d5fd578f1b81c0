"""Rejoins that are interrupted, merges of their quarantines, leftovers of a dropped table and of a broken log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.site.peer_api import PeerApi
from remote_log.dfs.directory import DirectoryDfs
from remote_log.fencing.reading import segments_below
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import RowsRequest
from storage.log.frame import make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import wal_name
from storage.prefix import FLOOR
from tests.pair.faults import FaultyDfsWriter
from tests.pair.pair import Pair
from tests.pair.pair_rig import Moments, caught_up, epoch, holds, key_of, open_pair, put, rows, site, turns
from tests.remote_log.fencing.segments import closed_segment
from tests.storage.log.frames import segment_bytes
from tests.storage.noise import noise
from twinlog.errors import Conflict, DfsError, OutcomeUnknown, SyncFailed

LONG = noise(10_000)  # a WAL segment of the test pair takes six such rows


async def diverge(pair: Pair) -> None:
    """a acknowledges alone from here on."""
    await pair.until(lambda: caught_up(pair, "a", "b"))
    await pair.operate("a", "degrade")
    pair.cut = True


async def take_over(pair: Pair) -> None:
    await pair.stop("a")
    ended = await pair.force_failover("b")
    assert ended.state == "succeeded", ended
    pair.cut = False


def quarantined(pair: Pair, name: str) -> list[dict[str, Any]]:
    manifests = [json.loads(path.read_text()) for path in sorted((pair.root / name / "quarantine").glob("*.json"))]
    return [key for manifest in manifests for key in manifest["keys"]]


def quarantined_keys(pair: Pair, name: str) -> list[str]:
    return [key["key"] for key in quarantined(pair, name)]


async def test_a_rejoin_that_broke_while_it_cut_the_log_keeps_the_whole_quarantine(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await diverge(pair)
        for key in range(20):
            assert (await put(pair, "a", key, f"{key} {LONG}")).mode == "async"
        await take_over(pair)
        deleted: list[str] = []

        def break_the_disk() -> None:
            files = site(pair, "a").parts.files
            delete = files.delete

            async def fails_once(path: str) -> None:
                deleted.append(path)
                if len(deleted) == 2:
                    raise SyncFailed("injected")
                await delete(path)

            files.delete = fails_once  # type: ignore[method-assign]

        pair.failpoints["a"] = Moments({"rejoin.cut": break_the_disk})
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        await pair.until(lambda: pair.running["a"].operations.running_id is None)
        assert len(deleted) > 2
        assert len(set(quarantined_keys(pair, "a"))) == 20
        named = {(one["name"], one["row"]) for one in quarantined(pair, "a")}
        assert named == {("t", str(key)) for key in range(20)}, "for a person, who knows neither ids nor bytes"
        assert (await pair.operate("a", "rejoin", "a", merge=True, put_absent=True)).state == "succeeded"
        assert await rows(pair, "b") == {key: f"{key} {LONG}" for key in range(20)}


async def test_rows_that_are_fetched_come_in_answers_with_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 rows of a megabyte each came in one answer, which neither site could hold."""
    asked: list[int] = []
    answered: list[int] = []

    async def counted(api: PeerApi, request: RowsRequest) -> Any:
        reply: Any = await rows_of(api, request)
        asked.append(len(request.keys))
        answered.append(len(reply.rows))
        return reply

    rows_of = PeerApi._rows
    monkeypatch.setattr(PeerApi, "_rows", counted)
    monkeypatch.setattr("gateway.site.peer_api.ROWS_BYTES", 25_000)
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        before = {key: f"{key} {LONG}" for key in range(8)}
        for key, value in before.items():
            await put(pair, "a", key, value)
        await diverge(pair)
        for key in range(9):
            assert (await put(pair, "a", key, "only at a")).mode == "async"
        await take_over(pair)
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        assert await holds(pair, "a", before)
    assert (asked, answered) == ([9, 6, 3], [3, 3, 3])


async def test_a_site_gets_what_its_own_log_failed_to_keep_and_the_new_active_found_in_the_remote_log(tmp_path: Path) -> None:
    """Found by the simulator (seed 5079360): by its number it lies below what the site holds, and the site goes on without."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await put(pair, "a", 1, "shared")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        faults, core = pair.faults["a"], epoch(pair, "a").core
        faults.hold_local.clear()
        faults.fail_local = 1
        writing = asyncio.ensure_future(put(pair, "a", 2, "in the remote log"))
        await pair.until(lambda: core.remote > core.local)
        pair.cut = faults.remote_down = True
        faults.hold_local.set()
        with pytest.raises(OutcomeUnknown):
            await writing
        assert (await pair.operate("a", "degrade")).state == "succeeded"
        assert (await put(pair, "a", 3, "alone")).mode == "async"
        faults.remote_down = False
        await take_over(pair)
        expected = {1: "shared", 2: "in the remote log"}
        assert await rows(pair, "b") == expected
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        assert await holds(pair, "a", expected)
        assert len(quarantined_keys(pair, "a")) == 1


async def test_a_merge_puts_back_the_last_of_several_changes_of_a_row(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        for key in (3, 4, 5):
            await put(pair, "a", key, "shared")
        await diverge(pair)
        await put(pair, "a", 1, "first")
        await put(pair, "a", 1, "second")
        await put(pair, "a", 2, "gone again")
        await put(pair, "a", 2, "", op="delete")
        await put(pair, "a", 3, "", op="delete")
        await put(pair, "a", 3, "anew", op="insert")
        await put(pair, "a", 4, "older")
        await put(pair, "a", 5, "older")
        await take_over(pair)
        await put(pair, "b", 4, "newer")
        await put(pair, "b", 5, "", op="delete")
        await put(pair, "b", 5, "newer")
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY" and pair.running["a"].operations.running_id is None)
        ended = await pair.operate("a", "rejoin", "a", merge=True, put_absent=True)
        assert ended.state == "succeeded", ended
        expected = {1: "second", 3: "anew", 4: "newer", 5: "newer"}
        assert await rows(pair, "b") == expected
        await pair.until(lambda: holds(pair, "a", expected))


async def test_a_merge_that_is_repeated_changes_nothing_more(tmp_path: Path) -> None:
    """Its answer was lost, or the site died before it renamed the file."""
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        await diverge(pair)
        await put(pair, "a", 1, "first")
        await put(pair, "a", 1, "second")
        await take_over(pair)

        def break_the_disk() -> None:
            files = site(pair, "a").parts.files
            rename = files.rename

            async def fails_once(old: str, new: str) -> None:
                files.rename = rename  # type: ignore[method-assign]
                raise SyncFailed("injected")

            files.rename = fails_once  # type: ignore[method-assign]

        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "STANDBY")
        await pair.until(lambda: pair.running["a"].operations.running_id is None)
        break_the_disk()
        assert (await pair.operate("a", "rejoin", "a", merge=True, put_absent=True)).state == "failed"
        assert await rows(pair, "b") == {1: "second"}
        await put(pair, "b", 1, "third")
        assert (await pair.operate("a", "rejoin", "a", merge=True, put_absent=True)).state == "succeeded"
        assert await rows(pair, "b") == {1: "third"}


async def test_a_write_is_refused_while_its_table_is_being_dropped(tmp_path: Path) -> None:
    """Behind the drop in the log it would be acknowledged and not be there; a restore would show it again."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        table = site(pair, "a").catalog.get("t")
        pair.faults["a"].hold_remote.clear()
        dropping = asyncio.ensure_future(pair.running["a"].service.tables.drop("t", confirm="t"))
        await turns()
        writing = asyncio.ensure_future(put(pair, "a", 2, "too late"))
        pair.faults["a"].hold_remote.set()
        await dropping
        with pytest.raises(Conflict):
            await writing
        engine = site(pair, "a").parts.engine
        kept = await engine.scan(table.id, None, None, reverse=False, limit=10)
        assert len(kept) == 1  # for a restore: the row that was there before


async def test_what_a_broken_remote_log_left_open_goes_once_the_pair_is_synchronous_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer could not close its segment when the site degraded; the next one is of the same epoch."""

    async def cannot_close(self: FaultyDfsWriter) -> None:
        if self._faults.remote_down:
            self._faults.left_open.append(self._writer)
            raise DfsError("injected")
        await self._writer.close()

    monkeypatch.setattr(FaultyDfsWriter, "close", cannot_close)
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        pair._dead.append(pair.faults["a"])
        await put(pair, "a", 1, "x")
        pair.faults["a"].remote_down = True
        await pair.operate("a", "degrade")
        pair.faults["a"].remote_down = False
        assert (await pair.operate("a", "resync")).state == "succeeded"
        dfs, layout = DirectoryDfs(tmp_path / "b" / "dfs", "test"), RemoteLayout("test")
        async with asyncio.timeout(120):
            while True:
                if len(await segments_below(dfs, layout, 10**6)) == 1:
                    return
                await asyncio.sleep(0.01)  # a poll of the remote log, bounded above


async def test_a_crashed_active_whose_last_frame_nothing_attests_rejoins_from_the_logs(tmp_path: Path) -> None:
    """Its own log has that frame, and the new active's history ends the old epoch with it: no base data is needed."""
    async with open_pair(tmp_path, flush_interval_s=60.0, resync_after_s=None) as pair:
        await pair.operate("a", "degrade")  # so that the new active has no remote log to serve the old one from
        for key in range(5):
            await put(pair, "a", key, f"a{key}")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        await pair.crash("a")
        ended = await pair.force_failover("b")
        assert ended.state == "succeeded", ended
        await pair.start("a")
        assert site(pair, "a").parts.engine.applied.seq < 5
        await pair.until(lambda: pair.role("a") == "STANDBY" and caught_up(pair, "b", "a"))
        assert await rows(pair, "a") == {key: f"a{key}" for key in range(5)}
        assert epoch(pair, "b").shipper.base_rows_sent == 0


async def test_a_floor_is_judged_by_what_the_remote_log_leads_to(tmp_path: Path) -> None:
    """b rejoined, and is behind the point at which it fetched rows; the active is lost before anything was shipped."""
    async with open_pair(tmp_path) as pair:
        await pair.until(lambda: caught_up(pair, "a", "b"))
        pair.cut = True
        for key in range(5):
            assert (await put(pair, "a", key, "only in the remote log")).mode == "sync"
        needed = epoch(pair, "a").core.committed
        engine = site(pair, "b").parts.engine
        await engine.set_meta(FLOOR, str(needed + 20).encode())
        await pair.crash("a")
        ended = await pair.operate("b", "failover", "b")
        assert (ended.state, ended.error.code) == ("failed", "log-gap"), ended
        assert str(needed + 20) in ended.error.message
        assert pair.role("b") == "CLOSED"
        assert engine.applied.seq < needed, "nothing was applied to a storage that cannot be opened"
        await engine.set_meta(FLOOR, str(needed).encode())
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        assert len(await rows(pair, "b")) == 5


async def test_a_takeover_keeps_aside_what_it_deletes_of_the_remote_log_and_its_history_lacks(tmp_path: Path) -> None:
    """The active of the first epoch left a frame in the remote log only, and the second epoch does not continue from it."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        key = key_of(pair, "a", 7)
        await pair.stop("a")
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "ACTIVE" and epoch(pair, "a").epoch > 1)
        await put(pair, "a", 2, "y")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        end, table = site(pair, "a").parts.engine.applied.epochs[-1].previous, site(pair, "a").catalog.get("t").id
        cut = make_frame(epoch=1, first_seq=end + 1, previous=end, timestamp=1, committed=0, records=[
            Record(RecordKind.UPSERT, table, key, b"")
        ])
        left, parts = segment_bytes([cut], pair=site(pair, "a").parts.wal.pair), site(pair, "b").parts
        await pair.crash("a")
        await closed_segment(parts.own_dfs, parts.layout.segment(1, wal_name(1, 1), 99), left)
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        [name] = [name for name in await parts.files.list("quarantine") if name.endswith(".frames")]
        assert await parts.files.read(f"quarantine/{name}") == cut.data
        assert await holds(pair, "b", {1: "x", 2: "y"})
