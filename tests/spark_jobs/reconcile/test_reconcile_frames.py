"""The outcome of a row of a tail, case by case; and where a delete counts as proven."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.job import SiteSource
from spark_jobs.reconcile import job as reconcile
from spark_jobs.reconcile.rows import CHANGES, judged
from spark_jobs.snapshots.source import ROWS
from storage.log.record import Record, RecordKind
from storage.log.segment import HEADER_BYTES
from tests.spark_jobs.log_rig import flip, write_wal
from tests.spark_jobs.reconcile.test_reconcile import END, LATER, NOW_EPOCH, TAIL_EPOCH, frame, key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW, OTHER = b"new", b"other"
Stands = tuple[int, bytes] | None  # version and value
V = 100  # version of the tail's record


@dataclass(frozen=True)
class Case:
    """A tail's change of a row, the row at both sites, and the newest known delete."""

    outcome: str
    operation: str
    source: Stands
    peer: Stands
    deleted: int | None = None
    gone: bool = False
    value: bytes | None = NEW


CASES = [
    Case("applied", "upsert", (V, NEW), (V, NEW)),
    Case("applied", "update", (V, OTHER), (V, OTHER)),  # of an update the tail knows the changed columns only
    Case("applied", "upsert", (V, NEW), (V, NEW), value=None),  # as a manifest tells
    Case("applied", "delete", None, None, value=None),
    Case("superseded", "upsert", (V + 1, OTHER), (V + 1, OTHER)),
    Case("superseded", "upsert", (V + 1, NEW), (V + 1, NEW)),  # somebody wrote the same again
    Case("superseded", "upsert", (V + 1, OTHER), (V, NEW)),
    Case("superseded", "upsert", (V, NEW), (V + 1, OTHER)),
    Case("superseded", "delete", (V + 1, OTHER), (V + 1, OTHER), value=None),
    Case("superseded", "upsert", None, None, deleted=V + 1),
    Case("superseded", "upsert", None, None, gone=True),
    Case("lost", "upsert", (V - 1, OTHER), (V - 1, OTHER)),
    Case("lost", "upsert", (V, OTHER), (V, OTHER)),  # this version, and not what it said
    Case("lost", "upsert", None, None),
    Case("lost", "upsert", None, None, deleted=V - 1),
    Case("lost", "upsert", None, None, deleted=V),
    Case("lost", "upsert", None, (V, NEW)),
    Case("lost", "upsert", (V, NEW), None),
    Case("lost", "upsert", None, (V + 1, NEW)),
    Case("lost", "upsert", (V + 1, NEW), (V - 1, OTHER)),
    Case("lost", "upsert", (V - 1, OTHER), (V - 1, OTHER), deleted=V + 1),  # the delete is known, and was not made here
    Case("lost", "delete", (V - 1, OTHER), (V - 1, OTHER), value=None),
    Case("lost", "delete", (V, OTHER), (V, OTHER), value=None),
    Case("lost", "delete", None, (V - 1, OTHER), value=None),
]


def test_every_case(spark: SparkSession) -> None:
    changes, source, peer, deletes = [], [], [], []
    for number, case in enumerate(CASES):
        where = bytes([number])
        changes.append((1, where, case.operation, case.value, V, 7, 1, 1, case.gone))
        for rows, stands in ((source, case.source), (peer, case.peer)):
            if stands is not None:
                rows.append((1, 0, where, *stands))
        if case.deleted is not None:
            deletes.append((1, where, case.deleted))
    found = judged(
        spark.createDataFrame(changes, CHANGES), spark.createDataFrame(source, ROWS), spark.createDataFrame(peer, ROWS),
        spark.createDataFrame(deletes, reconcile.DELETES),
    ).collect()
    assert [row["kind"] for row in sorted(found, key=lambda row: bytes(row["key"]))] == [case.outcome for case in CASES]


def delete(number: int) -> Record:
    return Record(RecordKind.DELETE, 1, key(number))


BEFORE_IT = frame([delete(4)], LATER // 2, epoch=TAIL_EPOCH)
FIRST = frame([delete(1), delete(2)], LATER, epoch=TAIL_EPOCH, seq=END + 2)
CUT_OFF = frame([delete(1), delete(3)], 3 * LATER, epoch=TAIL_EPOCH, seq=END + 4)  # the next epoch begins before it
THEN = frame([delete(1)], 2 * LATER, epoch=NOW_EPOCH, seq=END + 4)


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    write_wal(tmp_path / "wal", [[BEFORE_IT, FIRST, CUT_OFF]], epoch=TAIL_EPOCH)
    return write_wal(tmp_path / "wal", [[THEN]], epoch=NOW_EPOCH)


def proven(spark: SparkSession, wal: Path, *numbers: int) -> tuple[dict[bytes, int], list[str]]:
    """Key -> the newest delete of it, and what was remarked."""
    lines = [(1, key(number), "upsert", None, 1, 1, 1, 1, False) for number in numbers]
    remarks: list[str] = []
    found = reconcile._deletes(spark, SiteSource("a", "", wal=str(wal)), spark.createDataFrame(lines, CHANGES), remarks)
    return {bytes(row["key"]): row["deleted"] for row in found.collect()}, remarks


def test_deletes_are_proven_by_the_newest_frame_that_stands_and_only_of_rows_that_are_asked_for(
    spark: SparkSession, wal: Path
) -> None:
    found, _ = proven(spark, wal, 1, 3)
    assert found == {key(1): 2 * LATER}


def test_a_log_that_cannot_be_read_proves_nothing(spark: SparkSession, wal: Path, tmp_path: Path) -> None:
    flip(min(wal.iterdir()), HEADER_BYTES + len(BEFORE_IT.data) + 40)
    found, remarks = proven(spark, wal, 1)
    assert found == {}
    assert remarks[0].startswith("later deletes were not looked for, such rows count as lost: ")
    (tmp_path / "empty").mkdir()
    for absent in (tmp_path / "absent", tmp_path / "empty"):
        found, remarks = proven(spark, absent, 1)
        assert (found, remarks) == ({}, ["no log of site a is known here: a row that was deleted later counts as lost"])


def test_the_version_of_a_delete_is_that_of_its_record(spark: SparkSession, wal: Path) -> None:
    assert proven(spark, wal, 2)[0] == {key(2): LATER + 1}
