"""A frame: the records of one group commit, encoded once; the same bytes go to both logs and over the wire.

Header, little endian, 60 bytes, then the payload:

    magic 4s | version B | flags B | log H | count I | epoch Q | first_seq Q | previous Q | timestamp Q
    | committed Q | payload_length I | crc32c I

The payload is a msgpack array of records; with the flag COMPRESSED its length I, and then what zstd makes of it.

What always holds: the CRC covers the header (with a zero CRC field) and the payload as it stands; `previous` is the last
sequence that still stands when the frame is made; record i has sequence `first_seq + i` and version `timestamp + i`;
`committed` is the committed sequence known when the frame was made, so a good frame attests the ones before it, which
separates damage from a torn tail (chain.py, segment.py); a payload is compressed only where that saves a quarter of it,
and none expands to more than PAYLOAD_BYTES_MAX. With the flag ENCRYPTED the payload is sealed (encryption.py), as it stands in
an encrypted segment and nowhere else: only its readers accept that flag. Source: protocol.md section 3.
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

import crc32c

from storage.log.record import Record, decode_records, encode_records
from twinlog.errors import BrokenFrame, LogError, words

MAGIC = b"TLF1"
VERSION = 1
_HEADER = struct.Struct("<4sBBHIQQQQQII")
HEADER_BYTES = _HEADER.size
_CRC_OFFSET = HEADER_BYTES - 4
PAYLOAD_BYTES_MAX = 64 << 20  # as records, before it is compressed
TAG_BYTES = 16  # behind a sealed payload
FRAME_BYTES_MAX = HEADER_BYTES + PAYLOAD_BYTES_MAX + TAG_BYTES  # as it is stored
COMPRESS_BYTES_MIN = 8 << 10  # a smaller payload costs more time than it saves (docs/decisions: one record format)
_WORTH_IT = 0.75  # of the size it had
_LENGTH_BYTES = 4
_NO_MEMORY = "not enough memory"  # as zstd says it, which pyarrow makes an OSError
COUNTER_BITS = 16  # of a hybrid timestamp, below 48 bits of wall milliseconds; storage/clock.py makes them
TIMESTAMP_MAX = (1 << 63) - 1  # a database keeps it as a signed integer
SKEW_MAX_S = 86_400  # a time zone taken for UTC stops no pair; what lies further ahead of this site's clock is no time


def latest_timestamp(wall_ms: int) -> int:
    """The largest hybrid timestamp that a site believes whose own clock shows `wall_ms`."""
    return min((wall_ms + SKEW_MAX_S * 1000) << COUNTER_BITS, TIMESTAMP_MAX)


class Flags(IntEnum):
    """Bits. Of plain integers: a flag is looked at for every frame and request."""

    NONE = 0
    ASYNC = 1  # made while only the local log was needed for the acknowledgement
    COMPRESSED = 2
    BARRIER = 4  # its last record is a barrier behind which every site keeps a snapshot (engines/applying.py)
    ENCRYPTED = 8  # its payload is sealed (encryption.py)


_KNOWN_FLAGS = int(Flags.ASYNC | Flags.COMPRESSED | Flags.BARRIER)


class Frame:
    """One frame, immutable. `data` are its bytes, header included; `records` decode on first use."""

    __slots__ = (
        "_records", "committed", "count", "data", "epoch", "first_seq", "flags", "last_seq", "log", "previous", "timestamp",
    )

    def __init__(
        self, *, log: int, epoch: int, first_seq: int, count: int, previous: int, timestamp: int, committed: int,
        flags: int, data: bytes, records: list[Record] | None = None,
    ) -> None:
        self.log, self.epoch, self.first_seq, self.count = log, epoch, first_seq, count
        self.previous, self.timestamp, self.committed = previous, timestamp, committed
        self.flags, self.data, self._records = flags, data, records
        self.last_seq = first_seq + count - 1  # asked more often than anything else

    @property
    def crc(self) -> int:
        """Returns the CRC of header and payload, as in the bytes: with the position it is this frame's alone."""
        return int.from_bytes(self.data[_CRC_OFFSET:HEADER_BYTES], "little")

    @property
    def payload(self) -> memoryview:
        """Returns the payload as it stands."""
        return memoryview(self.data)[HEADER_BYTES:]

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            if self.flags & Flags.ENCRYPTED:
                raise LogError(f"{self!r} is encrypted: its records are read with the key of its segment")
            payload = memoryview(self.data)[HEADER_BYTES:]
            self._records = decode_records(_expanded(payload) if self.flags & Flags.COMPRESSED else payload)
        return self._records

    def release_records(self) -> None:
        """Keep the bytes only: a frame that waits to be shipped is a fifth of its decoded size. Decoded again if asked."""
        self._records = None

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, first_seq): the order in which any reader takes frames."""
        return (self.epoch, self.first_seq)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.epoch, self.first_seq))

    def __repr__(self) -> str:
        return f"Frame(epoch={self.epoch}, seq={self.first_seq}..{self.last_seq}, previous={self.previous})"


def make_frame(
    *, epoch: int, first_seq: int, previous: int, timestamp: int, committed: int, records: list[Record],
    flags: int = 0, log: int = 0,
) -> Frame:
    """Encode `records` (at least one) into a frame. HOT."""
    payload = encode_records(records)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LogError(f"a frame of {len(payload)} bytes is above the limit of {PAYLOAD_BYTES_MAX}")
    count = len(records)
    if len(payload) >= COMPRESS_BYTES_MIN:
        compressed = _compressed(payload)
        if len(compressed) <= _WORTH_IT * len(payload):
            payload, flags = compressed, flags | Flags.COMPRESSED
    bare = _HEADER.pack(
        MAGIC, VERSION, flags, log, count, epoch, first_seq, previous, timestamp, committed, len(payload), 0
    )
    return Frame(
        log=log, epoch=epoch, first_seq=first_seq, count=count, previous=previous, timestamp=timestamp,
        committed=committed, flags=flags, data=_whole(bare, payload), records=records,
    )


def _whole(bare: bytes, payload: bytes) -> bytes:
    """`bare`: the header with a zero CRC."""
    crc = crc32c.crc32c(payload, crc32c.crc32c(bare))
    return b"".join((bare[:_CRC_OFFSET], crc.to_bytes(4, "little"), payload))


def with_payload(frame: Frame, flags: int, length: int, payload: Callable[[bytes], bytes]) -> bytes:
    """The bytes of `frame` with other flags and another payload, of `length` bytes; it is made from the header that it gets,
    with a zero CRC. HOT."""
    bare = _HEADER.pack(
        MAGIC, VERSION, flags, frame.log, frame.count, frame.epoch, frame.first_seq, frame.previous, frame.timestamp,
        frame.committed, length, 0,
    )
    return _whole(bare, payload(bare))


# magic, version, flags, log, count, epoch, first_seq, previous, timestamp, committed, payload_bytes, crc: as in the bytes
FrameHeader = tuple[bytes, int, int, int, int, int, int, int, int, int, int, int]


def sound_header(view: memoryview, offset: int, *, sealed: bool = False) -> FrameHeader:
    """The header of the frame at `offset`, whose CRC was checked, payload included; no payload is copied. HOT.

    `sealed`: it may be encrypted. Raises BrokenFrame when no whole, sound frame begins there, LogError for a format of another
    release, and for one that is encrypted and may not be.
    """
    if len(view) - offset < HEADER_BYTES:
        raise BrokenFrame("the bytes end inside a frame header", offset=offset)
    header: FrameHeader = _HEADER.unpack_from(view, offset)
    begin = offset + HEADER_BYTES
    length = header[10]
    end = begin + length
    if header[0] != MAGIC or length > PAYLOAD_BYTES_MAX + TAG_BYTES or header[4] == 0:
        raise BrokenFrame("no frame begins here", offset=offset)
    if end > len(view):
        raise BrokenFrame("the bytes end inside a frame", offset=offset)
    bare = bytes(view[offset : offset + _CRC_OFFSET]) + b"\0\0\0\0"
    if crc32c.crc32c(view[begin:end], crc32c.crc32c(bare)) != header[11]:
        raise BrokenFrame("the frame's CRC does not match", offset=offset)
    if header[1] != VERSION:
        raise LogError(f"frame format version {header[1]} is not known to this release (it knows {VERSION})")
    if header[2] & ~_KNOWN_FLAGS:
        if header[2] & ~(_KNOWN_FLAGS | Flags.ENCRYPTED):
            raise LogError(f"frame flags {header[2]:#x} are not known to this release (it knows {_KNOWN_FLAGS:#x})")
        if not sealed:
            raise LogError("the frame is encrypted, and no key is named here that it could be read with")
    return header


def parse_frame(buffer: bytes | memoryview, offset: int = 0, *, sealed: bool = False) -> Frame:
    """The frame that begins at `offset`, with bytes of its own. `sealed`, and raises: as `sound_header`."""
    view = memoryview(buffer)
    _, _, flags, log, count, epoch, first_seq, previous, timestamp, committed, length, _ = sound_header(
        view, offset, sealed=sealed
    )
    return Frame(
        log=log, epoch=epoch, first_seq=first_seq, count=count, previous=previous, timestamp=timestamp,
        committed=committed, flags=flags, data=bytes(view[offset : offset + HEADER_BYTES + length]),
    )


@cache
def _zstd() -> Any:
    """Imported when there is something to compress: a command line that reads no frame must not wait for pyarrow."""
    import pyarrow as pa  # type: ignore[import-untyped]

    return pa.Codec("zstd", compression_level=1)


def _compressed(payload: bytes) -> bytes:
    """Raises MemoryError."""
    try:
        compressed: bytes = _zstd().compress(payload, asbytes=True)
    except OSError as error:  # of bytes in memory: zstd has no other reason
        raise MemoryError(words(error)) from error
    return len(payload).to_bytes(_LENGTH_BYTES, "little") + compressed


def _expanded(payload: memoryview) -> bytes:
    """Raises LogError for anything that `_compressed` did not make, before it takes more memory than a frame may; MemoryError
    where this process has none, which is no damage."""
    length = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    if length > PAYLOAD_BYTES_MAX:
        raise LogError(f"a frame's payload would expand to {length} bytes, above the limit of {PAYLOAD_BYTES_MAX}")
    try:
        expanded: bytes = _zstd().decompress(payload[_LENGTH_BYTES:], decompressed_size=length, asbytes=True)
    except (OSError, ValueError) as error:  # pyarrow's ArrowException are both
        if _NO_MEMORY in words(error):
            raise MemoryError(words(error)) from error
        raise LogError(f"a frame's payload cannot be expanded: {words(error)}") from error
    return expanded
