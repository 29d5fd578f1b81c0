"""Bytes that turn: in a file of the right site, at a place where a reader can know it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.fault_lines import Fault
from chaos.harness.bugs.bugs import BUGS
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import BY_NAME
from chaos.harness.faults.rot import PLACES, Rot
from chaos.harness.pair.sites import RealSites
from storage.log.frame import Flags, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, encode_frames, encode_header, scan_segment
from twinlog.errors import DamagedLog, InvalidInput

PAIR = "0123456789abcdef"
WAL_NAME = "000000000001-00000001"


def segment(alignment: int, count: int = 5) -> bytes:
    frames = [
        make_frame(
            log=0, epoch=1, first_seq=seq, previous=seq - 1, timestamp=seq << 16, committed=seq - 1, flags=Flags(0),
            records=[Record(RecordKind.UPSERT, 1, b"key", b"value") if seq == 2 else Record(RecordKind.NOOP)],
        ) for seq in range(1, count + 1)
    ]
    return encode_header(SegmentHeader(0, 1, 1, WAL_NAME, alignment, PAIR)) + encode_frames(frames, alignment)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    for name, data in {
        f"a/data/wal/{WAL_NAME}": segment(1), f"b/dfs/demo/0/000000000001/{WAL_NAME}.1": segment(REMOTE_ALIGNMENT),
        f"b/dfs/demo/0/000000000001/{WAL_NAME}.2": segment(REMOTE_ALIGNMENT), "b/dfs/demo/0/claims/000000000001": b"{}",
        "b/dfs/demo/0/register/000000000001": b"{1}", "b/dfs/demo/0/register/000000000002": b"{2}",
        "a/data/engine/rocksdb/000004.sst": bytes(500), "a/data/engine/rocksdb/MANIFEST-000001": bytes(50),
        "a/data/engine/notes": b"n", "a/data/journal.db": bytes(90), "a/data/cursors/holders.json": b"{}",
        "a/data/register/met.json": b"{}", "a/data/twinlog.json": b"{}",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Stage(RealSites(tmp_path), None, None, lambda: "a", seed=7)  # type: ignore[arg-type]


def contents(stage: Stage) -> dict[str, bytes]:
    folder = stage.sites.folder
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def rotten(stage: Stage, how: str) -> tuple[str, bytes, bytes]:
    """The file that has changed, its bytes before and after."""
    before = contents(stage)
    effect = Rot(stage, Fault(1, "rot", "active", 0, how))
    assert await effect.why_not() == ""
    await effect.inject()
    after = contents(stage)
    [name] = [name for name in before if before[name] != after[name]]
    return name, before[name], after[name]


@pytest.mark.parametrize("place", list(PLACES))
async def test_one_bit_of_one_file_turns(stage: Stage, place: str) -> None:
    name, before, after = await rotten(stage, place)
    assert name.startswith("b/dfs" if place in ("remote", "register") else "a/data")
    assert len(before) == len(after)
    assert sum((x ^ y).bit_count() for x, y in zip(before, after, strict=True)) == 1
    [damage] = stage.sites.spoiled.damages
    assert (damage.site, damage.part) == ("a", place)
    assert damage.is_there
    assert all(life.may_refuse for life in stage.sites.lives.values())
    damage.path.write_bytes(before)
    assert not damage.is_there
    damage.path.unlink()
    assert not damage.is_there


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("place", ["wal", "remote"])
async def test_what_turns_in_a_log_is_damage_to_its_reader(stage: Stage, place: str, seed: int) -> None:
    stage.seed = seed
    name, _, after = await rotten(stage, place)
    with pytest.raises(DamagedLog):
        scan_segment(after, name.rpartition("/")[2])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("place", ["wal/value", "remote/value"])
async def test_in_a_value_nothing_but_the_checksum_shows_it(
    stage: Stage, place: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.seed = seed
    name, before, after = await rotten(stage, place)
    with pytest.raises(DamagedLog):
        scan_segment(after, name.rpartition("/")[2])
    with monkeypatch.context() as patched:
        for owner, member, replacement in BUGS["ignore-crc"].patches:
            patched.setattr(owner, member, replacement)
        sound, read = (scan_segment(data, name.rpartition("/")[2]).frames for data in (before, after))
        assert [frame.position for frame in read] == [frame.position for frame in sound]
        assert [frame.records for frame in read[:1] + read[2:]] == [frame.records for frame in sound[:1] + sound[2:]]
        [turned] = read[1].records
    assert (turned.key, len(turned.value)) == (b"key", 5)
    assert turned.value != b"value"


async def test_a_remote_log_is_never_cut_at_its_end(stage: Stage) -> None:
    name, before, after = await rotten(stage, "remote/cut")
    assert name.endswith(".1")
    assert before.startswith(after)
    (stage.sites.folder / name).unlink()
    effect = Rot(stage, Fault(1, "rot", "active", 0, "remote/cut"))
    assert await effect.why_not() == "nothing there would differ from what a crash leaves"


async def test_a_log_whose_end_alone_could_be_torn_is_left_as_it_is(stage: Stage) -> None:
    (stage.sites.folder / "a/data/wal" / WAL_NAME).write_bytes(segment(1, 1))
    effect = Rot(stage, Fault(1, "rot", "active", 0, "wal"))
    assert await effect.why_not() == "nothing there would differ from what a crash leaves"


async def test_the_only_copy_is_spared(stage: Stage) -> None:
    stage.is_sync = lambda: False
    assert "one copy only" in await Rot(stage, Fault(1, "rot", "a", 0, "wal")).why_not()
    assert "one copy only" not in await Rot(stage, Fault(1, "rot", "b", 0, "wal")).why_not()


async def test_the_other_copy_is_spared(stage: Stage) -> None:
    await rotten(stage, "wal")
    assert await Rot(stage, Fault(1, "rot", "b", 0, "remote")).why_not() == "site a has a damaged file already"
    (stage.sites.folder / "b/data/register").mkdir(parents=True)
    (stage.sites.folder / "b/data/register/met.json").write_bytes(b"{}")
    assert await Rot(stage, Fault(1, "rot", "b", 0, "mark")).why_not() == ""


async def test_the_newest_file_of_a_register_is_the_one(stage: Stage) -> None:
    name, _, _ = await rotten(stage, "register")
    assert name.endswith("2")


def test_places_and_ways_are_few() -> None:
    kind = BY_NAME["rot"]
    assert kind.checked(Fault(1, "rot", "a", 0, "wal/cut"))
    for how in ("", "disk", "wal/burnt", "engine/value"):
        with pytest.raises(InvalidInput):
            kind.checked(Fault(1, "rot", "a", 0, how))
