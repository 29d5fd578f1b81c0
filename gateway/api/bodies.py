"""Decodes bodies, with the two errors that there are, and encodes answers in the type that the client asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gateway.api.problems import Answer
from gateway.api.request import JSON, MSGPACK, Head
from twinlog import decoding
from twinlog.errors import InvalidInput, MalformedBody

T = TypeVar("T")
VARY = (b"vary", b"Accept")  # of what is read, so that no cache takes one representation for another
_JSON_HEADER = (b"content-type", JSON.encode())
_MSGPACK_HEADER = (b"content-type", MSGPACK.encode())
_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode
decode_json_object = msgspec.json.Decoder(dict[str, Any]).decode
decode_msgpack_object = msgspec.msgpack.Decoder(dict[str, Any]).decode


def decoded(decode: Callable[[Any], T], body: bytes | msgspec.Raw) -> T:
    """Returns `decode(body)`. Raises InvalidInput where the shape is wrong, MalformedBody where it is no JSON (or msgpack)."""
    return decoding.decoded(decode, body, _malformed, shape=_of_another_form)


def _malformed(what: str) -> MalformedBody:
    return MalformedBody(f"the body cannot be parsed: {what}; send it whole and well-formed")


def _of_another_form(what: str) -> InvalidInput:
    return InvalidInput(f"the body does not have the form that this path takes: {what}")


def decoded_object(body: bytes | msgspec.Raw, content_type: str) -> dict[str, Any]:
    """Returns the object that `body` holds, as JSON or msgpack."""
    return decoded(decode_msgpack_object if content_type == MSGPACK else decode_json_object, body)


def shown_version(version: int, content_type: str, head: Head) -> str | int:
    """Returns `version` as an answer has it: decimal text in JSON, since JavaScript makes another number of one above 2^53."""
    return str(version) if content_type != MSGPACK and not head.number_versions else version


def encoded(document: Any, content_type: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Answers 200 with `document` as JSON or msgpack."""
    if content_type == MSGPACK:
        return Answer(200, [_MSGPACK_HEADER, *headers], _encode_msgpack(document))
    return Answer(200, [_JSON_HEADER, *headers], _encode_json(document))
