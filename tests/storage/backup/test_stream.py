"""The messages that a backup reads: whole or an error, however they arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.backup.stream import (
    BackupHead,
    Continuation,
    End,
    Frames,
    Message,
    MessageReader,
    ReachedPoint,
    RowsMessage,
    encode_message,
    frames_in,
    point_of,
    rows_of,
    stored_rows,
)
from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from twinlog.errors import DamagedLog

NUMBERS = st.integers(0, 2**62)
KEYS = st.binary(max_size=20)
POINTS = st.builds(ReachedPoint, NUMBERS, NUMBERS, NUMBERS)
EPOCHS = st.builds(EpochEntry, NUMBERS, NUMBERS, NUMBERS, st.just("a"), st.just("restart"))
OUTCOMES = st.tuples(st.text(max_size=9), st.builds(RequestOutcome, KEYS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans()))
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        BackupHead, st.text(max_size=9), st.text(max_size=9), st.just("a"), POINTS, st.booleans(),
        st.dictionaries(st.integers(0, 2**31), KEYS, max_size=3), st.lists(EPOCHS, max_size=3),
    ),
    st.builds(RowsMessage, st.lists(st.tuples(NUMBERS, KEYS, KEYS, NUMBERS), max_size=4), st.lists(OUTCOMES, max_size=2)),
    st.builds(Frames, KEYS), st.builds(End, NUMBERS),
)


def whole(data: bytes) -> list[Message]:
    reader = MessageReader("here")
    found = [message for message, _ in reader.take(data)]
    reader.close()
    return found


def frame(first_seq: int, previous: int, epoch: int = 1, records: int = 1) -> Frame:
    row = Record(RecordKind.UPSERT, 7, b"k", b"v")
    return make_frame(
        epoch=epoch, first_seq=first_seq, previous=previous, timestamp=first_seq << 16, committed=previous,
        records=[row] * records,
    )


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0, 400), max_size=6))
def test_messages_come_as_they_were_sent_in_pieces_of_any_size(messages: list[Message], cuts: list[int]) -> None:
    data = b"".join(map(encode_message, messages))
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = MessageReader("here")
    found = [pair for begin, end in pairwise(edges) for pair in reader.take(data[begin:end])]
    reader.close()
    assert [message for message, _ in found] == messages
    assert b"".join(whole for _, whole in found) == data


@given(MESSAGES, st.data())
def test_a_bit_that_turned_is_found(message: Message, data: st.DataObject) -> None:
    sent = bytearray(encode_message(message))
    sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedLog, match="here: "):  # it is too long, does not fit, or never ends
        whole(bytes(sent))


def test_a_stream_that_breaks_in_a_message_is_not_whole() -> None:
    reader = MessageReader("here")
    assert list(reader.take(encode_message(End(3))[:-1])) == []
    with pytest.raises(DamagedLog, match="ends in the middle"):
        reader.close()


def test_rows_are_the_same_again() -> None:
    rows = [(7, StoredRow(b"k", b"v", 9)), (8, StoredRow(b"", b"", 1))]
    assert stored_rows(rows_of(rows)) == rows


def test_frames_stand_back_to_back() -> None:
    frames = [frame(1, 0, records=3), frame(4, 3)]
    data = b"".join(each.data for each in frames)
    assert frames_in(data, "here") == frames
    with pytest.raises(DamagedLog, match="here: the bytes end"):
        frames_in(data[:-1], "here")


def test_frames_lead_on_from_each_other() -> None:
    chain = Continuation(ReachedPoint(1, 3, 0), "here")
    chain.take([frame(4, 3), frame(7, 4, epoch=2)])  # a later epoch leaves sequences out
    assert chain.at == ReachedPoint(2, 7, 7 << 16)
    assert point_of(frame(4, 3, records=2)) == ReachedPoint(1, 5, (4 << 16) + 1)
    for wrong in (frame(9, 8), frame(8, 6), frame(8, 7, epoch=1)):
        with pytest.raises(DamagedLog, match="does not continue sequence 7 of epoch 2"):
            Continuation(chain.at, "here").take([wrong])
