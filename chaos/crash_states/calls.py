"""The system calls of a program that change files, out of what strace wrote.

What always holds: calls are in the order in which they ended, and each knows when it began and when it ended, so that nobody
takes a sync for later than a write of another thread that was still under way; a call that failed is left out; a line that
cannot be read is an error.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TRACED = (
    "openat,open,creat,close,dup,dup2,dup3,fcntl,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync,syncfs,"
    "sync_file_range,ftruncate,truncate,fallocate,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,lseek,copy_file_range,sendfile,splice,io_uring_setup,io_submit"
)
_LINE = re.compile(r"(?P<thread>\d+) +(?P<rest>.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)", re.DOTALL)
_CALL = re.compile(r"(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+|\?)(?P<error>.*)", re.DOTALL)
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_OPEN, _SHUT = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call that succeeded. `began` and `ended` are positions in the recording; `args` as strace wrote them."""

    name: str
    args: tuple[str, ...]
    result: int
    began: int
    ended: int


def parse_calls(lines: Iterable[str]) -> list[Call]:
    """The calls that succeeded, in the order of their ends. Raises ValueError for a line of another form."""
    calls: list[Call] = []
    unfinished: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(lines):
        matched = _LINE.fullmatch(line.rstrip("\n"))
        if matched is None:
            raise ValueError(f"line {at} of the recording is no call: {line[:200]!r}")
        thread, rest = matched["thread"], matched["rest"]
        if rest.startswith(("+++", "---")):
            continue
        if rest.endswith(_UNFINISHED):
            unfinished[thread] = at, rest.removesuffix(_UNFINISHED)
            continue
        began = at
        if (resumed := _RESUMED.fullmatch(rest)) is not None:
            began, head = unfinished.pop(thread)
            rest = head + resumed["rest"]
        call = _CALL.fullmatch(rest)
        if call is None:
            raise ValueError(f"line {at} of the recording is no call: {line[:200]!r}")
        if call["result"] != "?" and int(call["result"]) >= 0:
            calls.append(Call(call["name"], tuple(_arguments(call["args"])), int(call["result"]), began, at))
    return calls


def text(argument: str) -> bytes:
    """The bytes of an argument in quotes. Raises ValueError for one that strace cut off."""
    matched = _TEXT.search(argument)
    if matched is None or matched[2]:
        raise ValueError(f"no whole text: {argument[:200]!r}")
    return bytes.fromhex(matched[1].replace("\\x", ""))


def texts(argument: str) -> bytes:
    """The bytes of all parts of a vector, joined. Raises ValueError for one that strace cut off."""
    return b"".join(text(matched[0]) for matched in _TEXT.finditer(argument))


def _arguments(inside: str) -> Iterator[str]:
    """Splits at the commas that stand in no bracket; a text in quotes holds hexadecimal digits alone."""
    depth, start = 0, 0
    for at, sign in enumerate(inside):
        if sign in _OPEN:
            depth += 1
        elif sign in _SHUT:
            depth -= 1
        elif sign == "," and depth == 0:
            yield inside[start:at].strip()
            start = at + 1
    if inside:
        yield inside[start:].strip()
