"""Sealed files: what was sealed is read, and any bit that turned is noticed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk.sealed_json import seal, unseal
from twinlog.errors import DamagedLog


class Note(msgspec.Struct, frozen=True):
    site: str
    epoch: int
    later: bool = False


NOTES = st.builds(Note, st.text(max_size=8), st.integers(0, 10**9), st.booleans())


@given(NOTES)
def test_what_was_sealed_is_read(note: Note) -> None:
    assert unseal(seal(note), Note, "x", "") == note
    assert msgspec.json.decode(seal(note))["content"]["epoch"] == note.epoch, "people and their tools read it"


@given(NOTES)
def test_every_bit_counts(note: Note) -> None:
    data = bytearray(seal(note))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedLog, match=r"x is damaged.*; do this"):
            unseal(bytes(data), Note, "x", "do this")
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("data", [b"", b"{}", seal(Note("a", 1))[:-1], seal(Note("a", 1)) + b" ", seal({"site": 3})])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedLog, match=r"x .*; do this"):
        unseal(data, Note, "x", "do this")
