"""Checks rows and schemas that came as they are stored: from the other site, which is not trusted with their form.

What always holds: what passes is what this release itself would have stored. A key is the canonical key of its values; a value
is the canonical map of columns that the table has, or had, each as its type's reader leaves it; a schema passes the rules of
the door (schema.py), and each of its column ids is its own. Nothing is changed, and nothing is repaired.
Source: protocol.md section 7 (what is checked before it has an effect).
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from storage.rows.compiled import stored_check
from storage.rows.keys import PARTS
from storage.rows.schema import TableSchema, decode_schema, dropped, encode_schema, parse_table, restored, to_public
from storage.rows.types import invalid, reader
from twinlog.decoding import UNDECODABLE
from twinlog.errors import InvalidInput, LogError, words

# the most that a site's settings allow: the other site may be set otherwise than this one
KEY_BYTES_MOST: Final = 64 << 10
ROW_BYTES_MOST: Final = 16 << 20
COLUMN_ID_MAX: Final = 1 << 31
REVISION_MAX: Final = 1 << 53
_FIXED: Final = {"int32": 4, "int64": 8}  # whose every bit pattern is a value
PartCheck = Callable[[bytes, int], int]

_pack = msgspec.msgpack.Encoder().encode
_NO_COLUMNS = _pack({})


class StoredTable:
    """One table, as rows of it come in. `key`, `row` and `changes` raise InvalidInput for what this release would not store.
    The check of a form is made when the first of that form comes in."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema: Final = schema
        columns = schema.key_columns
        self._parts = [_part_check(column.name, column.type) for column in columns]
        checks = {column.id: _unchanged(column.name, column.type, column.nullable) for column in schema.value_columns}
        self._checks: Mapping[int, Callable[[Any], None]] = checks
        known, keys = frozenset(checks), frozenset(column.id for column in columns)
        self._others = partial(_never_there, known, keys, schema.next_column_id)  # none of its own: a check must not hold it

    @cached_property
    def _row(self) -> Callable[[bytes], str | None]:
        return stored_check(self.schema.value_columns, self._checks, self._others, whole=True)

    @cached_property
    def _newer(self) -> Callable[[bytes], str | None]:
        return stored_check(self.schema.value_columns, self._checks, lambda row: None, whole=False)

    @cached_property
    def _changes(self) -> Callable[[bytes], str | None]:
        return stored_check(self.schema.value_columns, self._checks, self._others, whole=False)

    def key(self, key: bytes) -> None:
        """`key` is the canonical key of values that its columns take. HOT."""
        at = 0
        try:
            for end_of in self._parts:
                at = end_of(key, at)
        except (*UNDECODABLE, LookupError, struct.error, InvalidInput) as error:
            raise self._bad(f"holds a key that does not decode: {words(error)}", key) from error
        if at != len(key) or at > KEY_BYTES_MOST:
            raise self._bad(f"holds a key of {len(key)} bytes that is none of its own", key)

    def row(self, key: bytes, value: bytes) -> None:
        """A whole row: key and stored value. HOT."""
        self.key(key)
        self._value(self._row, key, value)

    def newer_row(self, key: bytes, value: bytes) -> None:
        """A whole row of this schema or of one that came of it: columns may be there that this schema does not know yet."""
        self.key(key)
        self._value(self._newer, key, value)

    def changes(self, key: bytes, value: bytes) -> None:
        """An update: the columns that change, at least one."""
        self.key(key)
        if value == _NO_COLUMNS:
            raise self._bad("holds an update that changes nothing", key)
        self._value(self._changes, key, value)

    def _value(self, check: Callable[[bytes], str | None], key: bytes, value: bytes) -> None:
        if len(key) + len(value) > ROW_BYTES_MOST:
            raise self._bad(f"holds a row of {len(key) + len(value)} bytes; the most is {ROW_BYTES_MOST}", key)
        try:
            problem = check(value)
        except InvalidInput as error:
            raise self._bad(f"holds a value that its column does not take: {error.message}", key) from error
        except UNDECODABLE as error:
            raise self._bad(f"holds a value that does not decode: {words(error)}", key) from error
        if problem is not None:
            raise self._bad(problem, key)

    def _bad(self, problem: str, key: bytes) -> InvalidInput:
        return InvalidInput(f"table {self.schema.name!r} {problem}", table=self.schema.name, key=key[:64].hex())


def _never_there(known: frozenset[int], keys: frozenset[int], next_column_id: int, row: Mapping[int, Any]) -> str | None:
    """Columns that the schema has no more are ignored by every reader; others were never there."""
    for number in row:
        if number not in known and (not 1 <= number < next_column_id or number in keys):
            return f"holds a value of column {number}, which the table never had outside its key"
    return None


def stored_schema(data: bytes) -> TableSchema:
    """The schema in `data`, checked as one that a client sends is. Raises InvalidInput."""
    try:
        schema = decode_schema(data)
        canonical = encode_schema(schema) == data
        for column in schema.value_columns:
            if column.default is not None:
                _unchanged(column.name, column.type, nullable=False)(column.default)
        live = schema if schema.dropped_ms is None else restored(schema)  # the rules are those of the name that it had
        again = parse_table(msgspec.to_builtins(to_public(live)), schema.id)
    except (InvalidInput, LogError) as error:
        raise InvalidInput(f"a schema does not pass the checks of a new table: {error.message}") from error
    except (*UNDECODABLE, KeyError) as error:
        raise InvalidInput(f"a schema does not decode: {words(error)}") from error
    ids = [column.id for column in schema.columns]
    if schema.dropped_ms is not None and not (0 <= schema.dropped_ms < 1 << 48 and dropped(live, 0).name == schema.name):
        raise InvalidInput(f"the schema of table {schema.name!r} is not that of a table that was dropped", table=schema.name)
    if not canonical or to_public(again) != to_public(live):
        raise InvalidInput(f"the schema of table {schema.name!r} is not in its canonical form", table=schema.name)
    if len(set(ids)) < len(ids) or not 1 <= min(ids) <= max(ids) < schema.next_column_id <= COLUMN_ID_MAX:
        raise InvalidInput(f"the schema of table {schema.name!r} gives a column an id that is not its own", table=schema.name)
    if not 1 <= schema.revision <= REVISION_MAX:
        raise InvalidInput(f"the schema of table {schema.name!r} has revision {schema.revision}", table=schema.name)
    return schema


def check_follows(before: TableSchema, after: TableSchema) -> None:
    """`after` can come of `before` by changes that the door allows. Raises InvalidInput."""
    known = {column.id: column.type for column in before.columns}
    same_types = all(known.get(column.id, column.type) == column.type for column in after.columns)
    fresh = all(column.id in known or column.id >= before.next_column_id for column in after.columns)
    same_key = [column.id for column in before.key_columns] == [column.id for column in after.key_columns]
    if not (same_types and fresh and same_key and after.next_column_id >= before.next_column_id):
        raise InvalidInput(
            f"the schema of table {after.name!r} does not follow from the one before: a column's id, its type and the key stay",
            table=after.name,
        )


def _part_check(name: str, type_name: str) -> PartCheck:
    """Returns a function that finds the end of one part of a key, and raises unless the part is canonical."""
    if type_name in _FIXED:
        length = _FIXED[type_name]
        return lambda key, at: at + length
    if type_name in ("string", "bytes"):
        return partial(_end_of_text, type_name == "string")
    put, get = PARTS[type_name]
    read = reader(name, type_name, nullable=False, native=True, key=True)

    def end_of(key: bytes, at: int) -> int:
        value, end = get(key, at)
        if put(read(value)) != key[at:end]:
            raise invalid(name, "is not in its canonical form")
        return end

    return end_of


def _end_of_text(is_text: bool, key: bytes, at: int) -> int:
    """Every zero byte is either written as two or begins the end."""
    end = key.index(b"\0\1", at)
    part = key[at:end]
    if 0 in part:
        part = part.replace(b"\0\xff", b"\1")
        if 0 in part:
            raise ValueError("a zero byte stands alone")
    if is_text:
        part.decode()
    return end + 2


def _unchanged(name: str, type_name: str, nullable: bool) -> Callable[[Any], None]:
    """A check that raises InvalidInput unless a stored value is what the type's reader leaves as it is."""
    read = reader(name, type_name, nullable=nullable, native=True)

    def check(value: Any) -> None:
        if _pack(read(value)) != _pack(value):
            raise invalid(name, "is not in the form in which it is stored")

    return check
