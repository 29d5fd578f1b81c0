"""The reader of recordings: vectors, calls of several threads at once, and what it does not take."""

from __future__ import annotations

import pytest

from chaos.crash_states.calls import parse_calls, text, texts

LINES = (
    r'7  openat(AT_FDCWD, "\x2f\x61", O_RDWR|O_CREAT, 0640) = 3',
    r'7  pwritev2(3, [{iov_base="\x68\x69", iov_len=2}, {iov_base="\x2c", iov_len=1}], 2, 64, RWF_DSYNC <unfinished ...>',
    r"8  fsync(4 <unfinished ...>",
    r"7  <... pwritev2 resumed>)            = 3",
    r'8  open("\x62", O_RDONLY) = -1 ENOENT (No such file or directory)',
    r"8  <... fsync resumed>)               = 0",
)


def test_calls_come_in_the_order_of_their_ends_and_know_their_beginnings() -> None:
    first, second, third = parse_calls((*LINES[:4], LINES[5]))
    assert (first.name, first.args, first.result) == (
        "openat", ("AT_FDCWD", r'"\x2f\x61"', "O_RDWR|O_CREAT", "0640"), 3,
    )
    assert text(first.args[1]) == b"/a"
    assert (second.began, second.ended, second.args[3:], texts(second.args[1])) == (1, 3, ("64", "RWF_DSYNC"), b"hi,")
    assert (third.name, third.args, third.began, third.ended) == ("fsync", ("4",), 2, 4)


def test_a_call_that_failed_is_left_out() -> None:
    assert [call.name for call in parse_calls(LINES[:1] + LINES[4:5])] == ["openat"]


def test_what_cannot_be_read_whole_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 0 of the recording is no call"):
        parse_calls(["nothing"])
    with pytest.raises(ValueError, match="no whole text"):
        text(r'"\x61"...')
