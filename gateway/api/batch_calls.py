"""Many rows over HTTP: a batch, a check-and-mutate. Large bodies are converted in a worker thread, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gateway.api.batches import decode_batch, decode_check
from gateway.api.bodies import encoded
from gateway.api.documents import BatchAnswer
from gateway.api.door import Door
from gateway.api.problems import Answer
from gateway.api.request import ARROW, JSON, MSGPACK, NDJSON, Head, etag, expect_type, wanted_type
from gateway.service.port import Mutation, WriteResult
from storage.log.record import Record
from storage.rows.arrow import arrow_records
from twinlog.errors import InvalidInput, NotFound

T = TypeVar("T")
BATCH_TYPES = (JSON, MSGPACK, NDJSON, ARROW)
ANSWER_TYPES = (JSON, MSGPACK)
OFF_LOOP_BYTES = 32 << 10  # about 500 small rows; such a conversion takes some milliseconds


async def mutate_rows(door: Door, head: Head, table: str, body: bytes) -> Answer:
    """All mutations of the body, or none."""
    kind = expect_type(head, BATCH_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    rows_max = door.config.batch_rows_max
    mutations: list[Mutation] = []
    records: list[Record] | None = None
    try:
        codec = door.codec(table)
        if kind == ARROW:
            records = await asyncio.to_thread(arrow_records, body, codec, rows_max=rows_max)
            if not records:
                raise InvalidInput("the Arrow stream holds no row: send at least one")
        else:
            mutations = await _converted(body, lambda: decode_batch(codec, kind, body, rows_max))
    except (InvalidInput, NotFound) as error:
        return _answer(await door.repeated(head, body, error), answer_type)
    return _answer(await door.write(codec.schema, head, body, mutations, records=records), answer_type)


async def check_row(door: Door, head: Head, table: str, key_path: str, body: bytes) -> Answer:
    """The mutations of the body, if the row at `key_path` satisfies its conditions. Raises PreconditionFailed."""
    kind = expect_type(head, ANSWER_TYPES)
    answer_type = wanted_type(head, ANSWER_TYPES)
    rows_max = door.config.batch_rows_max
    try:
        codec = door.codec(table)
        key = codec.keys.key_from_path(key_path)
        conditions, mutations = await _converted(body, lambda: decode_check(codec, kind, body, key, rows_max))
    except (InvalidInput, NotFound) as error:
        return _answer(await door.repeated(head, body, error), answer_type)
    return _answer(await door.write(codec.schema, head, body, mutations, conditions), answer_type)


async def _converted(body: bytes, convert: Callable[[], T]) -> T:
    return await asyncio.to_thread(convert) if len(body) > OFF_LOOP_BYTES else convert()


def _answer(result: WriteResult, answer_type: str) -> Answer:
    answer = BatchAnswer(result.version, result.receipt, result.mode, result.count)  # type: ignore[arg-type]
    return encoded(answer, answer_type, (b"etag", etag(result.version)))
