"""Reads the files of a trail along its chain: finds each line that was edited, removed, added or put elsewhere.

A trail is a row of files, `trail-00000001.jsonl` and upward. Each one begins with a line of the event `trail.opened`, which
says where the file before ended: its last line may be torn, because the machine stopped while it was written, or nobody knows
whether the disk has it. Such bytes are no part of the trail, and stay where they are; the next file says how many there are.

What always holds: a verdict names file and line of each fault; bytes behind the end of a file are a remark where the next file
declares them, or where they end the whole trail; everything else that is not the next line of the chain is a fault. Whoever
owns the files can write a whole trail anew, or cut its end: that is found by a `TrailHead` that was kept elsewhere, in the
structured log or at the other site.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

import msgspec

from gateway.trail.entry import NO_LINE, Line, TrailEntry, TrailHead, read_line
from gateway.trail.events import OPENED
from twinlog.decoding import or_none

FOLDER = "trail"
FILE_BYTES_MAX = 4 << 20
_NAME = re.compile(r"trail-([0-9]{8})\.jsonl")
FAULTS_MAX = 100


def file_name(ordinal: int) -> str:
    return f"trail-{ordinal:08d}.jsonl"


def ordinal_of(name: str) -> int | None:
    """Returns the place of a file in the trail by its name; None: it is no file of a trail."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def is_full(written_bytes: int, line_bytes: int) -> bool:
    """True where a line belongs into the next file."""
    return written_bytes + line_bytes > FILE_BYTES_MAX


class Leftover(msgspec.Struct, frozen=True):
    """Bytes behind the end of a file that are no part of the trail. `why`: torn (what a crash left of a line), or unsynced (of
    a line that the disk refused: a later look may find less)."""

    file: str
    offset: int
    bytes: int
    sha256: str
    why: str


class FileOpening(msgspec.Struct, frozen=True):
    """Holds what a `trail.opened` line says. `before`: the hash of the line before it, wherever that is."""

    before: str
    leftovers: list[Leftover] = []


def leftover(file: str, data: bytes, offset: int, why: str) -> list[Leftover]:
    rest = data[offset:]
    return [Leftover(file, offset, len(rest), sha256(rest).hexdigest(), why)] if rest else []


def opening_of(line: Line | None) -> FileOpening | None:
    if line is None or line.entry.event != OPENED:
        return None
    return or_none(_to_opening, line.entry.what)


_to_opening = partial(msgspec.convert, type=FileOpening)


def whole_bytes(data: bytes) -> int:
    """Returns where the whole lines of a file end. A last line that is none is what a crash leaves, newline or not: a disk may
    write the end of a line and not its beginning."""
    end = data.rfind(b"\n") + 1
    begin = data.rfind(b"\n", 0, max(0, end - 1)) + 1
    return end if end and read_line(data[begin : end - 1]) is not None else begin


def last_line(data: bytes) -> Line | None:
    """Returns the last whole line of a file."""
    lines = data[: whole_bytes(data)].split(b"\n")
    return read_line(lines[-2]) if len(lines) > 1 else None


@dataclass(frozen=True, slots=True)
class TrailFinding:
    """`line` is counted from 1; 0: it is about the file, or the trail as a whole."""

    file: str
    line: int
    what: str


@dataclass(slots=True)
class Verdict:
    faults: list[TrailFinding] = field(default_factory=list)
    remarks: list[TrailFinding] = field(default_factory=list)
    lines: int = 0
    first: int = 0
    head: TrailHead = field(default_factory=TrailHead)


class ChainVerifier:
    """Takes the files in their order. `begins_at`: the number of the first line, where older files were archived. `anchors`:
    lines that were known elsewhere. `seen` gets each entry that can be read, in its order."""

    def __init__(
        self, begins_at: int = 1, anchors: Iterable[TrailHead] = (), seen: Callable[[TrailEntry], object] = lambda entry: None
    ) -> None:
        self._begins_at, self._seen = begins_at, seen
        self._anchors = list(anchors)
        self._known: dict[int, set[str]] = {}
        for anchor in self._anchors:
            self._known.setdefault(anchor.number, set()).add(anchor.sha256)
        self._ordinal: int | None = None
        self._held: list[tuple[str, bytes]] = []  # until the first line behind them says where they ended
        self.verdict = Verdict()

    def file(self, name: str, data: bytes) -> None:
        first = read_line(data.split(b"\n", 1)[0])
        if first is not None:
            opening = opening_of(first)
            self._release([] if opening is None else opening.leftovers, name)
        self._held.append((name, data))

    def end(self) -> Verdict:
        """Returns the verdict, after the last file."""
        self._release([], None)
        verdict = self.verdict
        for anchor in self._anchors:
            if anchor.number > verdict.head.number:
                self._fault("", 0, (
                    f"the trail ends with number {verdict.head.number}, and number {anchor.number} was known elsewhere: its "
                    "end was cut"
                ))
        return verdict

    def _release(self, declared: list[Leftover], by: str | None) -> None:
        """`by`: the file whose first line declares; None: there is none."""
        said = {one.file: one for one in declared}
        for name, data in self._held:
            self._in_order(name)
            note = said.pop(name, None)
            end = whole_bytes(data) if note is None or note.offset > len(data) else note.offset
            self._lines(name, data[:end])
            self._rest(name, data[end:], end, note, by)
        self._held.clear()
        for name in said if self.verdict.lines else ():  # of older files that were archived nothing can be said
            self._fault(name, 0, f"{by} says that bytes of a line that is not whole stand at its end, and it is not there")

    def _lines(self, name: str, data: bytes) -> None:
        for number, raw in enumerate(data.split(b"\n")[:-1], 1):
            line = read_line(raw)
            if line is None:
                self._fault(name, number, "it is no line of a trail: it was changed, damaged, or written by something else")
                continue
            if number == 1 and opening_of(line) is None:
                self._fault(name, number, f"a file begins with {OPENED}, and this one with {line.entry.event[:80]}")
            self._line(name, number, line)

    def _rest(self, name: str, rest: bytes, offset: int, note: Leftover | None, by: str | None) -> None:
        """Judges what stands behind the end of a file."""
        what = f"{len(rest)} bytes from offset {offset} on are no whole line"
        found = sha256(rest).hexdigest()
        if note is not None and (note.sha256 == found or (note.why == "unsynced" and len(rest) <= note.bytes)):
            left = "the machine stopped while it was written" if note.why == "torn" else "the disk refused it"
            self._remark(name, f"{len(rest)} bytes from offset {offset} on are no part of the trail: {left}; {by} says so")
        elif note is not None:
            self._fault(name, 0, f"{what}, and {by} says that they were {note.bytes} others")
        elif rest and by is not None:
            self._fault(name, 0, f"{what}, and {by} does not say so")
        elif rest:
            self._remark(name, f"{what}: it is being written, the gateway was stopped meanwhile, or the end was changed")

    def _in_order(self, name: str) -> None:
        ordinal = ordinal_of(name)
        if ordinal is None:
            self._fault(name, 0, "it is no file of a trail")
        elif self._ordinal is not None and ordinal != self._ordinal + 1:
            self._fault(name, 0, f"{file_name(self._ordinal + 1)} should stand before it, and is not there")
        self._ordinal = ordinal

    def _line(self, name: str, number: int, line: Line) -> None:
        verdict, entry = self.verdict, line.entry
        if not verdict.lines:
            self._first(name, number, line)
        elif not line.follows(verdict.head.digest):
            self._fault(name, number, (
                f"number {entry.number} does not continue number {verdict.head.number} before it: one of the two was changed, "
                "or lines were taken out, added or moved"
            ))
        elif entry.number != verdict.head.number + 1:
            self._fault(name, number, f"number {entry.number} stands behind number {verdict.head.number}")
        known = self._known.get(entry.number)
        if known is not None and known != {line.sha256}:
            self._fault(name, number, f"number {entry.number} is another line than the one that was known elsewhere")
        verdict.lines += 1
        verdict.head = line.head
        self._seen(entry)

    def _first(self, name: str, number: int, line: Line) -> None:
        self.verdict.first = line.entry.number
        opening = opening_of(line)
        before = NO_LINE if line.entry.number == 1 else digest_or_none(opening.before) if opening is not None else None
        if line.entry.number != self._begins_at:
            self._fault(name, number, (
                f"the trail begins with number {line.entry.number}, and not with {self._begins_at}: older files are not there; "
                f"where they were archived, --begins-at {line.entry.number} says so"
            ))
        elif before is None or not line.follows(before):
            self._fault(name, number, f"number {line.entry.number} was changed")

    def _fault(self, name: str, number: int, what: str) -> None:
        if len(self.verdict.faults) < FAULTS_MAX:
            self.verdict.faults.append(TrailFinding(name, number, what))

    def _remark(self, name: str, what: str) -> None:
        if len(self.verdict.remarks) < FAULTS_MAX:
            self.verdict.remarks.append(TrailFinding(name, 0, what))


def digest_or_none(text: str) -> bytes | None:
    return bytes.fromhex(text) if re.fullmatch("[0-9a-f]{64}", text) else None
