"""Calls of the other site as they are decoded: what they become is bounded by their bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from remote_log.replication import messages
from remote_log.replication.messages import (
    ROWS_MAX,
    BaseRequest,
    FollowRequest,
    MergeRequest,
    NoRequest,
    PlanRequest,
    Position,
    RowsRequest,
    decode_reply,
    decode_request,
    to_message,
)
from tests.suite.traced import Taken, in_own_process, traced
from twinlog.errors import MalformedBody, PeerError

MANY = 1_000_000
EMPTY_LISTS = b"\xdd" + MANY.to_bytes(4, "big") + b"\x90" * MANY
EMPTY_MAPS = b"\xdd" + MANY.to_bytes(4, "big") + b"\x80" * MANY
pack = msgspec.msgpack.encode


def with_member(name: str, value: bytes, **others: Any) -> bytes:
    """A map of `others`, and of `name` with a value that is msgpack already."""
    return pack({**others, name: msgspec.Raw(value)})


def _decoded(kind: type[Any], body: bytes) -> Taken:
    with traced() as taken, suppress(MalformedBody):
        decode_request(kind, "call", body)
    return taken


@pytest.mark.parametrize(("kind", "body"), [
    (MergeRequest, with_member("rows", EMPTY_LISTS)),
    (MergeRequest, with_member("rows", EMPTY_MAPS)),
    (MergeRequest, with_member("rows", b"\xdd" + MANY.to_bytes(4, "big") + pack((1, "upsert", b"", b"", 1)) * MANY)),
    (RowsRequest, with_member("keys", EMPTY_LISTS)),
    (BaseRequest, with_member("rows", EMPTY_LISTS, epoch=1, nonce="n")),
    (BaseRequest, with_member("outcomes", EMPTY_LISTS, epoch=1, nonce="n")),
    (FollowRequest, with_member("history", EMPTY_LISTS, epoch=1, site="a")),
    (FollowRequest, with_member("history", b"\xdd" + MANY.to_bytes(4, "big") + pack((1, 1, 0, "a", "x")) * MANY)),
    (PlanRequest, with_member("nobody_knows", EMPTY_LISTS, plan_id="p")),
    (NoRequest, with_member("nobody_knows", EMPTY_MAPS)),
    (NoRequest, EMPTY_MAPS),
])
def test_a_call_becomes_little_more_than_its_bytes(kind: type[Any], body: bytes) -> None:
    """One of 30 MiB took 2.5 GB, and held everybody else for half a minute."""
    assert in_own_process(_decoded, kind, body).peak_bytes < len(body) + (1 << 20)


def test_a_list_that_is_too_long_is_named() -> None:
    row = (1, "upsert", b"k", b"v", 1)
    assert len(decode_request(MergeRequest, "merge", pack({"rows": [row] * ROWS_MAX})).rows) == ROWS_MAX
    with pytest.raises(MalformedBody, match="length"):
        decode_request(MergeRequest, "merge", pack({"rows": [row] * (ROWS_MAX + 1)}))


def test_a_call_that_cannot_be_read_is_malformed_whatever_is_wrong_with_it() -> None:
    for body in (b"", b"\xc1", b"\x81\xa7plan_id"):
        with pytest.raises(MalformedBody, match="the body of drain is not msgpack"):
            decode_request(PlanRequest, "drain", body)
    others: list[Any] = [{}, [], {"plan_id": 1}, None]
    for message in others:
        with pytest.raises(MalformedBody, match="the body of drain is no PlanRequest"):
            decode_request(PlanRequest, "drain", pack(message))
    assert decode_request(PlanRequest, "drain", pack({"plan_id": "p", "later": [1]})) == PlanRequest("p")


def test_an_answer_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pack(to_message(Position("following", 5, 1, 4)))
    for most, error in ((len(answer), None), (len(answer) - 1, "longer than 0 MiB")):
        monkeypatch.setattr(messages, "REPLY_BYTES_MAX", most)
        if error is None:
            assert decode_reply(Position, "follow", answer).applied_seq == 5
        else:
            with pytest.raises(PeerError, match=error):
                decode_reply(Position, "follow", answer)
