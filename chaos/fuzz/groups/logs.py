"""The readers of a log: frames, segments (plain, aligned, encrypted), records and what stands in them, sealed notes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import crc32c
import msgspec

from chaos.fuzz.target import Target
from storage.disk.sealed_json import seal, unseal
from storage.log.encryption import Keyring, LogKey
from storage.log.frame import HEADER_BYTES, MAGIC, Flags, Frame, make_frame, parse_frame
from storage.log.record import (
    EpochStart,
    Record,
    RecordKind,
    RequestMark,
    SchemaChange,
    decode_epoch_start,
    decode_records,
    decode_request_mark,
    decode_schema_change,
    encode_records,
)
from storage.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from storage.log.segment import (
    HEADER_BYTES_MAX,
    REMOTE_ALIGNMENT,
    SegmentHeader,
    SegmentScan,
    check_order,
    encode_frames,
    encode_header,
    encrypted,
    frames_before_damage,
    parse_header,
    parse_remote_name,
    parse_wal_name,
    remote_name,
    scan_segment,
    wal_name,
)
from storage.log.segment import MAGIC as SEGMENT_MAGIC
from switchover.register.dfs_folder import RegisterEntry
from switchover.register.port import PairState
from twinlog.errors import DamagedLog, LogError

_KEYS = (LogKey("k1", b"1" * 32), LogKey("plain"))
_SEGMENT = wal_name(3, 1)
_encode = msgspec.msgpack.Encoder().encode


def targets() -> list[Target]:
    keys = Keyring(keys=_KEYS)
    scans = {
        "segment": (_segment(1), _SEGMENT, Keyring()),
        "remote segment": (_segment(REMOTE_ALIGNMENT), remote_name(_SEGMENT, 2), Keyring()),
        "encrypted segment": (_sealed_segment, remote_name(_SEGMENT, 2), keys),
    }
    return [
        Target("records", _records_bytes, decode_records, (LogError,), encode_records, structure="msgpack"),
        Target(
            "epoch start", lambda chance: _encode(_start(chance)), decode_epoch_start, (LogError,), _encode, structure="msgpack"
        ),
        Target(
            "schema change",
            lambda chance: _encode(_change(chance)),
            decode_schema_change,
            (LogError,),
            _encode,
            structure="msgpack",
        ),
        Target(
            "request mark",
            lambda chance: _encode(_mark(chance)),
            decode_request_mark,
            (LogError,),
            _encode,
            structure="msgpack",
        ),
        Target("frame", lambda chance: frame(chance).data, _read_frame, (LogError,), lambda read: read[0], repair_frames),
        Target("segment header", _header_bytes, _read_header, (LogError,), encode_header, _repair_segment),
        *(
            Target(name, made, _scanned(file, ring), (LogError,), None, _repair_segment)
            for name, (made, file, ring) in scans.items()
        ),
        Target(
            "file names",
            _name,
            lambda data: (parse_wal_name(data.decode("latin-1")), parse_remote_name(data.decode("latin-1"))),
        ),
        Target("sealed note", _note, _read_note, (DamagedLog,), seal, _resealed, structure=""),
    ]


# ---- records
def record(chance: Random) -> Record:
    kind = chance.choice(list(RecordKind))
    mark = _encode(_mark(chance)) if chance.random() < 0.3 else b""
    values: dict[RecordKind, Callable[[], bytes]] = {
        RecordKind.DDL: lambda: _encode(_change(chance)),
        RecordKind.EPOCH_START: lambda: _encode(_start(chance)),
        RecordKind.MODE: lambda: chance.choice((b"sync", b"async")),
        RecordKind.CURSOR: lambda: _encode(chance.randrange(1 << 40)),
    }
    value = values.get(kind, lambda: _encode({2: chance.random(), 3: "x" * chance.randrange(40), 4: None}))()
    return Record(int(kind), chance.randrange(5), chance.randbytes(chance.randrange(20)), value, mark)


def _start(chance: Random) -> EpochStart:
    return EpochStart(
        chance.randrange(1, 9), chance.choice("ab"), chance.choice(("bootstrap", "takeover")), f"plan-{chance.random()}"
    )


def _change(chance: Random) -> SchemaChange:
    return SchemaChange(chance.choice(("put", "drop")), chance.randrange(9), chance.randbytes(12), chance.choice((0, 3600)))


def _mark(chance: Random) -> RequestMark:
    return RequestMark(f"key-{chance.randrange(99)}", chance.randbytes(16), chance.randrange(1, 9))


def _records_bytes(chance: Random) -> bytes:
    return encode_records([record(chance) for _ in range(chance.choice((1, 2, 7)))])


# ---- frames
def frame(chance: Random, epoch: int = 3, first_seq: int = 11, previous: int = 10) -> Frame:
    many = chance.random() < 0.1
    records = [record(chance) for _ in range(chance.choice((1, 1, 2, 6)))]
    if many:  # long enough to be compressed
        records += [Record(int(RecordKind.UPSERT), 1, b"key", b"value" * 60) for _ in range(40)]
    return make_frame(
        epoch=epoch,
        first_seq=first_seq,
        previous=previous,
        timestamp=(1_700_000_000_000 << 16) + first_seq,
        committed=previous,
        records=records,
        flags=chance.choice((0, 0, int(Flags.ASYNC))),
    )


def _read_frame(data: bytes) -> tuple[bytes, int, list[Record]]:
    found = parse_frame(data)
    return found.data, found.last_seq, found.records


def repair_frames(data: bytes) -> bytes:
    """`data` with a CRC that fits in whatever looks like a frame, and is whole."""
    made = bytearray(data)
    at = data.find(MAGIC)
    while at >= 0 and at + HEADER_BYTES <= len(data):
        length = int.from_bytes(data[at + HEADER_BYTES - 8 : at + HEADER_BYTES - 4], "little")
        end = min(at + HEADER_BYTES + length, len(data))
        bare = bytes(made[at : at + HEADER_BYTES - 4]) + b"\0\0\0\0"
        crc = crc32c.crc32c(bytes(made[at + HEADER_BYTES : end]), crc32c.crc32c(bare))
        made[at + HEADER_BYTES - 4 : at + HEADER_BYTES] = crc.to_bytes(4, "little")
        at = data.find(MAGIC, end)
    return bytes(made)


# ---- segments
def _segment(alignment: int) -> Callable[[Random], bytes]:
    def made(chance: Random) -> bytes:
        header = SegmentHeader(0, 3, 11, _SEGMENT, alignment, chance.choice(("", "0123456789abcdef")))
        frames = _frames(chance)
        tail = chance.choice((b"", bytes(300), frame(chance, first_seq=400).data[:30]))
        return encode_header(header) + encode_frames(frames, alignment, header.begin) + tail

    return made


def _sealed_segment(chance: Random) -> bytes:
    header, cipher = encrypted(
        SegmentHeader(0, 3, 11, _SEGMENT, REMOTE_ALIGNMENT, ""), Keyring(keys=_KEYS, new_bytes=chance.randbytes)
    )
    return encode_header(header) + encode_frames(_frames(chance), REMOTE_ALIGNMENT, header.begin, cipher)


def _frames(chance: Random) -> list[Frame]:
    frames: list[Frame] = []
    for _ in range(chance.randrange(4)):
        first = frames[-1].last_seq + 1 if frames else 11
        frames.append(frame(chance, first_seq=first, previous=first - 1))
    return frames


def _header_bytes(chance: Random) -> bytes:
    return (_sealed_segment(chance) if chance.random() < 0.4 else _segment(1)(chance))[: HEADER_BYTES_MAX + 8]


def _read_header(data: bytes) -> SegmentHeader:
    return parse_header(data)


def _scanned(file: str, keys: Keyring) -> Callable[[bytes], SegmentScan]:
    def read(data: bytes) -> SegmentScan:
        frames_before_damage(data, file, keys=keys)
        scan = scan_segment(data, file, 10, keys)
        check_order(scan, file)
        for one in scan.frames:
            assert one.records is not None
        return scan

    return read


def _repair_segment(data: bytes) -> bytes:
    if data[:4] == SEGMENT_MAGIC and len(data) >= SEGMENT_HEADER_BYTES:
        bare = data[: SEGMENT_HEADER_BYTES - 4]
        data = bare + crc32c.crc32c(bare).to_bytes(4, "little") + data[SEGMENT_HEADER_BYTES:]
        if data[4] == 3 and len(data) >= HEADER_BYTES_MAX:
            named = data[: HEADER_BYTES_MAX - 4]
            data = named + crc32c.crc32c(named).to_bytes(4, "little") + data[HEADER_BYTES_MAX:]
    return repair_frames(data)


def _name(chance: Random) -> bytes:
    return chance.choice((wal_name(3, 7), remote_name(wal_name(3, 7), 2))).encode()


# ---- notes
def _note(chance: Random) -> bytes:
    state = PairState(chance.randrange(99), 3, 3, chance.choice("ab"), "plan-1", chance.choice(("sync", "async")), reason="é")
    return seal(RegisterEntry("ab" * 32, "a", 1_700_000_000_000, state))


def _read_note(data: bytes) -> Any:
    return unseal(data, RegisterEntry, "register/1", "restore it")


def _resealed(data: bytes) -> bytes:
    body = data[len(b'{"crc32c":"00000000","content":') : -1]
    return b'{"crc32c":"%08x","content":' % crc32c.crc32c(body) + body + b"}"
