"""The messages that an active sends to a backup: its rows at one point, or its log behind one.

    length I | crc32c I | payload        little endian; the payload is msgpack of one `Message`

What always holds: a stream is a head, any number of parts, an end; one without its end is not whole, and is believed by nobody;
no message is longer than MESSAGE_BYTES_MAX. A part of a base in a file is the same message, byte for byte.
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import crc32c
import msgspec

from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.log.frame import FRAME_BYTES_MAX, Frame, parse_frame
from twinlog.decoding import decoded
from twinlog.errors import BrokenFrame, DamagedLog

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + (16 << 20)
_FRONT = struct.Struct("<II")
Row = tuple[int, bytes, bytes, int]  # table, key, value, version


class ReachedPoint(msgspec.Struct, frozen=True):
    """A point of the log. `timestamp`: the largest hybrid timestamp up to there."""

    epoch: int
    seq: int
    timestamp: int

    @property
    def wall_ms(self) -> int:
        return self.timestamp >> 16

    @property
    def at(self) -> str:
        """The time of this point in UTC, as people read it."""
        moment = datetime.fromtimestamp(self.wall_ms / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class BackupHead(msgspec.Struct, frozen=True, tag="head"):
    """`pair` and `identity`: whose it is. `encrypted`: this site encrypts its logs, and what follows is in the clear. `schemas`
    and `epochs`: of a base alone, as they are at `point`; `rows_about`: how many rows it has, where that is known."""

    pair: str
    identity: str
    site: str
    point: ReachedPoint
    encrypted: bool
    schemas: dict[int, bytes] = {}
    epochs: list[EpochEntry] = []
    rows_about: int | None = None


class RowsMessage(msgspec.Struct, frozen=True, tag="rows"):
    """Rows in the order of table and key, or what idempotency keys answered, in key order."""

    rows: list[Row] = []
    outcomes: list[tuple[str, RequestOutcome]] = []


class Frames(msgspec.Struct, frozen=True, tag="frames"):
    """Whole frames, back to back."""

    data: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last message. `parts`: how many there were."""

    parts: int


Message = BackupHead | RowsMessage | Frames | End
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def encode_message(message: Message) -> bytes:
    payload = _encode(message)
    return _FRONT.pack(len(payload), crc32c.crc32c(payload)) + payload


def rows_of(rows: Iterable[tuple[int, StoredRow]]) -> list[Row]:
    return [(table, row.key, row.value, row.version) for table, row in rows]


def stored_rows(rows: Iterable[Row]) -> list[tuple[int, StoredRow]]:
    """The inverse of `rows_of`."""
    return [(table, StoredRow(key, value, version)) for table, key, value, version in rows]


class MessageReader:
    """Takes a stream in pieces of any size. `where` names it in errors."""

    def __init__(self, where: str) -> None:
        self._where, self._held = where, bytearray()

    def take(self, data: bytes) -> Iterator[tuple[Message, bytes]]:
        """Each message that is whole now, with its bytes. Raises DamagedLog."""
        held = self._held
        held += data
        while len(held) >= _FRONT.size:
            length, crc = _FRONT.unpack_from(held)
            if length > MESSAGE_BYTES_MAX:
                raise self._damaged("a message is longer than any may be")
            whole = _FRONT.size + length
            if len(held) < whole:
                return
            data = bytes(held[:whole])
            del held[:whole]
            payload = memoryview(data)[_FRONT.size :]
            if crc32c.crc32c(payload) != crc:
                raise self._damaged("the checksum of a message does not fit")
            yield decoded(_decode, payload, lambda what: self._damaged(f"a message cannot be read: {what}")), data

    def close(self) -> None:
        """Raises DamagedLog when the stream ended in the middle of a message."""
        if self._held:
            raise self._damaged("it ends in the middle of a message")

    def _damaged(self, what: str) -> DamagedLog:
        return DamagedLog(f"{self._where}: {what}", file=self._where, offset=0)


def frames_in(data: bytes, where: str) -> list[Frame]:
    """The frames that stand back to back in `data`, all of it. Raises DamagedLog, which names `where` and the offset."""
    found: list[Frame] = []
    offset = 0
    while offset < len(data):
        try:
            found.append(parse_frame(data, offset))
        except BrokenFrame as error:
            raise DamagedLog(f"{where}: {error.message}", file=where, offset=offset) from error
        offset += len(found[-1].data)
    return found


class Continuation:
    """Checks that frames lead on from a point, link by link, as one log without gaps."""

    def __init__(self, at: ReachedPoint, where: str) -> None:
        self.at, self._where = at, where

    def take(self, frames: Iterable[Frame]) -> None:
        """Raises DamagedLog for a frame that does not continue what came before it."""
        for frame in frames:
            if frame.previous != self.at.seq or frame.epoch < self.at.epoch or frame.first_seq <= self.at.seq:
                raise DamagedLog(
                    f"{self._where}: {frame!r} does not continue sequence {self.at.seq} of epoch {self.at.epoch}",
                    file=self._where, offset=0,
                )
            self.at = point_of(frame)


def point_of(frame: Frame) -> ReachedPoint:
    """The point behind `frame`."""
    return ReachedPoint(frame.epoch, frame.last_seq, frame.timestamp + frame.count - 1)
