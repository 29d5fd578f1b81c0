"""The calls of a client: each function builds one logical request and says how its reply reads.

What always holds: every write carries an idempotency key, made once for the logical request; nothing here performs I/O.
The blocking and the asynchronous client share all of it. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, PeerError, words
from twinlog.flow import Call
from twinlog.key_text import part_to_path
from twinlog.rows import Columns, columns_of
from twinlog.wire.exchange import Reply

if TYPE_CHECKING:  # half a second to import, and most callers never need it
    import pyarrow as pa  # type: ignore[import-untyped]

JSON = "application/json"
MSGPACK = "application/x-msgpack"
ARROW = "application/vnd.apache.arrow.stream"
SCHEMA_HEADER = "twinlog-schema"
Where = tuple[str, str, Any]  # (column, op, value); ops: = != < <= > >= in prefix, is_null and not_null (value None)
_T = TypeVar("_T")


class Ack(msgspec.Struct, frozen=True):
    """An acknowledged write. `version` of its last row; `receipt` to ask about it later; `mode` is sync or async."""

    version: int
    receipt: str
    mode: str
    count: int = 1


class Row(msgspec.Struct, frozen=True):
    """A row with all its columns (those asked for), keys included."""

    row: dict[str, Any]
    version: int


class Page(msgspec.Struct, frozen=True):
    """Part of a scan: rows, the version of each, and the token of the next page, if there may be one."""

    rows: list[dict[str, Any]]
    versions: list[int]
    next_page_token: str | None = None


class ReceiptOutcome(msgspec.Struct, frozen=True):
    """The fate of an acknowledged write. `outcome`: survived, lost or unknown."""

    outcome: str
    receipt: str = ""
    log: int | None = None
    epoch: int | None = None
    seq: int | None = None
    mode: str | None = None


class KnownColumns(msgspec.Struct, frozen=True):
    """A table's columns, and the name of the schema that has them: rows of that schema, and no others, read by them."""

    schema: str
    types: Columns


class _Tables(msgspec.Struct, frozen=True):
    tables: list[dict[str, Any]]
    dropped: list[dict[str, Any]] = []


class _Barriers(msgspec.Struct, frozen=True):
    barriers: list[dict[str, Any]]


class TypedCall(msgspec.Struct, Generic[_T], frozen=True):
    """A logical request, and how to read its reply."""

    call: Call
    parse: Callable[[Reply], _T]


def key_path(key: Any) -> str:
    """A primary key as a path segment (key_text.py): parts joined by commas. A composite key is a tuple or a list."""
    parts = key if isinstance(key, tuple | list) else (key,)
    return ",".join(part_to_path(_key_text(part)) for part in parts)


def _key_text(part: Any) -> str:
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, datetime):
        return _timestamp_text(part)
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    if isinstance(part, float):
        return str(json_ready(part))
    if isinstance(part, str | int | Decimal):
        return str(part)
    raise InvalidInput(f"{part!r} cannot be part of a key: use a text, number, boolean, time or bytes")


def _timestamp_text(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment!r} has no time zone: use an aware datetime, such as one in UTC")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def create_table(body: Mapping[str, Any], key: str) -> TypedCall[dict[str, Any]]:
    return TypedCall(_write("POST", "/v1/tables", body, key), _document)


def alter_table(table: str, body: Mapping[str, Any], key: str) -> TypedCall[dict[str, Any]]:
    return TypedCall(_write("PATCH", _table(table), body, key), _document)


def drop_table(table: str, confirm: str | None, key: str) -> TypedCall[None]:
    return TypedCall(Call("DELETE", _table(table) + _query(confirm=confirm), {"Accept": JSON}, key=key), lambda _: None)


def restore_table(table: str, key: str) -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("POST", _table(table) + ":restore", {"Accept": JSON}, key=key), _document)


def get_table(table: str) -> TypedCall[dict[str, Any]]:
    return TypedCall(_read(_table(table)), _document)


def table_figures(table: str) -> TypedCall[dict[str, Any]]:
    return TypedCall(_read(_table(table) + "/figures"), _document)


def table_columns(table: str) -> TypedCall[KnownColumns]:
    return TypedCall(_read(_table(table)), lambda reply: KnownColumns(schema_of(reply), columns_of(_document(reply))))


def schema_of(reply: Reply) -> str:
    """The name of the schema that an answer was made with. Raises PeerError."""
    schema = reply.headers.get(SCHEMA_HEADER)
    if schema is None:
        raise PeerError(f"the answer has no header {SCHEMA_HEADER}: is it a twinlog gateway, and do proxies keep it?")
    return schema


def list_tables() -> TypedCall[list[dict[str, Any]]]:
    return TypedCall(_read("/v1/tables"), lambda reply: _tables(reply).tables)


def list_dropped_tables() -> TypedCall[list[dict[str, Any]]]:
    return TypedCall(_read("/v1/tables?dropped=true"), lambda reply: _tables(reply).dropped)


def put(table: str, key: Any, row: Mapping[str, Any], request_key: str, conditions: Mapping[str, str]) -> TypedCall[Ack]:
    return TypedCall(_row_write("PUT", _row(table, key), row, request_key, conditions), _ack)


def update(table: str, key: Any, row: Mapping[str, Any], request_key: str, conditions: Mapping[str, str]) -> TypedCall[Ack]:
    return TypedCall(_row_write("PATCH", _row(table, key), row, request_key, conditions), _ack)


def delete(table: str, key: Any, request_key: str, conditions: Mapping[str, str]) -> TypedCall[Ack]:
    return TypedCall(Call("DELETE", _row(table, key), {"Accept": JSON, **conditions}, key=request_key), _ack)


def preconditions(if_version: int | None, if_absent: bool) -> dict[str, str]:
    """The headers of a conditional write: only over `if_version`, or only where there is no row."""
    headers = {}
    if if_version is not None:
        headers["If-Match"] = f'"{if_version}"'
    if if_absent:
        headers["If-None-Match"] = "*"
    return headers


def mutate(table: str, mutations: Sequence[Mapping[str, Any]], request_key: str) -> TypedCall[Ack]:
    """All or nothing. A mutation is {"op": "upsert"|"insert"|"update", "row": {...}} or {"op": "delete", "key": {...}}."""
    path = f"{_table(table)}/rows:mutate"
    return TypedCall(_row_write("POST", path, {"mutations": mutations}, request_key), _ack)


def upsert_arrow(table: str, batches: pa.RecordBatch | pa.Table, request_key: str) -> TypedCall[Ack]:
    """Every row of `batches`, all or nothing, as one Arrow stream."""
    headers = {"Content-Type": ARROW, "Accept": JSON}
    return TypedCall(Call("POST", f"{_table(table)}/rows:mutate", headers, arrow_stream(batches), request_key), _ack)


def check(table: str, key: Any, body: Mapping[str, Any], request_key: str) -> TypedCall[Ack]:
    return TypedCall(_row_write("POST", _row(table, key) + ":check", body, request_key), _ack)


def get(table: str, key: Any, columns: Sequence[str] | None, as_of: int | str | None) -> TypedCall[Row]:
    return TypedCall(_read(_row(table, key) + _query(columns=_joined(columns), as_of=as_of), MSGPACK), _native_row)


def scan(
    table: str, *, start: Any, end: Any, where: Sequence[Where], columns: Sequence[str] | None, limit: int,
    as_of: int | str | None, reverse: bool, snapshot: bool, page_token: str | None,
) -> TypedCall[Page]:
    query = _query(
        start=None if start is None else key_path(start), end=None if end is None else key_path(end), where=_where(where),
        columns=_joined(columns), limit=limit, as_of=as_of, reverse="true" if reverse else None,
        snapshot="true" if snapshot else None, page_token=page_token,
    )
    return TypedCall(_read(f"{_table(table)}/rows{query}", MSGPACK), _native_page)


def end_scan(table: str, page_token: str) -> TypedCall[None]:
    return TypedCall(Call("DELETE", f"{_table(table)}/scans/{quote(page_token, safe='')}", {"Accept": JSON}), lambda _: None)


def receipt(text: str) -> TypedCall[ReceiptOutcome]:
    return TypedCall(_read(f"/v1/receipts/{quote(text, safe='')}"), _receipt)


def cluster() -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("GET", "/v1/cluster", {"Accept": JSON}, anywhere=True), _document)


def take_barrier(name: str, key: str) -> TypedCall[dict[str, Any]]:
    """The name stands for the request: sent again it is answered with the same barrier."""
    return TypedCall(_write("POST", "/v1/barriers", {"name": name}, key), _document)


def barriers(site: str | None) -> TypedCall[list[dict[str, Any]]]:
    return TypedCall(Call("GET", "/v1/barriers", {"Accept": JSON}, site=site), lambda reply: _barriers(reply).barriers)


def barrier(name: str, site: str | None) -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("GET", _barrier(name), {"Accept": JSON}, site=site), _document)


def release_barrier(name: str, site: str | None) -> TypedCall[None]:
    return TypedCall(Call("DELETE", _barrier(name), {"Accept": JSON}, site=site), lambda _: None)


def note_audit(audit: Mapping[str, Any], site: str | None) -> TypedCall[dict[str, Any]]:
    """A second report of the same audit changes nothing."""
    return TypedCall(msgspec.structs.replace(_write("POST", "/v1/audits", audit, ""), key=None, site=site), _document)


def last_audits(site: str | None) -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("GET", "/v1/audits/last", {"Accept": JSON}, site=site), _document)


def audits(site: str | None) -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("GET", "/v1/audits", {"Accept": JSON}, site=site), _document)


def audit(audit: str, site: str | None) -> TypedCall[dict[str, Any]]:
    return TypedCall(Call("GET", f"/v1/audits/{quote(audit, safe='')}", {"Accept": JSON}, site=site), _document)


def _barrier(name: str) -> str:
    return f"/v1/barriers/{quote(name, safe='')}"


def arrow_stream(batches: pa.RecordBatch | pa.Table) -> bytes:
    """`batches` in the format of one Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches.schema) as writer:
        writer.write(batches)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@lru_cache(maxsize=256)  # a program asks the same few tables
def _table(table: str) -> str:
    return f"/v1/tables/{quote(table, safe='')}"


def _row(table: str, key: Any) -> str:
    return f"{_table(table)}/rows/{key_path(key)}"


def _joined(columns: Iterable[str] | None) -> str | None:
    return None if columns is None else ",".join(columns)


def _where(predicates: Sequence[Where]) -> str | None:
    documents = [
        {"column": column, "op": op} if op in ("is_null", "not_null") else {"column": column, "op": op, "value": value}
        for column, op, value in predicates
    ]
    return msgspec.json.encode(json_ready(documents), enc_hook=_plain).decode() if documents else None


def _query(**parameters: Any) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    text = urlencode(given, doseq=True) if given else ""
    return f"?{text}" if text else ""


def _read(path: str, accept: str = JSON) -> Call:
    return Call("GET", path, {"Accept": accept})


def _write(method: str, path: str, body: Any, key: str) -> Call:
    return _encoded(method, path, key, JSON, lambda: msgspec.json.encode(json_ready(body), enc_hook=_plain))


def _row_write(method: str, path: str, body: Any, key: str, headers: Mapping[str, str] | None = None) -> Call:
    """Values in msgpack arrive as they are: bytes as bytes, NaN as NaN."""
    return _encoded(method, path, key, MSGPACK, lambda: msgspec.msgpack.encode(body, enc_hook=_plain), headers)


def _encoded(
    method: str, path: str, key: str, content_type: str, encode: Callable[[], bytes], headers: Mapping[str, str] | None = None
) -> Call:
    try:
        content = encode()
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"the body cannot be encoded as {content_type}: {words(error)}") from error
    return Call(method, path, {"Content-Type": content_type, "Accept": JSON, **(headers or {})}, content, key)


def json_ready(value: Any) -> Any:
    """`value` with the floats that JSON lacks as the words that a site reads; msgspec would make them null."""
    if isinstance(value, Mapping):
        return {name: json_ready(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    """Converts values that msgspec does not know: those of NumPy and pandas, and scalars of Arrow."""
    for name in ("as_py", "item"):
        method = getattr(value, name, None)
        if method is not None:
            return method()
    raise NotImplementedError(f"{type(value).__name__} is no column value")


def _reads_as(
    kind: type[_T], decoder: Callable[..., Any] = msgspec.json.Decoder, *, strict: bool = True
) -> Callable[[Reply], _T]:
    read: Callable[[bytes], _T] = decoder(kind, strict=strict).decode

    def unreadable(what: str) -> PeerError:
        return PeerError(f"the site's answer does not read as {kind.__name__}: {what}; is it a twinlog gateway?")

    return lambda reply: decoded(read, reply.content, unreadable)


_document = _reads_as(dict[str, Any])
_tables = _reads_as(_Tables)
_barriers = _reads_as(_Barriers)
_ack = _reads_as(Ack, strict=False)  # versions are decimal text in JSON
_receipt = _reads_as(ReceiptOutcome)
_native_row = _reads_as(Row, msgspec.msgpack.Decoder)
_native_page = _reads_as(Page, msgspec.msgpack.Decoder)
