"""The files of a log: their order, the error of a wrong place, and the files that a range spares."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThanOrEqual, Not

from spark_jobs.logs.files import LocalStore, LogFolder, list_log, place_of, whole_log
from spark_jobs.logs.ranges import Ranges
from spark_jobs.logs.source import TASK_BYTES, needed, packed
from storage.log.segment import remote_name, wal_name
from tests.storage.log.frames import run, segment_bytes
from twinlog.errors import InvalidInput, NotFound


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    """Ten sequences in each of four segments of epoch 1; the third was made ahead, when the second was half full."""
    folder = tmp_path / "wal"
    folder.mkdir()
    for index, first_seq in ((1, 1), (2, 11), (3, 16), (4, 31)):
        frames = run(10 * index - 9, 10)
        (folder / wal_name(1, index)).write_bytes(segment_bytes(frames, index=index, first_seq=first_seq))
    return folder


def remote_log(folder: Path) -> Path:
    (folder / "claims").mkdir(parents=True)
    for epoch, numbers in ((1, (0, 1)), (10, (0,)), (2, (3,))):
        (folder / f"{epoch:012d}").mkdir()
        for number in numbers:
            (folder / f"{epoch:012d}" / remote_name(wal_name(epoch, 1), number)).write_bytes(b"x" * (number + 1))
    (folder / f"{2:012d}" / ".lock").touch()
    (folder / f"{2:012d}" / "notes.txt").touch()
    return folder


def test_segments_of_a_wal_in_order_and_nothing_else(wal: Path) -> None:
    (wal / "notes.txt").touch()
    log = list_log(LogFolder(str(wal)))
    assert log.kind == "wal"
    assert [(each.name, each.ordinal, each.epoch) for each in log.segments] == [(wal_name(1, n + 1), n, 1) for n in range(4)]


def test_segments_of_a_remote_log_by_epoch(tmp_path: Path) -> None:
    log = list_log(LogFolder(str(remote_log(tmp_path / "0"))))
    assert log.kind == "remote"
    assert [(each.epoch, each.wal, each.length) for each in log.segments] == [
        (1, wal_name(1, 1), 1), (1, wal_name(1, 1), 2), (2, wal_name(2, 1), 4), (10, wal_name(10, 1), 1),
    ]
    assert log.segments[2].name == f"{2:012d}/{remote_name(wal_name(2, 1), 3)}"


def test_wrong_places_name_the_option_and_say_what_to_do(tmp_path: Path, wal: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for options, says in (
        ({}, r"the option path is missing"),
        ({"path": str(tmp_path / "nowhere")}, r"nowhere \(option path\) is not there"),
        ({"path": str(file)}, r"file \(option path\) is a file: give the folder"),
        ({"path": str(tmp_path)}, r"\(option path\) is the folder of no log: it holds 'file'; .*/wal is one"),
        ({"path": "s3://bucket/log"}, r"the option path is 's3://bucket/log': a folder or an hdfs:// address is wanted"),
        ({"path": "hdfs:///pair/0"}, r"names no host: give the option webhdfs"),
    ):
        with pytest.raises(InvalidInput, match=says):
            whole_log(place_of(options))


def test_an_empty_folder_is_a_log_without_anything_to_read(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "empty").mkdir()
    for folder, says in ((tmp_path / "empty", "is empty"), (tmp_path, "is a remote log without any segment")):
        assert list_log(LogFolder(str(folder))).segments == ()
        with pytest.raises(NotFound, match=rf"\(option path\) {says}"):
            whole_log(LogFolder(str(folder)))


def test_an_hdfs_address_leads_to_the_name_nodes_web_port() -> None:
    place = place_of({"path": "hdfs://node:8020/tw/pair/0/"})
    assert (place.webhdfs, place.folder, place.file("x")) == ("http://node:9870", "/tw/pair/0", "hdfs://node:8020/tw/pair/0/x")
    assert place_of({"path": "hdfs://ns/p", "webhdfs": "http://a:1,http://b:1"}).webhdfs == "http://a:1,http://b:1"


def test_parts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    for offset, length, wanted in ((0, None, b"0123456789"), (3, 4, b"3456"), (8, 5, b"89"), (20, 1, b""), (2, 0, b"")):
        assert LocalStore().read(str(file), offset, length) == wanted


@pytest.mark.parametrize(
    ("filters", "indexes"),
    [
        ([], [1, 2, 3, 4]),
        ([GreaterThanOrEqual(("seq",), 31)], [4]),
        ([GreaterThanOrEqual(("seq",), 18)], [2, 3, 4]),  # the second goes on behind the first_seq of the third's header
        ([LessThanOrEqual(("seq",), 10)], [1]),
        ([LessThanOrEqual(("seq",), 15)], [1, 2]),
        ([EqualTo(("seq",), 25)], [3]),
        ([EqualTo(("seq",), None)], []),
        ([In(("seq",), (2, 35, None))], [1, 2, 3, 4]),
        ([GreaterThan(("epoch",), 1)], [1, 2, 3, 4]),  # taken as inclusive
        ([GreaterThan(("epoch",), 2)], []),
        ([EqualTo(("segment",), wal_name(1, 3))], [3]),
        ([GreaterThanOrEqual(("segment",), wal_name(1, 3))], [3, 4]),
        ([Not(EqualTo(("seq",), 25)), EqualTo(("key",), b"k")], [1, 2, 3, 4]),
    ],
)
def test_ranges_spare_files_that_hold_nothing_wanted(wal: Path, filters: list[Filter], indexes: list[int]) -> None:
    ranges = Ranges()
    ranges.add(filters)
    assert [each.ordinal + 1 for each in needed(list_log(LogFolder(str(wal))), ranges)] == indexes


def test_the_segments_of_a_remote_log_have_no_highest_sequence(tmp_path: Path) -> None:
    """A retry writes frames again that stand in an earlier segment."""
    folder = tmp_path / f"{1:012d}"
    folder.mkdir()
    for number, first in ((0, 1), (1, 6)):
        data = segment_bytes(run(first, 10), index=1)
        (folder / remote_name(wal_name(1, 1), number)).write_bytes(data)
    ranges = Ranges()
    ranges.add([GreaterThanOrEqual(("seq",), 8)])
    assert len(needed(list_log(LogFolder(str(tmp_path))), ranges)) == 2
    ranges.add([LessThanOrEqual(("seq",), 5)])
    assert len(needed(list_log(LogFolder(str(tmp_path))), ranges)) == 1


def test_a_segment_whose_header_cannot_be_read_bounds_nothing(wal: Path) -> None:
    (wal / wal_name(1, 2)).write_bytes(b"no header")
    ranges = Ranges()
    ranges.add([GreaterThanOrEqual(("seq",), 31)])
    assert [each.ordinal for each in needed(list_log(LogFolder(str(wal))), ranges)] == [0, 3]


def test_small_segments_are_read_together(wal: Path) -> None:
    segments = list_log(LogFolder(str(wal))).segments
    assert [len(part.segments) for part in packed(segments)] == [4]
    with (wal / wal_name(1, 2)).open("r+b") as file:
        file.truncate(TASK_BYTES)
    assert [len(part.segments) for part in packed(list_log(LogFolder(str(wal))).segments)] == [1, 1, 2]
