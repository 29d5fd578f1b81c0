"""The record as bytes: what is whole is read, what is on its way is left, and anything else is refused."""

from __future__ import annotations

import struct

import pytest

from chaos.power_loss.record import GONE, RENAMED, WROTE, Entry, parse

HEAD = struct.Struct("<QQQQqIIII")


def packed(kind: int, path: bytes = b"", other: bytes = b"", data: bytes = b"") -> bytes:
    size = HEAD.size + len(path) + len(other) + len(data)
    return HEAD.pack(size, 5, 6, 7, 8, kind, 1, len(path), len(other)) + path + other + data


def test_an_entry_has_all_its_parts() -> None:
    record = packed(WROTE, data=b"bytes") + packed(RENAMED, b"/x/a", b"/x/b/") + packed(GONE, b"/x/\xff")
    entries, read_bytes = parse(record)
    assert read_bytes == len(record)
    assert entries == [
        Entry(WROTE, 5, 6, 7, 8, True, data=b"bytes"), Entry(RENAMED, 5, 6, 7, 8, True, "/x/a", "/x/b"),
        Entry(GONE, 5, 6, 7, 8, True, "/x/\udcff"),
    ]


def test_an_entry_that_is_on_its_way_is_left_for_the_next_time() -> None:
    whole, next_one = packed(GONE, b"/x/a"), packed(WROTE, data=b"bytes")
    for upto in range(len(next_one)):
        entries, read_bytes = parse(whole + next_one[:upto])
        assert (len(entries), read_bytes) == (1, len(whole))


@pytest.mark.parametrize("begin", [bytes(HEAD.size), packed(GONE + 1), HEAD.pack(3, 5, 6, 7, 8, GONE, 0, 0, 0)])
def test_what_begins_no_entry_is_refused(begin: bytes) -> None:
    with pytest.raises(ValueError, match=f"byte {len(packed(GONE))} of the record begins no entry"):
        parse(packed(GONE) + begin)
