"""The readers of messages between the two sites: each call and answer, the histories in them, and the frames of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec

from chaos.fuzz.groups.logs import frame, repair_frames
from chaos.fuzz.groups.rows import CODEC, SCHEMA
from chaos.fuzz.target import Target
from remote_log.replication import messages as m
from storage.engine import EpochEntry, RequestOutcome
from storage.log.frame import Frame, parse_frame
from storage.rows.schema import encode_schema
from twinlog.errors import LogError, MalformedBody, PeerError

_POINT = m.LogPoint(40, 3, 12345)
_PROGRESS = m.BaseProgress(3, 1, 2, 40, 3, 41, 3, 7, b"key", "request")
_HISTORY = [(1, 1, 0, "a", "bootstrap"), (3, 20, 19, "b", "takeover")]
_ROW = CODEC.encode_json_row({"carrier": "UA", "flight": 1})
_CHANGE = m.TrailChange(
    5, "ab" * 32, 1_700_000_000_000, "operation.begun", "begun", "op-1", "failover", "b", "ann", "token", "::1", "ann@host"
)

CALLS: dict[str, msgspec.Struct] = {
    m.FOLLOW: m.FollowRequest(3, "a", _HISTORY, 5, _POINT),
    m.REPLICATE: m.ReplicateRequest(3, _POINT, b"", True, m.Vouched(m.Stamp("life", 5.5), 0.25, 40)),
    m.BASE: m.BaseRequest(
        3,
        "nonce",
        _PROGRESS,
        _PROGRESS,
        {7: encode_schema(SCHEMA)},
        [(7, *_ROW, 99)],
        [("key", b"d" * 16, 3, 40, 99, 1, False)],
    ),
    m.BASE_DONE: m.BaseDoneRequest(3, "nonce", _PROGRESS, 1 << 50, _HISTORY),
    m.STATUS: m.NoRequest(),
    m.EPOCHS: m.EpochsRequest(_POINT),
    m.ROWS: m.RowsRequest([(7, b"key"), (8, b"")]),
    m.PREPARE: m.PrepareRequest(7, encode_schema(SCHEMA)),
    m.DRAIN: m.PlanRequest("plan-1"),
    m.MERGE: m.MergeRequest([(7, "upsert", *_ROW, 99), (7, "delete", _ROW[0], b"", 100)], True),
    m.TRAIL: m.TrailNote("a", 9, "ab" * 32, 4, [_CHANGE]),
}
_ANSWERS: dict[str, msgspec.Struct] = {
    m.FOLLOW: m.Position("following", 40, 3, 39, "", _PROGRESS, "nonce", 5, m.Stamp("life", 1.5)),
    m.EPOCHS: m.EpochsReply(3, 40, _HISTORY, True, 5),
    m.ROWS: m.RowsReply(40, 99, [(b"value", 98), None]),
    m.STATUS: m.StatusReply("a", "ACTIVE", 3, "sync", 40, 40, 40, "", "k1"),
    m.PREPARE: m.PrepareReply("no such type"),
    m.MERGE: m.MergeReply(3, 1, [(7, b"key")]),
    m.DRAIN: m.DrainReply(40, 3),
    m.STEP_DOWN: m.StoppedReply(3, 40),
    m.TRAIL: m.TrailNote("b", 9, "cd" * 32, 4, [_CHANGE, _CHANGE]),
}
_encode = msgspec.msgpack.Encoder().encode


def targets() -> list[Target]:
    return [
        *(_call(method, sample) for method, sample in CALLS.items()),
        *(_answer(method, sample) for method, sample in _ANSWERS.items()),
        Target(
            "whose call",
            lambda chance: _encode({"pair": "0123456789abcdef", "epoch": 3}),
            partial(m.decode_request, m.Addressed, "follow"),
            (MalformedBody,),
            structure="msgpack",
        ),
        Target(
            "frames of a call",
            _frames,
            _read_frames,
            (LogError,),
            lambda frames: b"".join(one.data for one in frames),
            repair_frames,
        ),
    ]


def _call(method: str, sample: msgspec.Struct) -> Target:
    read: Callable[[bytes], Any] = partial(m.decode_request, type(sample), method)
    made = partial(_sample, sample)
    return Target(f"call {method}", made, _unpacked(read), (MalformedBody,), _written, structure="msgpack")


def _answer(method: str, sample: msgspec.Struct) -> Target:
    read: Callable[[bytes], Any] = partial(m.decode_reply, type(sample), method)
    return Target(f"answer to {method}", partial(_sample, sample), _unpacked(read), (PeerError,), _written, structure="msgpack")


def _sample(sample: msgspec.Struct, chance: Random) -> bytes:
    return _encode(m.addressed(sample, chance.choice(("", "0123456789abcdef")), chance.choice((m.PROTOCOL, 0, 2))))


def _written(struct: msgspec.Struct) -> bytes:
    return _encode(m.to_message(struct))


def _unpacked(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Reads, and makes the entries of what came."""

    def made(data: bytes) -> Any:
        found = read(data)
        for entry in m.unpack_history(getattr(found, "history", [])):
            assert isinstance(entry, EpochEntry)
        for _, outcome in m.unpack_outcomes(getattr(found, "outcomes", [])):
            assert isinstance(outcome, RequestOutcome)
        return found

    return made


def _frames(chance: Random) -> bytes:
    first, made = 41, b""
    for _ in range(chance.choice((1, 2, 4))):
        one = frame(chance, first_seq=first, previous=first - 1)
        made, first = made + one.data, one.last_seq + 1
    return made


def _read_frames(data: bytes) -> list[Frame]:
    frames, at = [], 0
    while at < len(data):
        frames.append(parse_frame(data, at))
        at += len(frames[-1].data)
    for one in frames:
        assert one.records is not None
    return frames
