"""The readers of rows and requests for them: bodies in each format, keys, stored rows, predicates, tokens of pages."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from chaos.fuzz.target import Target
from gateway.api.batches import canonical_batch, canonical_check, decode_batch, decode_check
from gateway.api.bodies import decoded_object
from gateway.api.request import JSON, MSGPACK, NDJSON, column_list, point_in_time
from gateway.api.scans import ScanParameters, page_token, plan_scan
from gateway.service.http_settings import HttpSettings
from gateway.service.port import Mutation
from gateway.service.receipts import decode_receipt, encode_receipt
from storage.engine import StoredRow
from storage.rows.arrow import arrow_records
from storage.rows.codec import RowCodec, merge_values
from storage.rows.predicates import compile_predicates
from storage.rows.schema import TableSchema, alter, decode_schema, encode_schema, parse_table, to_public
from storage.rows.stored import StoredTable, stored_schema
from twinlog.errors import InvalidInput, LogError, MalformedBody, TooLarge, TwinlogError
from twinlog.key_text import part_from_path, part_to_path

TABLE: dict[str, Any] = {
    "name": "flights",
    "columns": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int32"},
        {"name": "at", "type": "timestamp"},
        {"name": "delay", "type": "float64"},
        {"name": "short", "type": "float32"},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": "string", "nullable": False, "default": "none"},
        {"name": "more", "type": "json"},
        {"name": "price", "type": "decimal"},
        {"name": "late", "type": "bool"},
        {"name": "big", "type": "int64"},
    ],
    "primary_key": ["carrier", "flight"],
}
_EVERY_KEY = {
    "name": "keys",
    "primary_key": ["a", "b", "c", "d", "e", "f", "g", "h"],
    "columns": [
        {"name": name, "type": kind}
        for name, kind in zip(
            "abcdefgh", ("bool", "int32", "int64", "float64", "string", "bytes", "timestamp", "decimal"), strict=True
        )
    ],
}
SCHEMA = parse_table(TABLE, 7)
CODEC = RowCodec(SCHEMA)
_KEYS = RowCodec(parse_table(_EVERY_KEY, 8))
_STORED_KEYS = RowCodec(parse_table(_EVERY_KEY, 8), key_bytes_max=1 << 20).keys  # whatever the limit was when they came in
_LIMITS = HttpSettings()
_STORED = StoredTable(SCHEMA)
_BAD = (InvalidInput, MalformedBody, TooLarge)
_EMPTY = CODEC.encode_json_row({"carrier": "UA", "flight": 1})


def targets() -> list[Target]:
    return [*_of_bodies(), *_of_what_is_stored(), *_of_texts()]


def _of_bodies() -> list[Target]:
    bodies = ((JSON, "json"), (MSGPACK, "msgpack"), (NDJSON, ""))
    return [
        *(Target(f"batch as {kind}", _batch(kind), _read_batch(kind), _BAD, None, structure=form) for kind, form in bodies),
        *(Target(f"check as {kind}", _check(kind), _read_check(kind), _BAD, None, structure=form) for kind, form in bodies[:2]),
        Target(
            "row as JSON",
            _row_bytes(JSON),
            _read_row(JSON),
            _BAD,
            lambda read: json.dumps(CODEC.decode_row(*read)).encode(),
            structure="json",
        ),
        Target(
            "row as msgpack",
            _row_bytes(MSGPACK),
            _read_row(MSGPACK),
            _BAD,
            lambda read: msgspec.msgpack.encode(CODEC.decode_row(*read, native=True)),
            structure="msgpack",
        ),
        Target(
            "batch as Arrow", _arrow, lambda data: arrow_records(data, CODEC, rows_max=1000, decoded_bytes_max=1 << 20), _BAD
        ),
        Target(
            "table",
            lambda chance: json.dumps(_table(chance)).encode(),
            _read_table,
            _BAD,
            lambda schema: msgspec.json.encode(to_public(schema)),
            structure="json",
        ),
        Target("change of a table", _patch, lambda data: alter(SCHEMA, decoded_object(data, JSON)), _BAD, structure="json"),
    ]


def _of_what_is_stored() -> list[Target]:
    return [
        Target(
            "stored schema",
            lambda chance: encode_schema(parse_table(_table(chance), 7)),
            decode_schema,
            (LogError,),
            encode_schema,
            structure="msgpack",
        ),
        Target(
            "schema of the other site",
            lambda chance: encode_schema(parse_table(_table(chance), 7)),
            stored_schema,
            (InvalidInput,),
            encode_schema,
            structure="msgpack",
        ),
        Target(
            "stored row",
            lambda chance: CODEC.encode_json_row(drawn_row(chance))[1],
            _read_stored,
            (TwinlogError,),
            structure="msgpack",
        ),
        Target(
            "stored row of the other site",
            lambda chance: CODEC.encode_json_row(drawn_row(chance))[1],
            _read_sent,
            (InvalidInput,),
            structure="msgpack",
        ),
        Target(
            "merged row",
            lambda chance: CODEC.encode_json_row(drawn_row(chance))[1],
            lambda data: merge_values(_EMPTY[1], data),
            (LogError,),
            structure="msgpack",
        ),
        Target("stored key", _stored_key, _STORED_KEYS.decode, (TwinlogError,), _STORED_KEYS.encode),
    ]


def _of_texts() -> list[Target]:
    return [
        Target(
            "key in a path",
            _key_path,
            lambda data: _KEYS.keys.key_from_path(data.decode("latin-1")),
            (InvalidInput, TooLarge),
            lambda key: _KEYS.keys.path_from_key(key).encode("latin-1"),
        ),
        Target(
            "bound of a scan",
            _key_path,
            lambda data: _KEYS.keys.prefix_from_path(data.decode("latin-1")),
            (InvalidInput, TooLarge),
        ),
        Target(
            "part of a key",
            _part,
            lambda data: part_from_path(data.decode("latin-1")),
            (ValueError,),
            lambda text: part_to_path(text).encode("latin-1"),
        ),
        Target("where", _where, _read_where, _BAD, structure="json"),
        Target("page token", _token, _read_token, (InvalidInput,)),
        Target(
            "receipt",
            _receipt,
            lambda data: decode_receipt(data.decode("latin-1")),
            (InvalidInput,),
            lambda read: encode_receipt(read.log, read.epoch, read.seq, read.mode).encode(),
        ),
        Target(
            "as_of", _as_of, lambda data: point_in_time(data.decode("latin-1")), (InvalidInput,), lambda at: str(at).encode()
        ),
        Target("columns", lambda chance: b"carrier,flight,note", _read_columns, (InvalidInput,)),
    ]


# ---- rows
def drawn_row(chance: Random) -> dict[str, Any]:
    values: dict[str, Callable[[], Any]] = {
        "at": lambda: "2013-01-01T05:00:00.25Z",
        "delay": lambda: chance.choice((1.5, -0.0, "NaN", 1e300)),
        "short": lambda: 0.25,
        "raw": lambda: "AAE=",
        "note": lambda: chance.choice(("", "é\U0001f600", "x" * 90)),
        "more": lambda: {"a": [1, {"b": None}, 2.5]},
        "price": lambda: chance.choice(("12.50", "-0.001", "1e10")),
        "late": lambda: chance.random() < 0.5,
        "big": lambda: chance.choice((1 << 62, "-9223372036854775808", 0)),
    }
    names = chance.sample(list(values), chance.randrange(len(values) + 1))
    return {
        "carrier": chance.choice(("UA", "D\0L", "é")),
        "flight": chance.randrange(-9, 9),
        **{name: values[name]() for name in names},
    }


def _native(row: dict[str, Any]) -> dict[str, Any]:
    return CODEC.decode_row(*CODEC.encode_json_row(row), native=True)


def _row_bytes(kind: str) -> Callable[[Random], bytes]:
    if kind == JSON:
        return lambda chance: json.dumps(drawn_row(chance)).encode()
    return lambda chance: msgspec.msgpack.encode(_native(drawn_row(chance)))


def _read_row(kind: str) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Reads it as the body of a whole row, in both places where its key may stand."""
    native = kind == MSGPACK

    def read(data: bytes) -> tuple[bytes, bytes]:
        row = decoded_object(data, kind)
        found = CODEC.encode_json_row(row, native=native)
        at = CODEC.encode_row_at(CODEC.keys.path_from_key(found[0]), row, native=native)
        assert at == found, (at, found)
        return found

    return read


def drawn_mutations(chance: Random, kind: str = JSON) -> list[dict[str, Any]]:
    shaped: Callable[[dict[str, Any]], dict[str, Any]] = _native if kind == MSGPACK else dict
    made: list[dict[str, Any]] = []
    for _ in range(chance.choice((1, 2, 5))):
        row = shaped(drawn_row(chance))
        key = {name: row[name] for name in ("carrier", "flight")}
        made.append(
            chance.choice(
                (
                    {"op": "upsert", "row": row},
                    {"op": "insert", "row": row},
                    {"op": "update", "row": {**key, "late": True}},
                    {"op": "delete", "key": key},
                )
            )
        )
    return made


def _batch(kind: str) -> Callable[[Random], bytes]:
    def made(chance: Random) -> bytes:
        mutations = drawn_mutations(chance, kind)
        if kind == NDJSON:
            return b"\n".join(json.dumps(one).encode() for one in mutations)
        body = {"mutations": mutations}
        return msgspec.msgpack.encode(body) if kind == MSGPACK else json.dumps(body).encode()

    return made


def _read_batch(kind: str) -> Callable[[bytes], list[Mutation]]:
    def read(data: bytes) -> list[Mutation]:
        for part in canonical_batch(kind, data):  # digested before anything is checked
            assert isinstance(part, bytes)
        found = decode_batch(CODEC, kind, data, _LIMITS)
        for one in found:
            _check_sound(one)
        return found

    return read


def _check_sound(mutation: Mutation) -> None:
    """Each row that came in is one that the other site takes, and reads back as what would be written again."""
    if mutation.op in ("upsert", "insert"):
        _STORED.row(mutation.key, mutation.value)
        again = CODEC.encode_json_row(CODEC.decode_row(mutation.key, mutation.value))
        assert again == (mutation.key, mutation.value), (again, mutation)
    elif mutation.op == "update":
        _STORED.changes(mutation.key, mutation.value)
        merge_values(_EMPTY[1], mutation.value)
    else:
        _STORED.key(mutation.key)


def drawn_conditions(chance: Random) -> list[dict[str, Any]]:
    return [
        chance.choice(
            (
                {"column": "note", "op": "prefix", "value": "a"},
                {"column": "flight", "op": ">=", "value": 3},
                {"exists": True},
                {"version": "1700000000000"},
                {"column": "price", "op": "<", "value": "12.5"},
                {"column": "more", "op": "is_null"},
                {"column": "carrier", "op": "in", "value": ["UA", "DL"]},
                {"column": "delay", "op": "!=", "value": 1.5},
            )
        )
        for _ in range(chance.choice((1, 2, 4)))
    ]


def _check(kind: str) -> Callable[[Random], bytes]:
    def made(chance: Random) -> bytes:
        body = {"conditions": drawn_conditions(chance), "mutations": drawn_mutations(chance, kind)}
        return msgspec.msgpack.encode(body) if kind == MSGPACK else json.dumps(body).encode()

    return made


def _read_check(kind: str) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        for part in canonical_check(kind, data):
            assert isinstance(part, bytes)
        conditions, mutations = decode_check(CODEC, kind, data, _EMPTY[0], _LIMITS)
        for condition in conditions:
            holds = compile_predicates(CODEC, list(condition.columns), native=condition.native)
            holds(StoredRow(*_EMPTY, 5))
            msgspec.msgpack.encode(msgspec.structs.replace(condition, columns=()))  # of a column: as it came in JSON
        for mutation in mutations:
            _check_sound(mutation)
        return conditions, mutations

    return read


def _arrow(chance: Random) -> bytes:
    rows = [_native(drawn_row(chance)) for _ in range(chance.choice((1, 3, 9)))]
    types = {
        "carrier": pa.string(),
        "flight": pa.int32(),
        "note": pa.string(),
        "delay": pa.float64(),
        "raw": pa.binary(),
        "late": pa.bool_(),
        "big": pa.int64(),
        "more": pa.string(),
    }
    types |= chance.choice(
        ({}, {"carrier": pa.large_string()}, {"note": pa.dictionary(pa.int32(), pa.string())}, {"carrier": pa.string_view()})
    )
    names = [
        "carrier",
        "flight",
        *chance.sample([name for name in types if name not in ("carrier", "flight")], chance.randrange(6)),
    ]
    for row in rows:
        row["more"] = None if row["more"] is None else json.dumps(row["more"])
    columns = [pa.array([row[name] for row in rows], types[name]) for name in names]
    batch = pa.record_batch(columns, names=names)
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=chance.choice((None, None, "zstd", "lz4")))
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(chance.choice((1, 1, 2))):
            writer.write_batch(batch)
    return sink.getvalue()


# ---- tables
def _table(chance: Random) -> dict[str, Any]:
    table = dict(TABLE, history_s=chance.choice((0, 3600)))
    table["columns"] = [
        *TABLE["columns"][:2],
        *chance.sample(TABLE["columns"][2:], chance.randrange(len(TABLE["columns"]) - 1)),
    ]
    return table


def _read_table(data: bytes) -> TableSchema:
    schema = parse_table(decoded_object(data, JSON), 7)
    assert stored_schema(encode_schema(schema)) == schema  # the other site takes it
    return schema


def _patch(chance: Random) -> bytes:
    return json.dumps(
        chance.choice(
            (
                {"add": [{"name": "more2", "type": "int64", "default": 5}]},
                {"drop": ["note"]},
                {"rename": {"note": "remark"}},
                {"history_s": 5, "drop": ["raw", "late"], "add": [{"name": "raw", "type": "json", "default": {"a": 1}}]},
                {"replication": "sync"},
            )
        )
    ).encode()


# ---- stored
def _read_stored(data: bytes) -> Any:
    row = StoredRow(_EMPTY[0], data, 9)
    compile_predicates(CODEC, [{"column": "note", "op": "=", "value": "a"}, {"column": "delay", "op": "is_null"}])(row)
    return CODEC.decode_row(_EMPTY[0], data), CODEC.decode_row(_EMPTY[0], data, native=True)


def _read_sent(data: bytes) -> Any:
    """A row that the checks of the other site's rows let in is one that every reader takes."""
    _STORED.row(_EMPTY[0], data)
    return [msgspec.json.encode(form) for form in _read_stored(data)]


# ---- keys
def _values(chance: Random) -> list[Any]:
    return [
        chance.random() < 0.5,
        chance.randrange(-(1 << 31), 1 << 31),
        chance.randrange(-(1 << 63), 1 << 63),
        chance.choice((1.5, -1e300, 0.0, 5e-324)),
        chance.choice(("UA", "a\0b", "é,/", "")),
        chance.randbytes(chance.randrange(6)),
        chance.randrange(-(1 << 40), 1 << 50),
        chance.choice(("0", "-12.5", "0.001", "1230")),
    ]


def _stored_key(chance: Random) -> bytes:
    return _KEYS.keys.encode(_values(chance))


def _key_path(chance: Random) -> bytes:
    return _KEYS.keys.path_from_values(_values(chance)[: chance.choice((8, 8, 3))]).encode()


def _part(chance: Random) -> bytes:
    return part_to_path(chance.choice(("UA", "..", "a/../b", "", "=x", "50%", "é\U0001f600", "x:check", "a,b"))).encode()


# ---- scans
def _where(chance: Random) -> bytes:
    return json.dumps(
        [one for one in drawn_conditions(chance) if "column" in one] or [{"column": "late", "op": "not_null"}]
    ).encode()


def _read_where(data: bytes) -> bool:
    scan = plan_scan(CODEC, ScanParameters(where=[data.decode("latin-1")]), None)
    return scan.matches is None or scan.matches(StoredRow(*_EMPTY, 9))


def _token(chance: Random) -> bytes:
    return page_token(plan_scan(CODEC, ScanParameters(), None), CODEC.encode_json_row(drawn_row(chance))[0]).encode()


def _read_token(data: bytes) -> bytes | None:
    return plan_scan(CODEC, ScanParameters(page_token=data.decode("latin-1")), None).start


def _receipt(chance: Random) -> bytes:
    return encode_receipt(0, chance.randrange(9), chance.randrange(1 << 40), chance.choice(("sync", "async"))).encode()


def _as_of(chance: Random) -> bytes:
    return chance.choice(
        (b"111411200000000001", b"2013-01-01T05:00:00Z", b"2026-11-24T12:00:00.123456+01:00", b"1970-01-01T00:00:00Z")
    )


def _read_columns(data: bytes) -> Any:
    names = column_list(data.decode("latin-1"))
    return CODEC.decoder(names)(*_EMPTY)
