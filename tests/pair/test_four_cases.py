"""The table of protocol.md section 4: local and remote log, each ok or failed, forced one by one on two real sites."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.service.port import Mutation, WriteRequest, WriteResult
from remote_log.dfs.directory import DirectoryDfs
from remote_log.fencing.reading import segments_below
from remote_log.layout import RemoteLayout
from storage.log.frame import Frame
from storage.log.record import RecordKind
from storage.log.segment import scan_segment
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from twinlog.errors import OutcomeUnknown

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    await made.start("a")
    await made.start("b")
    await made.until(lambda: made.role("a") == "ACTIVE" and made.role("b") == "STANDBY")
    await made.running["a"].service.tables.create(TABLE)
    yield made
    await made.stop_all()


async def put(pair: Pair, name: str, key: int, value: str, deadline_s: float | None = None) -> WriteResult:
    service = pair.running[name].service
    table = service.tables.get("t")
    row_key, row_value = RowCodec(table).encode_json_row({"k": key, "v": value})
    return await service.rows.write(WriteRequest(table, [Mutation("upsert", row_key, row_value)]), deadline_s)


async def rows(pair: Pair, name: str) -> dict[int, str]:
    site = pair.running[name].site
    table = site.catalog.get("t")
    codec = RowCodec(table)
    found = {}
    for key in range(20):
        row_key, _ = codec.encode_json_row({"k": key, "v": ""})
        row = await site.parts.engine.get(table.id, row_key)
        if row is not None:
            found[key] = codec.decode_row(row.key, row.value)["v"]
    return found


async def holds(pair: Pair, name: str, expected: dict[int, str]) -> bool:
    return await rows(pair, name) == expected


def values_in(frames: list[Frame]) -> list[bytes]:
    return [record.value for frame in frames for record in frame.records if record.kind == RecordKind.UPSERT]


async def remote_frames(pair: Pair) -> list[Frame]:
    """Returns the frames that are visible now in a's remote log on b's DFS, those of an open segment too."""
    dfs, layout = DirectoryDfs(pair.root / "b" / "dfs", "test"), RemoteLayout("test")
    frames: list[Frame] = []
    for path in await segments_below(dfs, layout, 10**6):
        frames += scan_segment(await dfs.read(path), path).frames
    return frames


async def test_both_ok_the_row_is_in_both_logs_when_it_is_acknowledged(pair: Pair) -> None:
    result = await put(pair, "a", 1, "both")
    assert result.mode == "sync"
    wal = b"".join(path.read_bytes() for path in (pair.root / "a" / "wal").iterdir())
    assert b"both" in wal
    assert any(b"both" in value for value in values_in(await remote_frames(pair)))


async def test_local_ok_remote_failed_waits_then_is_unknown_and_appears_once_the_remote_log_is_back(pair: Pair) -> None:
    pair.faults["a"].remote_down = True
    with pytest.raises(OutcomeUnknown):
        await put(pair, "a", 1, "late", deadline_s=0.3)
    assert await rows(pair, "a") == {}
    pair.faults["a"].remote_down = False
    await pair.until(lambda: holds(pair, "a", {1: "late"}))
    assert any(b"late" in value for value in values_in(await remote_frames(pair)))
    assert (await put(pair, "a", 2, "next")).mode == "sync"


async def test_local_only_frames_reach_the_remote_log_first_when_the_site_restarts(pair: Pair) -> None:
    pair.faults["a"].remote_down = True
    with pytest.raises(OutcomeUnknown):
        await put(pair, "a", 1, "local only", deadline_s=0.3)
    await pair.stop("a")
    assert not any(b"local only" in value for value in values_in(await remote_frames(pair)))
    pair.faults["a"].remote_down = False
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "ACTIVE")
    assert await rows(pair, "a") == {1: "local only"}
    assert any(b"local only" in value for value in values_in(await remote_frames(pair)))


@pytest.mark.parametrize("lands", [False, True])
async def test_local_failed_remote_ok_is_unknown_and_excluded_by_the_next_write_on_both_sites(pair: Pair, lands: bool) -> None:
    faults = pair.faults["a"]
    faults.fail_local, faults.local_lands = 1, lands
    with pytest.raises(OutcomeUnknown):
        await put(pair, "a", 1, "failed")
    assert (await put(pair, "a", 2, "stands")).mode == "sync"
    assert await rows(pair, "a") == {2: "stands"}
    await pair.stop("a")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "succeeded", ended
    assert await rows(pair, "b") == {2: "stands"}


async def test_local_failed_remote_ok_as_the_last_frame_becomes_visible_on_both_sites(pair: Pair) -> None:
    site = pair.running["a"].site
    assert site.active_epoch is not None
    faults = pair.faults["a"]
    faults.fail_local = 10**6  # no new segment works either: nothing can exclude it
    with pytest.raises(OutcomeUnknown):
        await put(pair, "a", 1, "last")
    async with asyncio.timeout(120):
        while not any(b"last" in value for value in values_in(await remote_frames(pair))):  # noqa: ASYNC110 - a poll of files
            await asyncio.sleep(0.01)
    await pair.stop("a")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "succeeded", ended
    assert await rows(pair, "b") == {1: "last"}
    faults.fail_local = 0
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "STANDBY")
    await pair.until(lambda: holds(pair, "a", {1: "last"}))


async def test_both_failed_is_unknown_and_excluded(pair: Pair) -> None:
    faults = pair.faults["a"]
    faults.fail_local, faults.fail_remote = 1, 1
    with pytest.raises(OutcomeUnknown):
        await put(pair, "a", 1, "failed")
    assert (await put(pair, "a", 2, "stands")).mode == "sync"
    assert await rows(pair, "a") == {2: "stands"}
    await pair.stop("a")
    await pair.operate("b", "failover", "b")
    assert await rows(pair, "b") == {2: "stands"}


async def test_nothing_is_acknowledged_before_the_remote_append_has_ended(pair: Pair) -> None:
    pair.faults["a"].hold_remote.clear()
    writing = asyncio.ensure_future(put(pair, "a", 1, "held"))
    core = pair.running["a"].site.active_epoch
    assert core is not None
    await pair.until(lambda: core.core.local > core.core.committed and core.core.frames_in_flight > 0)
    assert not writing.done()
    assert await rows(pair, "a") == {}
    pair.faults["a"].hold_remote.set()
    assert (await writing).mode == "sync"
