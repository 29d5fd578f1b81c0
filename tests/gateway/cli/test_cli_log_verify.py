"""`twinlog log verify` finds nothing wrong where the gateway opens without a word, and reports what is wrong, with file and
offset: histories that the product's own writers left, and the same with one thing changed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.files import write_files
from storage.disk.os_files import OsFiles
from storage.log.frame import Flags, Frame
from storage.log.segment import remote_name, wal_name
from storage.log.wal import Wal, WalSettings
from tests.gateway.cli.cli_rig import invoke
from tests.storage.log.frames import a_frame, later, run, segment_bytes

ALONE = WalSettings(segment_bytes=64 << 10)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "a" / "data").mkdir(parents=True)
    return write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]


def verify(config: Path) -> tuple[int, list[tuple[str, int]], list[tuple[str, int]]]:
    """Exit code, then file name and offset of the faults, and of the remarks."""
    result = invoke("log", "verify", "--config", str(config), "--json")
    said = json.loads(result.stdout)
    return result.exit_code, _places(said["faults"]), _places(said["remarks"])


def _places(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(Path(each["file"]).name, each["offset"]) for each in found]


async def written(data: Path, *epochs: tuple[int, list[Frame]]) -> None:
    """A WAL as this site writes it: it is the active in these epochs, and restarts or follows another site in between."""
    for epoch, frames in epochs:
        wal = await Wal.open(OsFiles(data), settings=ALONE)
        await wal.start(epoch, frames[0].first_seq)
        for frame in frames:
            await wal.append(frame)
        await wal.close()


async def opens(data: Path) -> None:
    """A start of the gateway, on a copy. Raises DamagedLog."""
    copy = data.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    wal = await Wal.open(OsFiles(copy), settings=ALONE)
    await wal.close()


def put(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def put_wal(config: Path, index: int, frames: list[Frame], epoch: int = 1, pair: str = "") -> Path:
    wal = config.parent / "data" / "wal"
    return put(wal, wal_name(epoch, index), segment_bytes(frames, epoch=epoch, index=index, pair=pair))


def put_own(config: Path, number: int, frames: list[Frame], pair: str = "") -> Path:
    """A segment that the other site wrote to this site's DFS."""
    folder = config.parent / "dfs" / "demo" / "0" / f"{1:012d}"
    return put(folder, remote_name(wal_name(1, 1), number), segment_bytes(frames, pair=pair))


def test_after_a_read_only_disk_the_log_of_the_site_that_came_back_has_a_hole(config: Path) -> None:
    """Its epoch 1 ended with the disk; the other site wrote epoch 2, up to 29; then this one was the active again."""
    data = config.parent / "data"
    asyncio.run(written(data, (1, run(1, 10)), (3, [a_frame(30, epoch=3), *run(31, 5, epoch=3)])))
    asyncio.run(opens(data))
    assert verify(config) == (0, [], [])


def test_after_a_power_loss_frames_that_were_never_durable_are_missing(config: Path) -> None:
    """One sync was outstanding for the end of the first file and all of the second one: of these only the latter came."""
    frames = run(1, 5)
    put_wal(config, 1, frames[:4])
    behind = put_wal(config, 2, [a_frame(6, committed=4), a_frame(7, committed=4)])
    asyncio.run(opens(config.parent / "data"))
    assert verify(config) == (0, [], [(behind.name, 64)])
    behind = put_wal(config, 2, [a_frame(6, committed=5)])
    code, faults, _ = verify(config)
    assert (code, faults) == (1, [(wal_name(1, 1), 64 + sum(len(frame.data) for frame in frames[:4]))]), "it was committed"


def test_after_a_power_loss_a_file_was_torn_before_anything_was_in_it(config: Path) -> None:
    put_wal(config, 1, run(1, 5))
    last = put(config.parent / "data" / "wal", wal_name(1, 2), bytes(1000))
    asyncio.run(opens(config.parent / "data"))
    assert verify(config) == (0, [], [(last.name, 0)])
    put_wal(config, 3, run(6, 5))
    assert verify(config)[:2] == (1, [(last.name, 0)]), "segments follow, so it was whole once"


def test_after_a_resync_the_remote_log_lacks_what_was_acknowledged_without_it(config: Path) -> None:
    """As the site sees it that followed all the time: 11 to 15 came to it by shipping, and its WAL is empty."""
    put_own(config, 0, run(1, 10))
    behind = put_own(config, 1, [a_frame(16, committed=15, flags=int(Flags.ASYNC)), *run(17, 5)])
    assert verify(config) == (0, [], [(behind.name, 64)])


def test_a_gap_within_what_one_epoch_wrote_into_one_remote_file_is_a_fault(config: Path) -> None:
    frames = run(1, 10)
    file = put_own(config, 0, [*frames[:4], *frames[5:]])
    assert verify(config)[:2] == (1, [(file.name, 64 + sum(len(frame.data) for frame in frames[:4]))])


def twice(frames: list[Frame]) -> tuple[list[Frame], int]:
    return [*frames[:6], frames[2], *frames[6:]], 6


def swapped(frames: list[Frame]) -> tuple[list[Frame], int]:
    return [*frames[:4], frames[5], frames[4], *frames[6:]], 5


@pytest.mark.parametrize("plant", [twice, swapped])
@pytest.mark.parametrize("put_log", [put_wal, put_own])
def test_a_frame_twice_and_two_frames_swapped_are_reported(
    config: Path, plant: Callable[[list[Frame]], tuple[list[Frame], int]], put_log: Callable[[Path, int, list[Frame]], Path]
) -> None:
    frames, place = plant(run(1, 10))
    file = put_log(config, 1, frames)
    assert verify(config) == (1, [(file.name, 64 + sum(len(frame.data) for frame in frames[:place]))], [])


def test_a_frame_that_the_two_logs_hold_with_other_bytes_is_reported_with_both_places(config: Path) -> None:
    put_wal(config, 1, run(1, 10))
    folder = config.parent.parent / "b" / "dfs" / "demo" / "0" / f"{1:012d}"
    other = [*run(1, 5), a_frame(6, committed=5, flags=int(Flags.ASYNC)), *run(1, 10)[6:]]
    file = put(folder, remote_name(wal_name(1, 1), 0), segment_bytes(other))
    result = invoke("log", "verify", "--config", str(config), "--json")
    (fault,) = json.loads(result.stdout)["faults"]
    at = 64 + sum(len(frame.data) for frame in run(1, 5))
    assert (fault["file"], fault["offset"], fault["other_offset"]) == (str(file), at, at)


def test_a_segment_of_another_pair_is_reported_where_its_times_do_not_fit(config: Path) -> None:
    """Its frames link, and the other log does not hold them: it stands at the edge of what is trimmed."""
    frames = run(1, 30)
    for foreign, reported, at in ((frames[:10], 1, frames[10]), (frames[10:20], 2, frames[20]), (frames[20:], 2, None)):
        for index, own in enumerate((frames[:10], frames[10:20], frames[20:]), 1):
            hours = 1 << 38 if own == foreign else 0
            put_wal(config, index, [later(frame, hours) for frame in own])
        faults = [] if at is None else [(wal_name(1, reported + 1), 64)]
        assert verify(config)[:2] == (len(faults), faults)
    put_wal(config, 3, [later(frame, -20) for frame in frames[20:]])
    put_wal(config, 2, frames[10:20])
    assert verify(config)[:2] == (1, [(wal_name(1, 3), 64)])


@pytest.mark.parametrize("foreign", range(5))
def test_a_segment_of_another_pair_is_reported_by_its_header(config: Path, foreign: int) -> None:
    """Its frames link, its times fit, and the other log does not hold them."""
    frames = run(1, 30)
    pairs = ["b2" * 8 if place == foreign else "a1" * 8 for place in range(5)]
    for index in range(1, 4):
        put_wal(config, index, frames[10 * index - 10 : 10 * index], pair=pairs[index - 1])
    for number in range(2):
        put_own(config, number, run(40 + 5 * number, 5), pair=pairs[3 + number])
    name = wal_name(1, foreign + 1) if foreign < 3 else remote_name(wal_name(1, 1), foreign - 3)
    assert verify(config)[:2] == (1, [(name, 0)])
