"""Quarantined rows go back to the active: each as a conditional write, which the active makes only over an older row.

What always holds: all changes of one row that still count, whatever files they are in, are merged together, in their order, or
not at all; a file with rows that the active does not have stays, and a list beside its manifest names them, unless these rows
are to be put as well. The files are read as often as they need to be, and never held: rows go in the order of their keys, as
many at a time as fit into `WINDOW_BYTES`, and a merge that was cut off continues behind the last ones.
Source: protocol.md section 8 (rejoin).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

import msgspec

from remote_log.replication.messages import ROWS_MAX, MergeReply, MergeRequest
from storage.disk.port import Files
from storage.log.frame import Frame
from storage.log.record import RecordKind
from storage.log.wal_reading import frames_of
from storage.rows.readable import readable_place
from switchover.quarantine import QUARANTINE
from twinlog.decoding import or_none
from twinlog.errors import Refused

MERGE_CHUNK = 500  # changes in a message, and their bytes, unless one row has more
MERGE_BYTES = 4 << 20
WINDOW_BYTES = 96 << 20  # of changes in memory, by `_bytes_of`
CHANGE_BYTES = 500  # that a change takes besides its key and value
ABSENT_LISTED_MAX = 10_000  # of one file; the others are counted
POSITION = f"{QUARANTINE}/merging.position"
Merge = Callable[[MergeRequest], Awaitable[MergeReply]]
MergeOp = Literal["upsert", "update", "delete"]
MergeRow = tuple[int, MergeOp, bytes, bytes, int]  # table, operation, key, value, version
Place = tuple[int, bytes]  # table, key
OPERATIONS: dict[int, MergeOp] = {RecordKind.UPSERT: "upsert", RecordKind.UPDATE: "update", RecordKind.DELETE: "delete"}


class RowChange(NamedTuple):
    """A quarantined change; they sort by version."""

    version: int
    op: MergeOp
    value: bytes


class Piece(NamedTuple):
    """The frames in [begin, end) of one file, and the first and last row that they change; pieces sort by the first one."""

    first: Place
    last: Place
    name: str
    begin: int
    end: int


class Absent(msgspec.Struct):
    """The rows of one file that the active does not have: how many, and the first of them."""

    count: int = 0
    rows: list[Place] = []


class MergeProgress(msgspec.Struct):
    """A merge under way: of these files, up to the row at `after`."""

    files: list[str]
    put_absent: bool
    after: Place | None = None
    merged: int = 0
    skipped: int = 0
    absent: dict[str, Absent] = {}
    absent_count: int = 0  # of rows, each counted once, though several files may have it


async def merge_quarantine(
    files: Files, merge: Merge, schemas: Mapping[int, bytes], *, put_absent: bool
) -> dict[str, Any]:
    """Sends every quarantined row to the active by `merge`, and renames a file that is merged. Returns the counts, for the
    operator. `schemas`: of the tables, to name rows.

    Raises Refused for a change of a table, once all else is merged; PeerError when the active does not answer, and then the
    next call continues; BrokenFrame for a damaged file, before anything is merged.
    """
    listed = [name for name in await files.list(QUARANTINE) if name.endswith(".frames")]
    pieces, refused = await _mergeable(files, listed)
    names = [name for name in listed if name in pieces]
    progress = await _begun(files, names, put_absent)
    in_order = sorted(piece for several in pieces.values() for piece in several)
    while window := await _window(files, in_order, progress):
        await _merge_window(window, merge, progress)
        await files.write_new(POSITION, msgspec.msgpack.encode(progress))
    for name in names:
        path = f"{QUARANTINE}/{name}"
        absent = progress.absent.get(name)
        await _note_absent(files, path.removesuffix(".frames") + ".absent", absent, schemas)
        if absent is None:
            await files.rename(path, f"{path}.merged")
    await files.delete(POSITION)
    if refused is not None:
        raise refused
    return {
        "files": listed, "merged_changes": progress.merged, "skipped_changes": progress.skipped,
        "rows_absent_at_the_active": progress.absent_count,
    }


async def _mergeable(files: Files, names: Iterable[str]) -> tuple[dict[str, list[Piece]], Refused | None]:
    """The pieces of each file whose rows can be merged, and why another one cannot."""
    good: dict[str, list[Piece]] = {}
    refused: Refused | None = None
    for name in names:
        try:
            good[name] = [piece async for piece in _pieces(files, name)]
        except Refused as error:
            refused = error
    return good, refused


async def _pieces(files: Files, name: str) -> AsyncGenerator[Piece, None]:
    """Raises Refused on a record that cannot be merged, BrokenFrame."""
    path, begin = f"{QUARANTINE}/{name}", 0
    async with aclosing(frames_of(files, path, 0, await files.size(path))) as groups:
        async for frames in groups:
            end = begin + sum(len(frame.data) for frame in frames)
            for frame in frames:
                for record in frame.records:
                    if record.kind == RecordKind.DDL:
                        raise Refused(
                            f"the quarantine changes table {record.table}: merge its rows by hand (sequence {frame.first_seq})"
                        )
            places = [(record.table, record.key) for frame in frames for record in frame.records if record.kind in OPERATIONS]
            if places:
                yield Piece(min(places), max(places), name, begin, end)
            begin = end


async def _begun(files: Files, names: list[str], put_absent: bool) -> MergeProgress:
    """The progress of a merge of the same files that was cut off; else that of a new one."""
    if POSITION.rpartition("/")[2] in await files.list(QUARANTINE):
        known = or_none(msgspec.msgpack.Decoder(MergeProgress).decode, await files.read(POSITION))
        if known is not None and (known.files, known.put_absent) == (names, put_absent):
            return known
    return MergeProgress(names, put_absent)


class Window:
    """The rows with the lowest keys of those that it was given, as many as fit into `bytes_max`, and at least one."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self.upto: Place | None = None  # rows behind it did not fit; None: all did
        self.changes: dict[Place, list[RowChange]] = {}
        self.files: dict[Place, tuple[str, ...]] = {}

    def add(self, name: str, place: Place, change: RowChange) -> None:
        changes = self.changes.setdefault(place, [])
        if name not in (names := self.files.get(place, ())):
            self.files[place] = (*names, name)
        at = bisect_left(changes, change)
        if at < len(changes) and changes[at] == change:
            return
        changes.insert(at, change)
        whole = next((index for index in range(len(changes) - 1, 0, -1) if changes[index].op != "update"), 0)
        self._size += _bytes_of(place, [change]) - _bytes_of(place, changes[:whole])
        del changes[:whole]  # what came before a whole row, or its end, does not count any more
        if len(changes) > ROWS_MAX:
            raise Refused(
                f"the quarantine has more than {ROWS_MAX} changes of one row of table {place[0]} (key {place[1].hex()}), and"
                " one message takes no more: merge that row by hand, from its .frames file"
            )
        if self._size > self._bytes_max and len(self.changes) > 1:
            self._shrink()

    def _shrink(self) -> None:
        places = sorted(self.changes)
        while self._size > self._bytes_max // 2 and len(places) > 1:
            place = places.pop()
            self._size -= _bytes_of(place, self.changes.pop(place))
            del self.files[place]
        self.upto = places[-1]


def _bytes_of(place: Place, changes: Iterable[RowChange]) -> int:
    return sum(CHANGE_BYTES + len(place[1]) + len(change.value) for change in changes)


async def _window(files: Files, pieces: Iterable[Piece], progress: MergeProgress) -> Window | None:
    """The next rows, from all files. None: there are no more. `pieces`: in order, so those that are not needed are not read."""
    window, after = Window(WINDOW_BYTES), progress.after
    for piece in pieces:
        if window.upto is not None and piece.first > window.upto:
            break
        if after is not None and piece.last <= after:
            continue
        async with aclosing(frames_of(files, f"{QUARANTINE}/{piece.name}", piece.begin, piece.end)) as groups:
            async for frames in groups:
                for frame in frames:
                    _add(window, piece.name, frame, after)
    return window if window.changes else None


def _add(window: Window, name: str, frame: Frame, after: Place | None) -> None:
    """The changes of the frame that are in question."""
    for index, record in enumerate(frame.records):
        op, place = OPERATIONS.get(record.kind), (record.table, record.key)
        if op is None or (after is not None and place <= after) or (window.upto is not None and place > window.upto):
            continue
        window.add(name, place, RowChange(frame.timestamp + index, op, record.value))


async def _merge_window(window: Window, merge: Merge, progress: MergeProgress) -> None:
    places = sorted(window.changes)
    for part in _parts(places, window.changes):
        rows: list[MergeRow] = [
            (place[0], change.op, place[1], change.value, change.version) for place in part for change in window.changes[place]
        ]
        reply = await merge(MergeRequest(rows, progress.put_absent))
        progress.merged += reply.merged
        progress.skipped += reply.skipped
        progress.absent_count += len(reply.absent)
        for place in reply.absent:
            for name in window.files[place]:
                absent = progress.absent.setdefault(name, Absent())
                absent.count += 1
                if len(absent.rows) < ABSENT_LISTED_MAX:
                    absent.rows.append(place)
    progress.after = places[-1]


def _parts(places: Iterable[Place], changes: Mapping[Place, list[RowChange]]) -> Iterable[list[Place]]:
    """All changes of one row stand in one part: they are merged together or not at all."""
    part: list[Place] = []
    count = size = 0
    for place in places:
        more, bytes_more = len(changes[place]), _bytes_of(place, changes[place])
        if part and (count + more > MERGE_CHUNK or size + bytes_more > MERGE_BYTES):
            yield part
            part, count, size = [], 0, 0
        part.append(place)
        count, size = count + more, size + bytes_more
    if part:
        yield part


async def _note_absent(files: Files, path: str, absent: Absent | None, schemas: Mapping[int, bytes]) -> None:
    """Writes which rows wait for the operator's word; without any, the list of an earlier merge goes."""
    if absent is None:
        await files.delete(path)
        return
    rows = []
    for table, key in absent.rows:
        name, row = readable_place(schemas, table, key)
        rows.append({"name": name, "row": row, "table": table, "key": key.hex()})
    document = {"absent_at_the_active": absent.count, "rows": rows}
    await files.write_new(path, json.dumps(document, indent=2).encode())
