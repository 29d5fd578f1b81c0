"""Segment files: names, header, and what stands in one file after a crash.

A segment is a 64-byte header and then frames. A local one has them back to back, and is preallocated with zeros behind them.
Remote segments have the WAL segment's name as prefix, `<epoch>-<index>` and `<epoch>-<index>.<n>`, and each of their frames
begins at a multiple of REMOTE_ALIGNMENT, with zeros (padding) between.
Header, little endian: magic 4s | version B | log2 of the alignment B | log H | epoch Q | first_seq Q | WAL name 28s | pair 8s |
crc32c I. The pair is the identity that the register gave it: two pairs of one name differ by it.
An encrypted segment has version 3, and behind these 64 bytes: key id 32s | wrapped data key 60s | crc32c I, over all before it.

What always holds: a header is synced before the first frame is written; frames lie in the order they were made in; a frame's
padding goes out in one append with it, so that no append writes into the 512 bytes in which an acknowledged frame ends;
a torn TAIL is cut, DAMAGE is an error that names file and offset. The difference: several frames may go out in one
write and one sync, so a power loss may tear one and leave later ones whole, though none was ever durable. But a frame's
`committed` names a sequence that was durable before the frame was made; a whole frame that attests anything of what is
missing proves that the missing bytes once were there. Two kinds of frames attest nothing here: those of an older epoch
than the segment (copied in when it was opened), and in a remote segment those made in asynchronous mode (committed
meant the local log only). Source: protocol.md section 3, storage/log/frame.py.
This module is pure.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import crc32c

from storage.log.encryption import KEY_ID_BYTES_MAX, NO_KEYS, WRAPPED_BYTES, Keyring, SegmentCipher, read_frame
from storage.log.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from storage.log.frame import MAGIC as FRAME_MAGIC
from storage.log.frame import TAG_BYTES, Flags, Frame, parse_frame
from twinlog.errors import BrokenFrame, BrokenHeader, DamagedLog, LogError

MAGIC = b"TLS1"
VERSION, ENCRYPTED_VERSION = 2, 3
REMOTE_ALIGNMENT = 512  # HDFS's checksum chunk: a DataNode that dies in mid append loses all that stands in the last one
_ALIGNMENT_BITS_MAX = 16
_HEADER = struct.Struct("<4sBBHQQ28s8sI")
HEADER_BYTES = _HEADER.size
_CRC_OFFSET = HEADER_BYTES - 4
_KEY = struct.Struct(f"<{KEY_ID_BYTES_MAX}s{WRAPPED_BYTES}sI")
HEADER_BYTES_MAX = HEADER_BYTES + _KEY.size  # of an encrypted segment: what is read to see any header
_WAL_NAME = re.compile(r"([0-9]{12})-([0-9]{8})")
_REMOTE_NAME = re.compile(r"([0-9]{12}-[0-9]{8})\.([0-9]{6})")
_NO_PAIR = bytes(8)
_ZEROS = bytes(1 << 16)
_REMEDY = "restore the file from a copy, or rejoin this site from the other one"


def wal_name(epoch: int, index: int) -> str:
    """Name of a local segment; names sort as (epoch, index)."""
    return f"{epoch:012d}-{index:08d}"


def parse_wal_name(name: str) -> tuple[int, int] | None:
    """(epoch, index), or None when `name` is no WAL segment's."""
    match = _WAL_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def remote_name(wal: str, number: int) -> str:
    """Name of the `number`-th remote segment for the WAL segment `wal`."""
    return f"{wal}.{number:06d}"


def parse_remote_name(name: str) -> tuple[str, int] | None:
    """(WAL segment name, number), or None when `name` is no remote segment's."""
    match = _REMOTE_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """`first_seq`: no frame in this file is below it (the next one expected when the file was made). `alignment`: a power of
    two, in bytes; each frame begins at a multiple of it. `pair`: the identity of the pair whose log this is, 16 digits hex.
    `key_id`: the key that wrapped `data_key`, which the frames are sealed with; "": they are plain."""

    log: int
    epoch: int
    first_seq: int
    wal: str
    alignment: int = 1
    pair: str = ""
    key_id: str = ""
    data_key: bytes = field(default=b"", repr=False)

    @property
    def begin(self) -> int:
        """The offset of the first frame."""
        return aligned(HEADER_BYTES_MAX if self.key_id else HEADER_BYTES, self.alignment)

    def end_of(self, frame: Frame, offset: int) -> int:
        """Returns the end of `frame`, which begins at `offset`."""
        return offset + len(frame.data) + (TAG_BYTES if self.key_id else 0)

    def after(self, frame: Frame, offset: int) -> int:
        """Returns the offset at which the next frame may begin."""
        return aligned(self.end_of(frame, offset), self.alignment)


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The content of one file. `header` None: the file was torn before anything was in it. `end`: the offset where the next
    frame would begin, which a file that was cut off may not reach; behind the last frame itself when its padding is not zero.
    `torn`: something that is not zero follows `end`. `cipher`: of an encrypted one."""

    header: SegmentHeader | None
    frames: list[Frame]
    end: int
    torn: bool
    cipher: SegmentCipher | None = field(default=None, compare=False)


def aligned(offset: int, alignment: int) -> int:
    """The first multiple of `alignment` that is not below `offset`."""
    return offset + -offset % alignment


def encode_header(header: SegmentHeader) -> bytes:
    """64 bytes, CRC at their end, the key of an encrypted segment, and zeros up to the place of the first frame."""
    whole = _with_crc(_bare(header))
    if header.key_id:
        whole = _with_crc(whole + _KEY.pack(header.key_id.encode("ascii"), header.data_key, 0)[:-4])
    return whole.ljust(header.begin, b"\0")


def _bare(header: SegmentHeader) -> bytes:
    """The 64 bytes without their CRC."""
    bits, wal = header.alignment.bit_length() - 1, header.wal.encode("ascii")
    pair, version = bytes.fromhex(header.pair), ENCRYPTED_VERSION if header.key_id else VERSION
    bare = _HEADER.pack(MAGIC, version, bits, header.log, header.epoch, header.first_seq, wal, pair, 0)
    return bare[:_CRC_OFFSET]


def _with_crc(data: bytes) -> bytes:
    return data + crc32c.crc32c(data).to_bytes(4, "little")


def _bound(header: SegmentHeader) -> bytes:
    """The bytes that the data key is bound to."""
    return _bare(header) + header.key_id.encode("ascii")


def encrypted(header: SegmentHeader, keys: Keyring) -> tuple[SegmentHeader, SegmentCipher | None]:
    """`header` with a new data key, and the cipher that seals the frames of its segment; where `keys` write plain, as it is."""
    if not keys.writes:
        return header, None
    named = replace(header, key_id=keys.writes)
    data_key, cipher = keys.wrap(header.wal, _bound(named))
    return replace(named, data_key=data_key), cipher


def cipher_of(header: SegmentHeader, keys: Keyring, file_name: str) -> SegmentCipher | None:
    """The cipher that opens the frames of a segment; None: they are plain. Raises KeyUnavailable."""
    return keys.unwrap(header.key_id, header.data_key, _bound(header), file_name)


def encode_frames(frames: Iterable[Frame], alignment: int, offset: int = 0, cipher: SegmentCipher | None = None) -> bytes:
    """The bytes of `frames` in a segment from `offset` on, each with zeros behind it, up to where one may begin. HOT."""
    if cipher is None:
        return b"".join([part for frame in frames for part in (frame.data, _ZEROS[: -len(frame.data) % alignment])])
    parts: list[bytes] = []
    for frame in frames:
        sealed = cipher.seal(frame, offset)
        parts += sealed, _ZEROS[: -len(sealed) % alignment]
        offset = aligned(offset + len(sealed), alignment)
    return b"".join(parts)


def parse_header(data: bytes) -> SegmentHeader:
    """The inverse of `encode_header`; frames may follow, and the zeros may be missing. Raises BrokenHeader; LogError for a
    format of another release."""
    if len(data) < HEADER_BYTES:
        raise BrokenHeader("the file ends inside its segment header", offset=0)
    magic, version, bits, log, epoch, first_seq, wal, pair, crc = _HEADER.unpack_from(data)
    if magic != MAGIC or crc32c.crc32c(data[:_CRC_OFFSET]) != crc:
        raise BrokenHeader("no sound segment header begins here", offset=0)
    if version not in (VERSION, ENCRYPTED_VERSION):
        raise LogError(
            f"segment format version {version} is not known to this release (it knows {VERSION} and {ENCRYPTED_VERSION})"
        )
    if bits > _ALIGNMENT_BITS_MAX:
        raise LogError(f"segment alignment 2^{bits} is not known to this release (it knows 2^{_ALIGNMENT_BITS_MAX} at most)")
    named = wal.rstrip(b"\0")
    if not named.isascii():
        raise BrokenHeader("the segment header names no WAL segment", offset=0)
    whose = pair.hex() if pair != _NO_PAIR else ""
    key_id, data_key = _parse_key(data) if version == ENCRYPTED_VERSION else ("", b"")
    header = SegmentHeader(log, epoch, first_seq, named.decode("ascii"), 1 << bits, whose, key_id, data_key)
    if data[HEADER_BYTES_MAX if key_id else HEADER_BYTES : header.begin].strip(b"\0"):
        raise BrokenHeader("something other than zeros stands between the segment header and the first frame", offset=0)
    return header


def _parse_key(data: bytes) -> tuple[str, bytes]:
    if len(data) < HEADER_BYTES_MAX:
        raise BrokenHeader("the file ends inside its segment header", offset=0)
    key_id, data_key, crc = _KEY.unpack_from(data, HEADER_BYTES)
    named = key_id.rstrip(b"\0")
    if crc32c.crc32c(data[: HEADER_BYTES_MAX - 4]) != crc or not named.isascii() or not named:
        raise BrokenHeader("the segment header is not sound where it names its key", offset=0)
    return named.decode("ascii"), data_key


def scan_segment(data: bytes, file_name: str, after_seq: int = 0, keys: Keyring = NO_KEYS) -> SegmentScan:
    """The whole frames of one file, up to the first place that holds none.

    `after_seq`: last sequence known from the segments before, which places the very first frame of this one. Raises
    DamagedLog when something behind that place proves that it once held a durable frame; KeyUnavailable. A sealed segment may
    also have lost its whole end; only the link of the next segment's first frame shows that, so the caller checks it.
    """
    try:
        header = parse_header(data)
    except BrokenHeader as error:
        for at, frame in sound_frames(data, 0, file_name):
            raise DamagedLog(
                f"{file_name}: the segment header is damaged, for the sound {frame!r} follows at offset {at}; {_REMEDY}",
                file=file_name, offset=0, sound_offset=at,
            ) from error
        return SegmentScan(None, [], 0, torn=not _is_zero(data, 0))
    cipher = cipher_of(header, keys, file_name)
    frames, end, damage = _read_frames(data, file_name, header, cipher)
    if damage is not None:
        raise damage
    if _is_zero(data, end):
        return SegmentScan(header, frames, end, torn=False, cipher=cipher)
    last_seq = frames[-1].last_seq if frames else max(after_seq, header.first_seq - 1)
    remote = parse_remote_name(file_name.rpartition("/")[2]) is not None
    for at, frame in sound_frames(data, end, file_name):
        if frame.committed >= seq_of(end, last_seq, header) and attests(frame, header, remote=remote):
            damaged = (
                f"the padding at offset {end} is damaged, it is not all zero" if is_padding(end, header)
                else f"the frame at offset {end} is damaged: sequence {last_seq + 1} should follow there"
            )
            raise DamagedLog(
                f"{file_name}: {damaged}, and the sound {frame!r} at offset {at} proves that {frame.committed} had been"
                f" committed; {_REMEDY}",
                file=file_name, offset=end, sound_offset=at, committed=frame.committed,
            )
    return SegmentScan(header, frames, end, torn=True, cipher=cipher)


def check_pair(header: SegmentHeader, pair: str, file_name: str) -> None:
    """Raises DamagedLog for a segment of another pair than `pair`; "": not known, and nothing is said. Its frames may be sound
    and may link, so nothing else shows it."""
    if pair and header.pair != pair:
        raise DamagedLog(
            f"{file_name}: the segment is of another pair: its header names {header.pair or 'none'}, and this log is of {pair};"
            f" it was put here by mistake, or this is the wrong disk or DFS: {_REMEDY}",
            file=file_name, offset=0,
        )


def commonest(pairs: Iterable[str]) -> str:
    """Returns the pair that most segments name, whose log this is then; "": there are none."""
    named = Counter(pairs)
    return max(named, key=lambda pair: named[pair], default="")


def pairs_named(heads: Iterable[bytes]) -> Iterator[str]:
    """The pairs that the headers at the beginnings of segments name, as far as they can be read."""
    for head in heads:
        with suppress(LogError):
            yield parse_header(head[:HEADER_BYTES_MAX]).pair


def check_order(scan: SegmentScan, file_name: str) -> None:
    """Raises DamagedLog at a frame that stands behind one of the same or a higher (epoch, sequence), where no writer puts it: a
    reader along the file would miss a frame, or come to a gap."""
    highest, offset = (-1, -1), scan.header.begin if scan.header is not None else 0
    for frame in scan.frames:
        if frame.position <= highest:
            raise DamagedLog(
                f"{file_name}: {frame!r} at offset {offset} stands behind a later frame, where no writer put it; {_REMEDY}",
                file=file_name, offset=offset,
            )
        highest = frame.position
        offset = scan.header.after(frame, offset) if scan.header is not None else offset + len(frame.data)


def is_padding(offset: int, header: SegmentHeader) -> bool:
    """Returns True when no frame may begin at `offset`, where reading ended: the padding there is not zero."""
    return offset % header.alignment != 0


def seq_of(offset: int, last_seq: int, header: SegmentHeader) -> int:
    """The sequence that was not durable before the bytes at `offset` were, where reading ended behind `last_seq`: padding goes
    out with the frame before it."""
    return last_seq if is_padding(offset, header) else last_seq + 1


def frames_before_damage(data: bytes, file_name: str, pair: str = "", keys: Keyring = NO_KEYS) -> list[Frame]:
    """The whole frames of a file that `scan_segment` finds damaged, up to the first place that holds none. None when it is of
    another pair than `pair`. Raises KeyUnavailable."""
    try:
        header = parse_header(data)
    except BrokenHeader:
        return []
    if pair and header.pair != pair:
        return []
    return _read_frames(data, file_name, header, cipher_of(header, keys, file_name))[0]


def attests(frame: Frame, header: SegmentHeader, *, remote: bool) -> bool:
    """Returns True when `frame.committed` proves something about the durability of the log that this segment belongs to."""
    return frame.epoch == header.epoch and not (remote and frame.flags & Flags.ASYNC)


def _parse_at(
    data: bytes, offset: int, file_name: str, cipher: SegmentCipher | None = None, *, sealed: bool = False
) -> Frame | None:
    """The sound frame at `offset`, or None. A format version of another release is neither, but an error; so is damage that
    only a cipher sees. `sealed`: as it stands, if it is encrypted."""
    try:
        return parse_frame(data, offset, sealed=True) if sealed else read_frame(data, offset, cipher, offset)
    except BrokenFrame:
        return None
    except DamagedLog:
        raise
    except LogError as error:
        raise LogError(f"{file_name}, offset {offset}: {error.message}", file=file_name, offset=offset) from error


def _read_frames(
    data: bytes, file_name: str, header: SegmentHeader, cipher: SegmentCipher | None
) -> tuple[list[Frame], int, DamagedLog | None]:
    """The frames up to the first place that holds none, and that place, or the first padding that is not zero; and the damage
    that stands there, if the cipher sees it."""
    frames: list[Frame] = []
    offset = header.begin
    try:
        while (frame := _parse_at(data, offset, file_name, cipher)) is not None:
            frames.append(frame)
            end = header.end_of(frame, offset)
            offset = aligned(end, header.alignment)
            if data[end:offset].strip(b"\0"):
                return frames, end, None
    except DamagedLog as error:
        return frames, offset, error
    return frames, offset, None


def sound_frames(data: bytes, offset: int, file_name: str) -> Iterator[tuple[int, Frame]]:
    """(offset, frame) of what can be read at or behind `offset`, found by the frame magic; an encrypted one as it stands.

    A value may contain the magic; a false beginning costs a CRC over the length that it seems to have, so their sum is
    bounded: the search stays linear. Raises DamagedLog above that bound, for then nothing can be proven.
    """
    budget = 4 * len(data)
    while (at := data.find(FRAME_MAGIC, offset)) >= 0:
        frame = _parse_at(data, at, file_name, sealed=True)
        if frame is not None:
            yield at, frame
            offset = at + len(frame.data)
            continue
        offset = at + 1
        length = int.from_bytes(data[at + FRAME_HEADER_BYTES - 8 : at + FRAME_HEADER_BYTES - 4], "little")
        if at + FRAME_HEADER_BYTES + length <= len(data):
            budget -= length
        if budget < 0:
            raise DamagedLog(
                f"{file_name}: a frame is torn or damaged, and {at} is one of so many false frame beginnings behind it that"
                f" nothing can be proven; {_REMEDY}",
                file=file_name, offset=at,
            )


def _is_zero(data: bytes, offset: int) -> bool:
    """Returns True when only zeros follow. It compares in pieces, since that is faster than looking at bytes."""
    step = len(_ZEROS)
    return all(data[at : at + step] == _ZEROS[: min(step, len(data) - at)] for at in range(offset, len(data), step))
