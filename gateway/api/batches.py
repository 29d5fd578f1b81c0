"""Many rows over HTTP: a batch, and a check-and-mutate. The body comes in one of four content types.

What always holds: the whole body is checked before anything is written; a fault names the mutation by its place, counted from
0; a key that is inserted occurs once in its batch; large bodies are converted in a worker thread, off the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gateway.api.api_context import ApiContext
from gateway.api.bodies import decoded, encoded
from gateway.api.documents import BatchAnswer, BatchBody, CheckBody, MutationBody
from gateway.api.problems import Answer
from gateway.api.request import ARROW, JSON, MSGPACK, NDJSON, Head, etag, expect_type, wanted_type
from gateway.service.port import Condition, Mutation, WriteResult
from storage.log.record import Record
from storage.rows.arrow import arrow_records
from storage.rows.codec import RowCodec
from twinlog.errors import InvalidInput, MalformedBody, NotFound, TooLarge

T = TypeVar("T")
BATCH_TYPES = (JSON, MSGPACK, NDJSON, ARROW)
ANSWER_TYPES = (JSON, MSGPACK)
OFF_LOOP_BYTES = 32 << 10  # about 500 small rows; such a conversion takes some milliseconds
_batch_json = msgspec.json.Decoder(BatchBody).decode
_batch_msgpack = msgspec.msgpack.Decoder(BatchBody).decode
_lines = msgspec.json.Decoder(MutationBody).decode_lines
_line = msgspec.json.Decoder(MutationBody).decode
_check_json = msgspec.json.Decoder(CheckBody).decode
_check_msgpack = msgspec.msgpack.Decoder(CheckBody).decode


def decode_batch(codec: RowCodec, content_type: str, body: bytes, rows_max: int) -> list[Mutation]:
    """Returns the mutations of a JSON, NDJSON or msgpack body. Raises InvalidInput, MalformedBody, TooLarge."""
    if content_type == NDJSON:
        return _decode_lines(codec, body, rows_max)
    sent = decoded(_batch_msgpack if content_type == MSGPACK else _batch_json, body).mutations
    return encode_mutations(codec, sent, rows_max, native=content_type == MSGPACK)


def _decode_lines(codec: RowCodec, body: bytes, rows_max: int) -> list[Mutation]:
    """As above; a fault names the line of the body, counted from 1."""
    try:
        return encode_mutations(codec, decoded(_lines, body), rows_max, native=False)
    except (InvalidInput, MalformedBody) as error:
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        place = error.fields.get("mutation")
        if isinstance(place, int) and place < len(lines):
            raise type(error)(f"line {lines[place][0]}: {error.message}", **{**error.fields, "line": lines[place][0]}) from None
        for number, line in lines:
            try:
                decoded(_line, line)
            except (InvalidInput, MalformedBody) as fault:
                raise type(fault)(f"line {number}: {fault.message}", **{**fault.fields, "line": number}) from None
        raise


def decode_check(
    codec: RowCodec, content_type: str, body: bytes, key: bytes, rows_max: int
) -> tuple[tuple[Condition, ...], list[Mutation]]:
    """Returns the conditions on the row at `key`, and the mutations of a check-and-mutate."""
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
    """Returns the member that this op takes; the other one must be absent."""
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
                f"mutations {seen[mutation.key]} and {place} are of the same key {path}, and one inserts it: "
                "a key that is inserted may occur once in a batch",
                key=path, mutation=place,
            )
        seen[mutation.key] = place


def _conditions(codec: RowCodec, key: bytes, sent: list[dict[str, Any]], native: bool) -> tuple[Condition, ...]:
    """Returns a condition for each one on version or existence, and one for all that are on columns."""
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
        text = f"row {path} does not satisfy the conditions on columns"
        conditions.append(Condition(key, columns=tuple(predicates), native=native, problem=text))
    return tuple(conditions)


# ---- calls
async def mutate_rows(context: ApiContext, head: Head, table: str, body: bytes) -> Answer:
    """Applies all mutations of the body, or none."""
    kind = expect_type(head, BATCH_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    rows_max = context.http.batch_rows_max
    mutations: list[Mutation] = []
    records: list[Record] | None = None
    try:
        codec = context.codec(table)
        if kind == ARROW:
            records = await asyncio.to_thread(arrow_records, body, codec, rows_max=rows_max)
            if not records:
                raise InvalidInput("the Arrow stream holds no row: send at least one")
        else:
            mutations = await _converted(body, lambda: decode_batch(codec, kind, body, rows_max))
    except (InvalidInput, NotFound) as error:
        return _answer(await context.repeated(head, body, error), answer_type)
    return _answer(await context.write(codec.schema, head, body, mutations, records=records), answer_type)


async def check_row(context: ApiContext, head: Head, table: str, key_path: str, body: bytes) -> Answer:
    """Applies the mutations of the body if the row at `key_path` satisfies its conditions. Raises PreconditionFailed."""
    kind = expect_type(head, ANSWER_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    rows_max = context.http.batch_rows_max
    try:
        codec = context.codec(table)
        key = codec.keys.key_from_path(key_path)
        conditions, mutations = await _converted(body, lambda: decode_check(codec, kind, body, key, rows_max))
    except (InvalidInput, NotFound) as error:
        return _answer(await context.repeated(head, body, error), answer_type)
    return _answer(await context.write(codec.schema, head, body, mutations, conditions), answer_type)


async def _converted(body: bytes, convert: Callable[[], T]) -> T:
    return await asyncio.to_thread(convert) if len(body) > OFF_LOOP_BYTES else convert()


def _answer(result: WriteResult, answer_type: str) -> Answer:
    answer = BatchAnswer(result.version, result.receipt, result.mode, result.count)  # type: ignore[arg-type]
    return encoded(answer, answer_type, (b"etag", etag(result.version)))
