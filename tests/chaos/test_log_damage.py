"""The places at which damage can be proven: up to the last frame that a later one attests, and none behind it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chaos.log_damage import provable, values
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import SegmentHeader, encode_frames, encode_header

HEADER = encode_header(SegmentHeader(0, 1, 1, "000000000001-00000001", 1, "0123456789abcdef"))

PLAIN = Flags(0)


def frames(committed: list[int], flags: Flags = PLAIN) -> list[Frame]:
    return [
        make_frame(
            log=0, epoch=1, first_seq=seq, previous=seq - 1, timestamp=seq << 16, committed=known, flags=flags,
            records=[Record(RecordKind.NOOP)],
        ) for seq, known in enumerate(committed, 1)
    ]


@pytest.mark.parametrize(("committed", "proven"), [([0, 1, 2], 2), ([0, 0, 1], 1), ([0, 0, 0], 0), ([0], 0), ([], 0)])
def test_a_frame_counts_when_a_later_one_says_that_it_was_committed(committed: list[int], proven: int) -> None:
    log = frames(committed)
    ends = [len(HEADER) + sum(len(frame.data) for frame in log[:count]) for count in range(len(log) + 1)]
    expected = [(0, ends[0]), *pairwise(ends[: proven + 1])] if proven else []
    assert provable(HEADER + encode_frames(log, 1) + bytes(100)) == expected


def test_what_an_asynchronous_frame_says_of_the_remote_log_proves_nothing() -> None:
    assert provable(HEADER + encode_frames(frames([0, 1, 2], Flags.ASYNC), 1)) == []


def test_values_are_those_of_rows_in_frames_whose_damage_can_be_proven() -> None:
    log = [
        make_frame(
            log=0, epoch=1, first_seq=seq, previous=seq - 1, timestamp=seq << 16, committed=seq - 1, records=records
        ) for seq, records in enumerate((
            [Record(RecordKind.UPSERT, 7, b"value", b"value", b"value")], [Record(RecordKind.DELETE, 7, b"value")],
            [Record(RecordKind.UPSERT, 7, b"large", b"x" * 20_000)], [Record(RecordKind.UPSERT, 7, b"last", b"value")],
        ), 1)
    ]
    data = HEADER + encode_frames(log, 1)
    [(begin, end)] = values(data)
    assert data[begin:end] == b"value"
    before, behind = data[len(HEADER):begin], data[end:len(HEADER) + len(log[0].data)]
    assert (before.count(b"value"), behind.count(b"value")) == (1, 1), "the key and the request"


def test_what_is_no_segment_has_no_such_place() -> None:
    assert provable(b"") == []
    assert provable(b"\1" * 200) == values(b"\1" * 200) == []
