"""Many rows over HTTP: a batch, and a check-and-mutate. The body comes in one of four content types.

What always holds: the whole body is checked before anything is written; a fault names the mutation by its place, counted from
0; a key that is inserted occurs once in its batch; large bodies are converted in a worker thread, off the event loop, one at a
time, and row by row: what a row becomes is bounded by its length, and all records together by the bound of a body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Literal

import msgspec

from gateway.api.api_context import ApiContext
from gateway.api.bodies import decode_json_object, decode_msgpack_object, decoded, encoded, shown_version
from gateway.api.documents import BatchAnswer
from gateway.api.entity_tags import etag
from gateway.api.problems import Answer
from gateway.api.request import (
    ARROW,
    JSON,
    MSGPACK,
    NDJSON,
    VERSION_DIGITS_MAX,
    VERSION_MAX,
    Head,
    body_too_large,
    canonical_document,
    expect_type,
    wanted_type,
)
from gateway.service.http_settings import HttpSettings
from gateway.service.port import Condition, Mutation, WriteResult
from storage.log.record import Record
from storage.rows.arrow import arrow_records
from storage.rows.codec import RowCodec
from twinlog.decoding import or_none
from twinlog.errors import InvalidInput, MalformedBody, NotFound, TooLarge

BATCH_TYPES = (JSON, MSGPACK, NDJSON, ARROW)
ANSWER_TYPES = (JSON, MSGPACK)
_NONE = msgspec.Raw()
_NULLS = (b"", b"null", b"\xc0")  # a member that is left out, and null in JSON and msgpack
_NULL_BYTES_MAX = max(map(len, _NULLS))


class _Sent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A mutation (MutationBody) whose row is not decoded yet: the rows of a batch never are all at once, since what a body
    becomes may be twenty times its length."""

    op: Literal["upsert", "insert", "update", "delete"]
    row: msgspec.Raw = _NONE
    key: msgspec.Raw = _NONE


class _SentBatch(msgspec.Struct, forbid_unknown_fields=True):
    mutations: list[_Sent]


class _SentCheck(msgspec.Struct, forbid_unknown_fields=True):
    conditions: msgspec.Raw
    mutations: list[_Sent]


_batch_json = msgspec.json.Decoder(_SentBatch).decode
_batch_msgpack = msgspec.msgpack.Decoder(_SentBatch).decode
_lines = msgspec.json.Decoder(_Sent).decode_lines
_line = msgspec.json.Decoder(_Sent).decode
_check_json = msgspec.json.Decoder(_SentCheck).decode
_check_msgpack = msgspec.msgpack.Decoder(_SentCheck).decode
_conditions_json = msgspec.json.Decoder(list[dict[str, Any]]).decode
_conditions_msgpack = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode


def decode_batch(codec: RowCodec, content_type: str, body: bytes, limits: HttpSettings) -> list[Mutation]:
    """Returns the mutations of a JSON, NDJSON or msgpack body. Raises InvalidInput, MalformedBody, TooLarge."""
    if content_type == NDJSON:
        return _decode_lines(codec, body, limits)
    sent = decoded(_batch_msgpack if content_type == MSGPACK else _batch_json, body).mutations
    return _encode_mutations(codec, sent, limits, native=content_type == MSGPACK)


def _decode_lines(codec: RowCodec, body: bytes, limits: HttpSettings) -> list[Mutation]:
    """As above; a fault names the line of the body, counted from 1."""
    try:
        return _encode_mutations(codec, decoded(_lines, body), limits, native=False)
    except (InvalidInput, MalformedBody) as error:
        wanted = error.fields.get("mutation")
        full = ((number, line) for number, line in enumerate(BytesIO(body), 1) if line.strip())  # never all at once
        for place, (number, line) in enumerate(full):
            if place == wanted:
                raise type(error)(f"line {number}: {error.message}", **{**error.fields, "line": number}) from None
            if wanted is None:
                try:
                    decoded(_line, line)
                except (InvalidInput, MalformedBody) as fault:
                    raise type(fault)(f"line {number}: {fault.message}", **{**fault.fields, "line": number}) from None
        raise


def canonical_batch(content_type: str, body: bytes) -> Iterator[bytes]:
    """Yields what the mutations of a batch say, one by one. A body of another form, and an Arrow stream, is its bytes."""
    if content_type == ARROW:
        yield body
        return
    if content_type == NDJSON:
        sent = or_none(_lines, body)
    else:
        batch = or_none(_batch_msgpack if content_type == MSGPACK else _batch_json, body)
        sent = None if batch is None else batch.mutations
    if sent is None:
        yield body
    else:
        yield from _canonical_mutations(content_type, sent)


def canonical_check(content_type: str, body: bytes) -> Iterator[bytes]:
    """Yields what a check-and-mutate says, as above."""
    sent = or_none(_check_msgpack if content_type == MSGPACK else _check_json, body)
    if sent is None:
        yield body
    else:
        yield from canonical_document(content_type, bytes(sent.conditions))
        yield from _canonical_mutations(content_type, sent.mutations)


def _canonical_mutations(content_type: str, sent: list[_Sent]) -> Iterator[bytes]:
    """Yields op and members; one that is absent is null."""
    for mutation in sent:
        yield mutation.op.encode()
        for member in (mutation.row, mutation.key):
            yield from canonical_document(content_type, b"" if _is_absent(member) else bytes(member))


def decode_check(
    codec: RowCodec, content_type: str, body: bytes, key: bytes, limits: HttpSettings
) -> tuple[tuple[Condition, ...], list[Mutation]]:
    """Returns the conditions on the row at `key`, and the mutations of a check-and-mutate."""
    native = content_type == MSGPACK
    sent = decoded(_check_msgpack if native else _check_json, body)
    decode = _conditions_msgpack if native else _conditions_json
    conditions = decoded(decode, _short(sent.conditions, limits.row_body_bytes_max))
    return _conditions(codec, key, conditions, native), _encode_mutations(codec, sent.mutations, limits, native=native)


def _part(sent: _Sent, bytes_max: int) -> msgspec.Raw:
    """Returns the member that this op takes. HOT: a sound row costs one look at its length."""
    row = sent.row
    if _NULL_BYTES_MAX < len(memoryview(row)) <= bytes_max and sent.key is _NONE and sent.op != "delete":
        return row
    return _short(_only(sent), bytes_max)


def _short(sent: msgspec.Raw, bytes_max: int) -> msgspec.Raw:
    """Returns one part. Raises TooLarge where it is longer than a body with one row may be."""
    if len(memoryview(sent)) > bytes_max:
        raise body_too_large(bytes_max)
    return sent


def _encode_mutations(codec: RowCodec, sent: list[_Sent], limits: HttpSettings, *, native: bool) -> list[Mutation]:
    if not sent:
        raise InvalidInput("the batch holds no mutation: send at least one")
    if len(sent) > limits.batch_rows_max:
        raise TooLarge(
            f"the batch has {len(sent)} rows; the limit of this site is {limits.batch_rows_max}: send it in parts",
            rows=len(sent), batch_rows_max=limits.batch_rows_max,
        )
    decode = decode_msgpack_object if native else decode_json_object
    encode = _encoders(codec, native)
    row_bytes_max, bytes_max = limits.row_body_bytes_max, limits.body_bytes_max  # sums, which are not to be made for each row
    mutations = []
    size = 0
    for place, mutation in enumerate(sent):
        try:
            made = encode[op := mutation.op](op, decoded(decode, _part(mutation, row_bytes_max)))
        except (InvalidInput, MalformedBody, TooLarge) as error:
            raise type(error)(f"mutation {place}: {error.message}", **error.fields, mutation=place) from None
        size += len(made.key) + len(made.value)
        if size > bytes_max:
            raise TooLarge(
                f"the rows of the batch become more than {bytes_max} bytes: send it in parts",
                bytes_max=bytes_max, mutation=place,
            )
        mutations.append(made)
    _check_inserts(codec, mutations)
    return mutations


def _encoders(codec: RowCodec, native: bool) -> dict[str, Callable[[str, dict[str, Any]], Mutation]]:
    def whole(op: str, row: dict[str, Any]) -> Mutation:
        return Mutation(op, *codec.encode_json_row(row, native=native))

    def update(op: str, row: dict[str, Any]) -> Mutation:
        return Mutation(op, *codec.encode_update(row, native=native))

    def delete(op: str, key: dict[str, Any]) -> Mutation:
        return Mutation(op, codec.encode_key(key, native=native))

    return {"upsert": whole, "insert": whole, "update": update, "delete": delete}


def _is_absent(sent: msgspec.Raw) -> bool:
    return sent is _NONE or (len(memoryview(sent)) <= _NULL_BYTES_MAX and bytes(sent) in _NULLS)


def _only(sent: _Sent) -> msgspec.Raw:
    """Returns the member that this op takes; the other one must be absent."""
    wanted, unwanted = (sent.key, sent.row) if sent.op == "delete" else (sent.row, sent.key)
    if _is_absent(wanted) or not _is_absent(unwanted):
        member, other = ("key", "row") if sent.op == "delete" else ("row", "key")
        raise InvalidInput(f'{sent.op} takes "{member}", and no "{other}"')
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
            case {"version": named, **rest} if not rest and (version := _version(named)) is not None:
                conditions.append(Condition(key, version=version, problem=f"row {path} is not at version {version}"))
            case {"exists": bool(exists), **rest} if not rest:
                text = f"there is no row {path}" if exists else f"row {path} exists"
                conditions.append(Condition(key, exists=exists, problem=text))
            case {"column": _, "op": _}:
                predicates.append(item)
            case _:
                forms = '{"version": "decimal digits"}, {"exists": true or false} or {"column", "op", "value"}'
                raise InvalidInput(f"condition {place} must be {forms}", condition=place)
    if predicates:
        text = f"row {path} does not satisfy the conditions on columns"
        conditions.append(Condition(key, columns=tuple(predicates), native=native, problem=text))
    return tuple(conditions)


def _version(sent: object) -> int | None:
    """Returns the version that a condition names, as decimal text or as a number; None where it is neither, and for a number
    that no version is."""
    if isinstance(sent, str) and sent.isascii() and sent.isdigit() and len(sent) <= VERSION_DIGITS_MAX:
        sent = int(sent)
    return sent if type(sent) is int and 0 <= sent <= VERSION_MAX else None


# ---- calls
async def mutate_rows(context: ApiContext, head: Head, table: str, body: bytes) -> Answer:
    """Applies all mutations of the body, or none."""
    kind = expect_type(head, BATCH_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    mutations: list[Mutation] = []
    records: list[Record] | None = None
    try:
        codec = context.codec(table)
        if kind == ARROW:
            bounds = {"rows_max": context.http.batch_rows_max, "decoded_bytes_max": context.http.body_bytes_max}
            records = await context.convert(body, lambda: arrow_records(body, codec, **bounds))
            if not records:
                raise InvalidInput("the Arrow stream holds no row: send at least one")
        else:
            mutations = await context.convert(body, lambda: decode_batch(codec, kind, body, context.http))
    except (InvalidInput, NotFound) as error:
        return _answer(await context.repeated(head, body, error, canonical_batch), answer_type, head)
    result = await context.write(codec.schema, head, body, mutations, records=records, canonical=canonical_batch)
    return _answer(result, answer_type, head)


async def check_row(context: ApiContext, head: Head, table: str, key_path: str, body: bytes) -> Answer:
    """Applies the mutations of the body if the row at `key_path` satisfies its conditions. Raises PreconditionFailed."""
    kind = expect_type(head, ANSWER_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    try:
        codec = context.codec(table)
        key = codec.keys.key_from_path(key_path)
        conditions, mutations = await context.convert(body, lambda: decode_check(codec, kind, body, key, context.http))
    except (InvalidInput, NotFound) as error:
        return _answer(await context.repeated(head, body, error, canonical_check), answer_type, head)
    result = await context.write(codec.schema, head, body, mutations, conditions, canonical=canonical_check)
    return _answer(result, answer_type, head)


def _answer(result: WriteResult, answer_type: str, head: Head) -> Answer:
    version = shown_version(result.version, answer_type, head)
    answer = BatchAnswer(version, result.receipt, result.mode, result.count)
    return encoded(answer, answer_type, (b"etag", etag(result.version)))
