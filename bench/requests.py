"""The requests of the measurements, as bytes: what one row is, and the bodies of single and batch writes.

What always holds: the same arguments make the same bytes; a row is about 100 bytes of content in every format, so that
JSON, msgpack and Arrow carry the same thing.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

BENCH_TABLE: dict[str, Any] = {
    "columns": [{"name": "id", "type": "int64"}, {"name": "place", "type": "string"}, {"name": "note", "type": "string"}],
    "primary_key": ["id"],
}
BATCH_ROWS = 1_000
KEYS_MAX = 1 << 40
JSON, MSGPACK, ARROW = "application/json", "application/x-msgpack", "application/vnd.apache.arrow.stream"
_ARROW_SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("note", pa.string())])


def row(key: int) -> dict[str, Any]:
    """About 100 bytes: a key, a short and a longer text."""
    return {"id": key, "place": f"gate {key % 97:02d}", "note": f"{key:020d}".ljust(64, ".")}


def http(method: str, path: str, body: bytes = b"", content_type: str = JSON) -> bytes:
    """One HTTP/1.1 request on a connection that stays open."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
    if body:
        head += f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def put_row(table: str, key: int) -> bytes:
    content = row(key)
    del content["id"]
    return http("PUT", f"/v1/tables/{table}/rows/{key}", msgspec.json.encode(content))


def get_row(table: str, key: int) -> bytes:
    return http("GET", f"/v1/tables/{table}/rows/{key}")


def batch(table: str, content_type: str, keys: range) -> bytes:
    """Upserts of `keys` in one request. Raises KeyError for a content type that is not measured."""
    rows = [row(key) for key in keys]
    body = {JSON: _json_batch, MSGPACK: _msgpack_batch, ARROW: _arrow_batch}[content_type](rows)
    return http("POST", f"/v1/tables/{table}/rows:mutate", body, content_type)


def _mutations(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"mutations": [{"op": "upsert", "row": content} for content in rows]}


def _json_batch(rows: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode(_mutations(rows))


def _msgpack_batch(rows: list[dict[str, Any]]) -> bytes:
    return msgspec.msgpack.encode(_mutations(rows))


def _arrow_batch(rows: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _ARROW_SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA))
    return stream.getvalue()


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requests of a load generator. `kind`: put | get (random keys below `keys`), or batch (see `first_key`).

    A batch workload without `first_key` cycles through few prepared bodies with random keys. With it, each request carries
    the next key, or the next BATCH_ROWS keys, so that the table grows.
    """

    kind: str
    table: str
    content_type: str = JSON
    keys: int = 100_000
    first_key: int | None = None
    seed: int = 1

    @property
    def rows_per_request(self) -> int:
        return BATCH_ROWS if self.kind == "batch" else 1

    def requests(self) -> Iterator[bytes]:
        """Yields requests without end. Random ones are prepared and repeated, so that the generator itself costs little."""
        source = random.Random(self.seed)
        if self.kind == "put" and self.first_key is not None:
            return (put_row(self.table, key) for key in itertools.count(self.first_key))
        if self.kind in ("put", "get"):
            make = put_row if self.kind == "put" else get_row
            return itertools.cycle([make(self.table, source.randrange(self.keys)) for _ in range(20_000)])
        if self.kind != "batch":
            raise ValueError(f"workload {self.kind!r} is not known: put, get or batch")
        if self.first_key is None:
            starts = [source.randrange(KEYS_MAX) for _ in range(32)]
            return itertools.cycle([self._batch(start) for start in starts])
        return (self._batch(start) for start in itertools.count(self.first_key, BATCH_ROWS))

    def _batch(self, start: int) -> bytes:
        return batch(self.table, self.content_type, range(start, start + BATCH_ROWS))
