"""An encrypted remote log: its writer, its readers and its trimmer, with keys and without them."""

from __future__ import annotations

import secrets

import pytest

from remote_log.fencing.key_look import KeyLook
from remote_log.fencing.reading import begins_after, missing_from, newest_pair, read_frames
from remote_log.writing.left_out import LeftOut
from remote_log.writing.trimmer import Trimmer
from storage.log.encryption import KEY_BYTES, NO_KEYS, Keyring
from storage.log.segment import parse_header, scan_segment
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, Kept, NotingWriter, Now, turns, until
from tests.remote_log.writing.writer_rig import path_of, submit_all
from tests.storage.log.frames import run
from tests.storage.log.keys import ring
from twinlog.errors import DamagedLog, DfsError, KeyUnavailable

pytestmark = pytest.mark.usefixtures("nothing_is_raised_into_the_event_loop")
WORD = b"a word of a row"


async def written(dfs: MemoryDfs, keys: Keyring, *, epoch: int = 1) -> NotingWriter:
    writer = NotingWriter(dfs, epoch=epoch, segment_bytes=2000, keys=keys)
    await writer.open(1)
    for frame in run(1, 30, epoch=epoch, value=WORD):
        writer.submit(frame)
        await turns(4)
    await until(lambda: writer.synced_seq == 30)
    await turns(60)
    return writer


def bytes_of(dfs: MemoryDfs) -> dict[str, bytes]:
    return {path: bytes(file.data) for path, file in sorted(dfs.disk.files.items()) if "/claims/" not in path}


async def test_each_segment_has_its_own_data_key_and_shows_no_row(dfs: MemoryDfs) -> None:
    drawn: list[bytes] = []

    def new_bytes(count: int) -> bytes:
        drawn.append(secrets.token_bytes(count))
        return drawn[-1]

    writer = await written(dfs, ring("k1", new_bytes=new_bytes))
    await writer.close()
    segments = bytes_of(dfs)
    headers = [parse_header(data) for data in segments.values() if data]
    assert len(headers) > 3
    assert len([each for each in drawn if len(each) == KEY_BYTES]) == len({*drawn}) / 2 == len(headers)
    assert all(WORD not in data and len(data) % 512 == 0 for data in segments.values())
    assert sum(segment.bytes for segment in writer.segments) == sum(map(len, segments.values()))
    assert await read_frames(dfs, LAYOUT, 9, keys=ring("k2", "k1")) == run(1, 30, value=WORD)


@pytest.mark.parametrize("landed", [0.0, 0.1, 0.5, 1.0])
async def test_what_is_appended_again_goes_to_another_place_with_another_key(dfs: MemoryDfs, landed: float) -> None:
    """No place of a segment gets bytes twice, so no nonce is used twice with one key."""
    writer = NotingWriter(dfs, keys=ring("k1"))
    await writer.open(1)
    dfs.faults["append", 4] = Fault(DfsError("the pipeline broke"), landed=landed)
    await submit_all(writer, run(1, 8))
    await until(lambda: writer.synced_seq == 8)
    segments = bytes_of(dfs)
    keys = [parse_header(data).data_key for data in segments.values()]
    assert len(set(keys)) == len(keys) == 2
    found = [[frame.first_seq for frame in scan_segment(data, path, keys=ring("k1")).frames] for path, data in segments.items()]
    assert found == [[1, 2, 3] if landed >= 0.5 else [1, 2], [3, 4, 5, 6, 7, 8]]
    await writer.close()


@pytest.mark.parametrize("keys", [NO_KEYS, ring("k2"), ring("plain")])
async def test_without_the_key_nothing_is_read_kept_aside_or_deleted(dfs: MemoryDfs, keys: Keyring) -> None:
    await (await written(dfs, ring("k1"))).close()
    before, aside = bytes_of(dfs), Kept({1: 10})
    damaged: list[DamagedLog] = []
    with pytest.raises(KeyUnavailable, match="the key 'k1'"):
        await read_frames(dfs, LAYOUT, 9, damaged, keys=keys)  # as a forced takeover reads
    with pytest.raises(KeyUnavailable):
        await LeftOut(dfs, LAYOUT, aside, keys).look_anyhow(path_of(0))
    trimmer = Trimmer(dfs, LAYOUT, 2, 100, aside, keys)
    for _ in range(2):
        with pytest.raises(DfsError, match=r"could not be trimmed, and it will be tried again: .* the key 'k1'"):
            await trimmer.trim(Now(), 1000)
    assert (bytes_of(dfs), aside.cut, aside.damaged, damaged) == (before, [], {}, [])
    deleted = await Trimmer(dfs, LAYOUT, 2, 100, aside, ring("k2", "k1")).trim(Now(), 1000)
    assert (len(deleted), [frame.first_seq for frame in aside.cut]) == (len(before), list(range(11, 31)))


async def test_what_needs_no_row_needs_no_key(dfs: MemoryDfs) -> None:
    writer = await written(dfs, ring("k1"))
    assert await missing_from(dfs, LAYOUT, 1) is None
    assert await newest_pair(dfs, LAYOUT) == ""
    assert await begins_after(dfs, LAYOUT, 1) == 0
    with pytest.raises(KeyUnavailable):
        await missing_from(dfs, LAYOUT, 1, NO_KEYS)
    await writer.close()


async def test_a_look_at_the_keys_finds_each_segment_that_cannot_be_opened_once(dfs: MemoryDfs) -> None:
    await (await written(dfs, ring("k1"))).close()
    await KeyLook(dfs, LAYOUT, ring("k2", "k1")).look("k2")
    with pytest.raises(KeyUnavailable, match="the remote log of the active is encrypted with the key 'k3'"):
        await KeyLook(dfs, LAYOUT, ring("k2", "k1")).look("k3")
    look = KeyLook(dfs, LAYOUT, ring("k1"))
    await look.look("")
    writer = NotingWriter(dfs, epoch=2, keys=ring("k2"))
    await writer.open(31)
    with pytest.raises(KeyUnavailable, match=r"000000000002.*the key 'k2'"):
        await look.look("")
    await writer.close()
