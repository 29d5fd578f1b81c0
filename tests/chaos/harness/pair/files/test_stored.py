"""Marks of an idle active make two storages no different; anything else between them does."""

from __future__ import annotations

import pytest

from chaos.harness.pair.files.stored import without_marks
from chaos.history.history import Dump
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind


def frame(seq: int, kind: RecordKind) -> Frame:
    key = b"k" if kind is not RecordKind.NOOP else b""
    return make_frame(
        log=0, epoch=1, first_seq=seq, previous=seq - 1, timestamp=seq, committed=seq - 1, records=[Record(kind, key=key)]
    )


def applied(frames: list[Frame]) -> list[int]:
    dumps = [Dump("a", True, 1.0, 7, {}), Dump("b", False, 1.0, 5, {})]
    return [dump.applied for dump in without_marks(dumps, frames)]


def test_marks_do_not_count() -> None:
    assert applied([frame(seq, RecordKind.NOOP) for seq in (5, 6, 7)]) == [5, 5]


@pytest.mark.parametrize("frames", [
    [frame(6, RecordKind.NOOP), frame(7, RecordKind.DELETE)], [frame(7, RecordKind.NOOP)], [],
], ids=["a row", "a gap", "nothing that tells"])
def test_anything_else_does(frames: list[Frame]) -> None:
    assert applied(frames) == [7, 5]
