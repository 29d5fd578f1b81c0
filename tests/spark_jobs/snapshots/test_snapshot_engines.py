"""Kept snapshots of every engine, read outside the gateway: the same bytes in the same order, and what is wrong is said."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from spark_jobs.snapshots.dividing import PIECE_ROWS, pieces_of
from spark_jobs.snapshots.rocks import between
from spark_jobs.snapshots.snapshot import KeyRange, SnapshotCatalog, SnapshotReader, decode_ranges, encode_ranges, open_snapshot
from storage.engine import StoredRow
from tests.spark_jobs.snapshots.snapshot_rig import ENGINES, frames, storage, table
from twinlog.errors import ConfigError, EngineFailed, InvalidInput, NotFound, Refused, TwinlogError

TABLES = [table(1), table(2, "empty"), table(1 << 63)]
ROWS = {
    1: {b"": b"\x80", b"\0": b"a", b"\0\0": b"b", b"\0\xff\1": b"c", b"k": b"v" * 3_000_000, b"\xff\xff": b"last"},
    1 << 63: {b"%05d" % number: b"x" for number in range(2500)},
}
LOG = frames(TABLES, ROWS)


@pytest.mark.parametrize("kind", ENGINES)
async def test_rows_come_as_they_were_applied_by_key(kind: str, tmp_path: Path) -> None:
    async with storage(kind, "a", tmp_path, LOG) as site:
        kept = await site.keep()
        wanted = {number: await site.engine.scan(number, None, None, reverse=False, limit=9999) for number in (1, 2, 1 << 63)}
        with open_snapshot(kept.place, site.url) as snapshot:
            assert snapshot.catalog() == SnapshotCatalog(LOG[-1].last_seq, 1, {schema.id: schema for schema in TABLES})
            for number, rows in wanted.items():
                assert list(snapshot.walk(number, b"", None)) == [packed(row) for row in rows]
            assert [key for key, _ in snapshot.walk(1, b"\0\0", b"k")] == [b"\0\0", b"\0\xff\1"]
            assert list(snapshot.walk(3, b"", None)) == []


def packed(row: StoredRow) -> tuple[bytes, bytes]:
    return row.key, row.version.to_bytes(8, "big") + row.value


@pytest.mark.parametrize("kind", ENGINES)
async def test_what_comes_later_is_not_in_it_and_several_read_at_once(kind: str, tmp_path: Path) -> None:
    log = frames(TABLES[:1], {1: {b"%04d" % number: b"x" for number in range(1500)}})
    async with storage(kind, "a", tmp_path, log[:-1]) as site:
        kept = await site.keep()
        await site.engine.apply(log[-1:])
        await site.plant((1, b"0001", None))
        with open_snapshot(kept.place, site.url) as one, open_snapshot(kept.place, site.url) as other:
            assert len(list(one.walk(1, b"", None))) == len(list(other.walk(1, b"", None))) == 1000
            assert one.catalog().seq == log[-2].last_seq


@pytest.mark.parametrize("kind", ENGINES)
async def test_cuts_make_pieces_of_about_the_same_size(kind: str, tmp_path: Path) -> None:
    source = random.Random(4)
    rows = {b"flights/" + source.randbytes(6): b"v" * 200 for _ in range(8000)}
    async with storage(kind, "a", tmp_path, frames(TABLES, {1: rows, 1 << 63: {b"k": b"v"}})) as site:
        kept = await site.keep()
        with open_snapshot(kept.place, site.url) as snapshot:
            cuts = snapshot.cuts(1, b"", None, 500)
            assert cuts == sorted(set(cuts))
            assert 8 <= len(cuts) <= 40
            pieces = zip([b"", *cuts], [*cuts, None], strict=True)
            sizes = [sum(1 for _ in snapshot.walk(1, start, end)) for start, end in pieces]
            assert sum(sizes) == 8000
            assert max(sizes) < 3000
            inside = snapshot.cuts(1, b"flights/\x40", b"flights/\x80", 500)
            assert 1 <= len(inside) < len(cuts)
            assert all(b"flights/\x40" < key < b"flights/\x80" for key in inside)
            assert snapshot.cuts(1, b"flights/\x40", b"flights/\x40\1", 500) == []
            assert snapshot.cuts(1, b"", None, PIECE_ROWS) == []
            assert snapshot.cuts(2, b"", None, 500) == snapshot.cuts(5, b"", None, 500) == []
            assert [(one.table, one.start, one.end) for one in pieces_of(snapshot, [1 << 63, 1])] == [
                (1, b"", None), (1 << 63, b"", None)
            ]


def test_keys_between_two() -> None:
    assert between(b"a\x00", b"a\xff", 4) == [b"a\x3f\xc0", b"a\x7f\x80", b"a\xbf\x40"]
    assert between(b"a", b"a\0", 4) == [b"a"]  # nothing lies between: a cut that the walk drops
    assert between(b"a", b"b", 0) == between(b"a", b"b", 1) == []
    cuts = between(b"\0\0", b"\xff" * 20, 100)
    assert len(cuts) == 99
    assert cuts == sorted(cuts)


async def test_a_checkpoint_is_not_written_into(tmp_path: Path) -> None:
    async with storage("rocksdb", "a", tmp_path, LOG) as site:
        folder = Path((await site.keep()).place.removeprefix("rocksdb:"))
        before = state_of(folder)
        with open_snapshot(f"rocksdb:{folder}", "") as snapshot:
            assert sum(1 for _ in snapshot.walk(1, b"", None)) == len(ROWS[1])
        assert state_of(folder) == before


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}


async def test_damage_is_an_error_and_not_an_end(tmp_path: Path) -> None:
    async with storage("rocksdb", "a", tmp_path, LOG) as site:
        folder = tmp_path / "copy"
        shutil.copytree((await site.keep()).place.removeprefix("rocksdb:"), folder)
    for file in folder.glob("*.sst"):
        content = bytearray(file.read_bytes())
        if len(content) > 100:
            content[60] ^= 1
            file.write_bytes(content)
    with open_snapshot(f"rocksdb:{folder}", "") as snapshot, pytest.raises(EngineFailed, match="Corruption"):
        read_all(snapshot)


def read_all(snapshot: SnapshotReader) -> None:
    for number in ROWS:
        list(snapshot.walk(number, b"", None))


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_site_that_is_being_loaded_is_no_basis(kind: str, tmp_path: Path) -> None:
    async with storage(kind, "a", tmp_path, []) as site:
        await site.engine.load_base([], [], b"begun", True, schemas={})
        kept = await site.keep()
        with pytest.raises(Refused, match="being loaded"), open_snapshot(kept.place, site.url) as snapshot:
            snapshot.catalog()


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_released_snapshot_is_gone(kind: str, tmp_path: Path) -> None:
    async with storage(kind, "a", tmp_path, LOG[:1]) as site:
        kept = await site.keep()
        await site.engine.release_snapshot("audit")
        with pytest.raises(NotFound, match="take a new barrier"), open_snapshot(kept.place, site.url):
            pass


@pytest.mark.parametrize(("place", "url", "error", "said"), [
    ("memory:", "", InvalidInput, "no other process"),
    ("mysql:3", "", InvalidInput, "no place of a snapshot"),
    ("rocksdb:", "", InvalidInput, "no place of a snapshot"),
    ("postgresql:'; DROP", "", NotFound, "no exported snapshot"),
    ("postgresql:0-1", "sqlite:///x", ConfigError, "must begin with"),
    ("postgresql:0-1", "nonsense", ConfigError, "is none"),
    ("postgresql:0-1", "postgresql+psycopg://u:secret@127.0.0.1:1/d", EngineFailed, "cannot be read"),
])
def test_a_place_that_is_none(place: str, url: str, error: type[TwinlogError], said: str) -> None:
    with pytest.raises(error, match=said) as raised, open_snapshot(place, url):
        pass
    assert "secret" not in raised.value.message


def test_ranges_as_an_option() -> None:
    ranges = [KeyRange(1 << 63, 3, b"\0\xff", None, 7), KeyRange(2, 0, b"", b"a", 0)]
    assert decode_ranges(encode_ranges(ranges)) == ranges
