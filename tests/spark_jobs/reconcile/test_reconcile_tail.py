"""The sum of a tail, from its files alone; and its tables beside those of the sites."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark_jobs.job import JobRequest
from spark_jobs.reconcile import job as reconcile
from spark_jobs.reconcile.job import Looked, _lines, _looked
from spark_jobs.reconcile.tail import Tail, read_tail
from storage.log.frame import make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.log.segment import HEADER_BYTES
from storage.rows.schema import TableSchema, encode_schema
from tests.spark_jobs.log_rig import Silent, flip, write_wal
from tests.spark_jobs.reconcile.test_reconcile import BEFORE, CODEC, END, LATER, TAIL, TAIL_EPOCH, frame, key, put_aside, upsert
from tests.spark_jobs.snapshots.snapshot_rig import barrier, request, storage, table
from twinlog.errors import DamagedLog, InvalidInput, LogError, LogGap, NotFound, Refused


def changed_table(schema: TableSchema | None, number: int) -> Record:
    """`schema` None: dropped."""
    kind: Any = "put" if schema is not None else "drop"
    content = b"" if schema is None else encode_schema(schema)
    return Record(kind=int(RecordKind.DDL), table=number, value=msgspec.msgpack.encode(SchemaChange(kind, number, content, 0)))


def of(*records: Record) -> Tail:
    tail = Tail()
    tail.add(frame(list(records), LATER, epoch=TAIL_EPOCH))
    return tail


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[JobRequest]:
    """Two sites with the table flights of ten rows, at the end of BEFORE."""
    async with storage("rocksdb", "a", tmp_path, BEFORE) as a, storage("sqlite", "b", tmp_path, BEFORE) as b:
        yield request(await a.source(), await b.source(), barrier(END))


def described(looked: Looked) -> tuple[set[int], set[int], dict[bytes, bool]]:
    """Tables that are unmade, those that are foreign, and row -> whether its table is gone."""
    return set(looked.unmade), set(looked.foreign), {bytes(line[1]): bool(line[-1]) for line in _lines(looked)}  # type: ignore[call-overload]


async def test_a_table_that_the_tail_dropped_took_its_earlier_rows_with_it(asked: JobRequest) -> None:
    tail = of(upsert(1, "x"), changed_table(None, 1))
    assert (tail.changes, tail.schemas) == ({}, {1: None})
    assert described(_looked(asked, tail)) == ({1}, set(), {}), "it still stands at the sites"
    assert described(_looked(asked, of(changed_table(None, 9)))) == (set(), set(), {}), "it is not there either"


def test_an_update_of_a_row_that_the_tail_deleted_is_known_by_its_own_columns_only() -> None:
    change = CODEC.encode_changes({"text": "again"})
    tail = of(Record(RecordKind.DELETE, 1, key(1)), Record(RecordKind.UPDATE, 1, key(1), change))
    found = tail.changes[1, key(1)]
    assert (found.operation, found.value, found.records) == ("update", change, 2)


async def test_a_table_that_the_tail_changed_is_the_same_table(asked: JobRequest) -> None:
    tail = of(changed_table(table(1, "flights", history_s=7), 1), upsert(1, "x"))
    assert described(_looked(asked, tail)) == ({1}, set(), {key(1): False})
    same = of(changed_table(table(1, "flights"), 1), upsert(1, "x"))
    assert described(_looked(asked, same)) == (set(), set(), {key(1): False})


async def test_a_table_of_the_same_number_and_another_name_is_another_one(asked: JobRequest) -> None:
    """Both sites made a table, each without the other: what stands there under the keys is not the tail's."""
    tail = of(changed_table(table(1, "planes"), 1), upsert(1, "x"))
    looked = _looked(asked, tail)
    assert described(looked) == ({1}, {1}, {key(1): False})
    assert looked.schemas[1].name == "planes"


async def test_rows_of_a_table_that_nobody_has_any_more(asked: JobRequest) -> None:
    gone = replace_table(upsert(1, "x"), 9)
    assert described(_looked(asked, of(gone))) == (set(), set(), {key(1): True})
    made = of(changed_table(table(9, "new"), 9), gone)
    assert described(_looked(asked, made)) == ({9}, {9}, {key(1): False}), "the sites never had it"


def replace_table(record: Record, number: int) -> Record:
    return Record(record.kind, number, record.key, record.value)


async def test_only_the_tables_that_are_named(asked: JobRequest) -> None:
    tail = of(upsert(1, "x"), changed_table(table(2, "new"), 2), replace_table(upsert(2, "y"), 2))
    assert described(_looked(replace(asked, tables=("flights",)), tail)) == (set(), {2}, {key(1): False})
    assert described(_looked(replace(asked, tables=("new",)), tail)) == ({2}, {2}, {key(2): False})
    with pytest.raises(NotFound, match="no table 'planes', neither at the sites nor in what was put aside"):
        _looked(replace(asked, tables=("planes",)), tail)


async def test_snapshots_of_two_moments_are_no_basis(asked: JobRequest, tmp_path: Path) -> None:
    tail = put_aside(tmp_path / "quarantine", TAIL)
    for wrong in (barrier(END + 1), replace(barrier(END), epoch=9)):
        with pytest.raises(Refused, match="not of one moment"):
            reconcile.run(None, replace(asked, barrier=wrong, options={"tail": str(tail)}), Silent())  # type: ignore[arg-type]


def test_a_tail_of_a_log_is_what_stands_in_it(tmp_path: Path) -> None:
    """An epoch's frames behind the beginning of the next one were cut off: they are of no log."""
    kept, cut = frame([upsert(1, "x")], LATER, epoch=1), frame([upsert(2, "cut")], LATER, epoch=1, seq=END + 2)
    then = frame([upsert(3, "y")], 2 * LATER, epoch=2, seq=END + 2)
    write_wal(tmp_path / "wal", [[kept, cut]], epoch=1)
    wal = write_wal(tmp_path / "wal", [[then]], epoch=2)
    assert set(read_tail(wal).changes) == {(1, key(1)), (1, key(3))}


def test_half_a_tail_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    """A frame that is not whole at the end was never durable; one that others lead on from was."""
    frames = [frame([upsert(number, "x")], LATER, epoch=1, seq=END + number) for number in (1, 2, 3)]
    attesting = make_frame(
        epoch=1, first_seq=END + 4, previous=END + 3, timestamp=LATER, committed=END + 3, records=[upsert(4, "x")]
    )
    wal = write_wal(tmp_path / "wal", [[*frames, attesting]], epoch=1)
    flip(min(wal.iterdir()), HEADER_BYTES + len(frames[0].data) + 40)
    with pytest.raises(DamagedLog, match="offset"):
        read_tail(wal)
    torn = write_wal(tmp_path / "torn", [frames], epoch=1)
    flip(min(torn.iterdir()), HEADER_BYTES + len(frames[0].data) + 40)
    assert set(read_tail(torn).changes) == {(1, key(1))}
    write_wal(torn, [[frame([upsert(5, "y")], LATER, epoch=2, seq=END + 3)]], epoch=2)
    with pytest.raises(LogGap, match="frames are missing"):
        read_tail(torn)


def test_several_files_are_one_tail_in_their_order(tmp_path: Path) -> None:
    folder = put_aside(tmp_path / "quarantine", frame([upsert(1, "first"), upsert(2, "x")], LATER))
    (folder / "000000000002-1.frames").write_bytes(frame([Record(RecordKind.DELETE, 1, key(1))], 2 * LATER, epoch=3).data)
    found = read_tail(folder).changes
    assert (found[1, key(1)].operation, found[1, key(1)].records, found[1, key(1)].version) == ("delete", 2, 2 * LATER)
    assert found[1, key(2)].operation == "upsert"


def test_a_manifest_is_read_in_the_order_of_the_log(tmp_path: Path) -> None:
    path = put_aside(tmp_path / "quarantine", TAIL) / "000000000001-12.json"
    document = json.loads(path.read_text())
    straight = read_tail(path).changes
    path.write_text(json.dumps({**document, "keys": document["keys"][::-1]}))
    assert read_tail(path).changes == straight
    path.write_text(json.dumps({**document, "keys": [{**document["keys"][0], "operation": "INCREMENT"}]}))
    with pytest.raises(LogError, match="operation 'increment', which this release does not know"):
        read_tail(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InvalidInput, match="is no file of a quarantine"):
        read_tail(tmp_path / "notes.txt")
