"""The end of a log at the other site is read from its segments while they come and go."""

from __future__ import annotations

from pathlib import Path

from chaos.harness.pair.files.remote_copy import RemoteCopy, remote_copy
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import SegmentHeader, encode_frames, encode_header, remote_name, wal_name

ALIGNMENT = 512


def frame(seq: int) -> Frame:
    return make_frame(
        log=0, epoch=3, first_seq=seq, previous=seq - 1, timestamp=seq, committed=seq - 1,
        records=[Record(RecordKind.DELETE, key=b"k")],
    )


def segment(folder: Path, number: int, *seqs: int) -> Path:
    path = folder / "b" / "dfs" / "demo" / "0" / f"{3:012d}" / remote_name(wal_name(3, 0), number)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = encode_header(SegmentHeader(0, 3, seqs[0] if seqs else 9, wal_name(3, 0), ALIGNMENT, "0" * 16))
    path.write_bytes(head + encode_frames([frame(seq) for seq in seqs], ALIGNMENT))
    return path


def last_seq(folder: Path, site: str = "a", epoch: int = 3) -> int | None:
    found = remote_copy(folder, "demo", site, epoch)
    return None if found is None else found.last_seq


def test_the_newest_segment_with_a_frame_says_how_far_it_is(tmp_path: Path) -> None:
    assert last_seq(tmp_path) == 0, "nothing is there"
    first = segment(tmp_path, 0, 1, 2, 3)
    assert last_seq(tmp_path) == 3
    second = segment(tmp_path, 1, 4, 5)
    segment(tmp_path, 2, 6)
    segment(tmp_path, 3)
    found = remote_copy(tmp_path, "demo", "a", 3)
    assert found == RemoteCopy(6, ((first.name, 3), (second.name, 5))), "those before it end where the next ones begin"
    assert last_seq(tmp_path, epoch=4) == 0, "another epoch"
    assert last_seq(tmp_path, site="b") == 0, "another site"


def test_a_frame_that_is_half_written_is_not_there_yet(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, 1, 2)
    path.write_bytes(path.read_bytes() + frame(3).data[:20])
    assert last_seq(tmp_path) == 2


def test_a_segment_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    segment(tmp_path, 0, 1).unlink()
    (tmp_path / "b" / "dfs" / "demo" / "0" / f"{3:012d}" / remote_name(wal_name(3, 0), 0)).mkdir()
    assert last_seq(tmp_path) is None
