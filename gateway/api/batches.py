"""Batches: from a body in one of four content types to mutations, checked as a whole before anything is written. Pure.

What always holds: a fault names the mutation by its place, counted from 0; a key that is inserted occurs once in its batch;
the result is all of the body or an error. Large bodies take long: the routes call these in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.api.bodies import decoded
from gateway.api.documents import BatchBody, CheckBody, MutationBody
from gateway.api.request import JSON, MSGPACK, NDJSON
from gateway.service.port import Condition, Mutation
from storage.rows.codec import RowCodec
from storage.rows.predicates import compile_predicates
from twinlog.errors import InvalidInput, TooLarge

_batch_json = msgspec.json.Decoder(BatchBody).decode
_batch_msgpack = msgspec.msgpack.Decoder(BatchBody).decode
_lines = msgspec.json.Decoder(MutationBody).decode_lines
_check_json = msgspec.json.Decoder(CheckBody).decode
_check_msgpack = msgspec.msgpack.Decoder(CheckBody).decode


def decode_batch(codec: RowCodec, content_type: str, body: bytes, rows_max: int) -> list[Mutation]:
    """The mutations of a JSON, NDJSON or msgpack body. Raises InvalidInput, MalformedBody, TooLarge."""
    decode: Callable[[bytes], list[MutationBody]] = {
        JSON: lambda data: _batch_json(data).mutations,
        NDJSON: _lines,
        MSGPACK: lambda data: _batch_msgpack(data).mutations,
    }[content_type]
    return encode_mutations(codec, decoded(decode, body), rows_max, native=content_type == MSGPACK)


def decode_check(
    codec: RowCodec, content_type: str, body: bytes, key: bytes, rows_max: int
) -> tuple[tuple[Condition, ...], list[Mutation]]:
    """The conditions on the row at `key`, and the mutations of a check-and-mutate."""
    native = content_type == MSGPACK
    sent = decoded(_check_msgpack if native else _check_json, body)
    return _conditions(codec, key, sent.conditions, native), encode_mutations(codec, sent.mutations, rows_max, native=native)


def encode_mutations(codec: RowCodec, sent: list[MutationBody], rows_max: int, *, native: bool) -> list[Mutation]:
    if not sent:
        raise InvalidInput("the batch holds no mutation: send at least one")
    if len(sent) > rows_max:
        raise TooLarge(
            f"the batch has {len(sent)} rows; the limit of this site is {rows_max}: send it in parts",
            rows=len(sent), batch_rows_max=rows_max,
        )
    encode = _encoders(codec, native)
    mutations = []
    for place, mutation in enumerate(sent):
        try:
            mutations.append(encode[mutation.op](mutation))
        except InvalidInput as error:
            raise type(error)(f"mutation {place}: {error.message}", **error.fields, mutation=place) from None
    _check_inserts(codec, mutations)
    return mutations


def _encoders(codec: RowCodec, native: bool) -> dict[str, Callable[[MutationBody], Mutation]]:
    def whole(sent: MutationBody) -> Mutation:
        key, value = codec.encode_json_row(_only(sent, "row"), native=native)
        return Mutation(sent.op, key, value)

    def update(sent: MutationBody) -> Mutation:
        key, changes = codec.encode_update(_only(sent, "row"), native=native)
        return Mutation("update", key, changes)

    def delete(sent: MutationBody) -> Mutation:
        return Mutation("delete", codec.encode_key(_only(sent, "key"), native=native))

    return {"upsert": whole, "insert": whole, "update": update, "delete": delete}


def _only(sent: MutationBody, member: str) -> dict[str, Any]:
    """The member that this op takes; the other one must be absent."""
    given = {"row": sent.row, "key": sent.key}
    wanted = given.pop(member)
    (other,) = given.items()
    if wanted is None or other[1] is not None:
        raise InvalidInput(f'{sent.op} takes "{member}", and no "{other[0]}"')
    return wanted


def _check_inserts(codec: RowCodec, mutations: list[Mutation]) -> None:
    """Raises InvalidInput that names the key, when one that is inserted occurs again."""
    inserted = {mutation.key for mutation in mutations if mutation.op == "insert"}
    if not inserted:
        return
    seen: dict[bytes, int] = {}
    for place, mutation in enumerate(mutations):
        if mutation.key in inserted and mutation.key in seen:
            path = codec.keys.path_from_key(mutation.key)
            raise InvalidInput(
                f"mutations {seen[mutation.key]} and {place} are of the same key {path}, which one of them inserts: "
                "a key that is inserted may occur once in a batch",
                key=path, mutation=place,
            )
        seen[mutation.key] = place


def _conditions(codec: RowCodec, key: bytes, sent: list[dict[str, Any]], native: bool) -> tuple[Condition, ...]:
    """Conditions on version and existence one by one, those on columns together."""
    if not sent:
        raise InvalidInput('there is no condition: give at least one, or write with rows:mutate', member="conditions")
    path = codec.keys.path_from_key(key)
    conditions, predicates = [], []
    for place, item in enumerate(sent):
        match item:
            case {"version": int(version), **rest} if not rest and type(version) is int:
                conditions.append(Condition(key, version=version, problem=f"row {path} is not at version {version}"))
            case {"exists": bool(exists), **rest} if not rest:
                text = f"there is no row {path}" if exists else f"row {path} exists"
                conditions.append(Condition(key, exists=exists, problem=text))
            case {"column": _, "op": _}:
                predicates.append(item)
            case _:
                forms = '{"version": number}, {"exists": true or false} or {"column", "op", "value"}'
                raise InvalidInput(f"condition {place} must be {forms}", condition=place)
    if predicates:
        holds = compile_predicates(codec, predicates, native=native)
        text = f"row {path} does not satisfy the conditions on columns"
        conditions.append(Condition(key, predicate=holds, problem=text))
    return tuple(conditions)
