"""Whatever bytes a decoder of a persisted or wire format gets, it raises its own error and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.api.bodies import decode_json_object, decode_msgpack_object, decoded_object
from gateway.api.bodies import decoded as decoded_body
from gateway.api.request import JSON, MSGPACK
from gateway.service.receipts import decode_receipt, encode_receipt
from remote_log.fencing.claims import ClaimContent, read_claim
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import PrepareReply, decode_reply
from storage.disk.data_dir import IDENTITY_NAME, open_data_dir
from storage.disk.sealed_json import seal, unseal
from storage.engine import EpochEntry, RequestOutcome, StoredRow, Table
from storage.engines.rocks import layout
from storage.engines.rocks.opening import Notes
from storage.log.record import (
    EpochStart,
    Record,
    RequestMark,
    SchemaChange,
    decode_epoch_start,
    decode_records,
    decode_request_mark,
    decode_schema_change,
    encode_records,
)
from storage.rows.codec import RowCodec, merge_values
from storage.rows.predicates import compile_predicates
from storage.rows.schema import decode_schema, encode_schema, parse_table
from twinlog import errors
from twinlog.calls import MSGPACK as WIRE_MSGPACK
from twinlog.calls import get as get_call
from twinlog.flow import Reply
from twinlog.problem_documents import error_from_problem

SCHEMA = parse_table({
    "name": "t", "columns": [
        {"name": "k", "type": "string"}, {"name": "n", "type": "int64"}, {"name": "d", "type": "decimal"},
        {"name": "at", "type": "timestamp"}, {"name": "raw", "type": "bytes"}, {"name": "j", "type": "json"},
    ], "primary_key": ["k"],
}, 7)
CODEC = RowCodec(SCHEMA)
KEY, VALUE = CODEC.encode_json_row({
    "k": "a", "n": 5, "d": "1.5", "at": "2013-01-01T00:00:00Z", "raw": "AAE=", "j": {"deep": [1, {"x": "ä"}]},
})
CLAIM = ClaimContent(site="a", plan="p-1", kind="failover", reason="gone", wall_ms=5, follows_epoch=3)
PREDICATE = compile_predicates(CODEC, [{"column": "n", "op": ">", "value": 3}])


class OneFile:
    """A DFS that holds one claim."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, path: str) -> bytes:
        return self._data


def claim_of(data: bytes) -> Any:
    return asyncio.run(read_claim(OneFile(data), RemoteLayout("p"), 4))  # type: ignore[arg-type]


class Format(NamedTuple):
    decode: Callable[[bytes], Any]
    sound: bytes
    error: type[errors.TwinlogError]


def native_row(data: bytes) -> Any:
    return get_call("t", "k", None, None).parse(Reply(200, {"content-type": WIRE_MSGPACK}, data))


pack, to_json = msgspec.msgpack.encode, msgspec.json.encode
FORMATS = {
    "a claim": Format(claim_of, to_json(CLAIM), errors.DamagedLog),
    "a sealed note": Format(lambda data: unseal(data, dict, "f", "delete it"), seal({"x": [1, "ä"]}), errors.DamagedLog),
    "the records of a frame": Format(
        decode_records, encode_records([Record(1, 7, KEY, VALUE), Record(4, 7)]), errors.LogError
    ),
    "the start of an epoch": Format(decode_epoch_start, pack(EpochStart(3, "a", "takeover", "p")), errors.LogError),
    "a change of a table": Format(
        decode_schema_change, pack(SchemaChange("put", 7, encode_schema(SCHEMA), 0)), errors.LogError
    ),
    "the mark of a request": Format(decode_request_mark, pack(RequestMark("key", b"digest", 2)), errors.LogError),
    "a schema": Format(decode_schema, encode_schema(SCHEMA), errors.LogError),
    "a stored row": Format(lambda data: CODEC.decode_row(KEY, data), VALUE, errors.TwinlogError),
    "a stored row for a program": Format(lambda data: CODEC.decode_row(KEY, data, native=True), VALUE, errors.TwinlogError),
    "a stored key": Format(CODEC.keys.decode, KEY, errors.TwinlogError),
    "a row under a predicate": Format(lambda data: PREDICATE(StoredRow(KEY, data, 1)), VALUE, errors.TwinlogError),
    "a merge": Format(lambda data: merge_values(VALUE, data), pack({2: 3}), errors.LogError),
    "a table in RocksDB": Format(layout.decode_table, pack(Table(b"schema", 5)), errors.EngineFailed),
    "an epoch in RocksDB": Format(layout.decode_epoch, pack(EpochEntry(1, 2, 1, "a", "restart")), errors.EngineFailed),
    "an outcome in RocksDB": Format(
        layout.decode_outcome, pack(RequestOutcome(b"d", 1, 2, 3, 1, was_async=False)), errors.EngineFailed
    ),
    "a reply of the other site": Format(
        lambda data: decode_reply(PrepareReply, "prepare", data), pack({"refused": "why"}), errors.PeerError
    ),
    "a JSON body": Format(lambda data: decoded_object(data, JSON), to_json({"a": [1, "ä"]}), errors.InvalidInput),
    "a msgpack body": Format(lambda data: decoded_object(data, MSGPACK), pack({"a": [1, "ä", b"x"]}), errors.InvalidInput),
    "a receipt": Format(
        lambda data: decode_receipt(data.decode("latin-1")), encode_receipt(0, 1, 2, "sync").encode(), errors.InvalidInput
    ),
    "a row from a site": Format(native_row, pack({"row": {"k": "a"}, "version": 5}), errors.PeerError),
}
DEEP = (b"[" * 100_000, b"\x91" * 100_000, b'{"a":' * 100_000, b"\x81\xa1a" * 100_000, b"\x81\x01" * 100_000)
HUGE = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"9" * 10_000, b"\x81\x81\x01\x02\x03")


def mutated(sound: bytes) -> st.SearchStrategy[bytes]:
    """`sound` with some bytes changed, cut off, or doubled."""
    def change(flips: list[tuple[int, int]], cut: int) -> bytes:
        data = bytearray(sound)
        for place, byte in flips:
            data[place % len(data)] = byte
        return bytes(data[: len(data) - cut % len(data)] if cut % 3 == 0 else data)

    return st.builds(change, st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 255)), max_size=6), st.integers(0, 99))


def only_its_own(one: Format, data: bytes) -> None:
    with contextlib.suppress(one.error):
        one.decode(data)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_decoder_raises_its_own_error_only(name: str, data: st.DataObject) -> None:
    one = FORMATS[name]
    only_its_own(one, data.draw(st.one_of(mutated(one.sound), st.binary(max_size=60))))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_deep_or_huge_or_no_text_raises_it_too(name: str) -> None:
    one = FORMATS[name]
    if one.error is not errors.PeerError:
        one.decode(one.sound)
    for data in (*DEEP, *HUGE, b"", b'"\xff"', b'{"\xff": 1}', b"\xa1\xff"):
        only_its_own(one, data)
    for place in range(len(one.sound)):
        for byte in (0x00, 0xFF, 0xC1, one.sound[place] ^ 0x80):
            only_its_own(one, one.sound[:place] + bytes((byte,)) + one.sound[place + 1 :])


@pytest.mark.parametrize("data", [*DEEP, b'{"pair":"\xff"}', b"\xff\xff", b""])
def test_files_of_a_site_that_do_not_decode_are_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / IDENTITY_NAME).write_bytes(data)
    with pytest.raises(errors.DataDirectoryError, match=IDENTITY_NAME):
        open_data_dir(tmp_path, "p", "a")
    (tmp_path / "notes").write_bytes(data)
    with pytest.raises(errors.DataDirectoryError, match="notes"):
        Notes(tmp_path / "notes")


@pytest.mark.parametrize("data", [*DEEP, b'{"detail":"\xff"}', b"<html>"])
def test_an_answer_that_is_no_problem_is_one_of_the_tree(data: bytes) -> None:
    assert isinstance(error_from_problem(503, data), errors.PeerError)


def test_a_body_of_another_shape_and_one_that_is_none_are_told_apart() -> None:
    with pytest.raises(errors.InvalidInput, match="form"):
        decoded_body(decode_json_object, b"[1]")
    for decode, data in ((decode_json_object, DEEP[2]), (decode_msgpack_object, DEEP[3]), (decode_json_object, b'{"\xff":1}')):
        with pytest.raises(errors.MalformedBody, match="cannot be parsed"):
            decoded_body(decode, data)
