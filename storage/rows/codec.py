"""Rows of one table: from a client's object to (key, stored value) and back. On the path of every write and read.

A stored value is a msgpack map {column id: stored value} of the columns outside the key (`merge_values` puts one over another).
What always holds: a whole row stores every column of its schema, in schema order, nulls too, so that its bytes depend on
nothing but row and schema; a column that a stored row lacks was added later and reads as its default, or null; ids that
the schema no longer has are ignored. `native` bodies came from msgpack: bytes are bytes, timestamps may be integers
of microseconds (types.py); native answers hold stored values as they are. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from storage.rows.compiled import Reader, Row, row_decoder, row_encoder, value_encoder
from storage.rows.keys import KEY_BYTES_MAX, KeyCodec
from storage.rows.schema import Column, TableSchema, schema_fingerprint
from storage.rows.types import TYPES, invalid, reader
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, LogError, TooLarge, TwinlogError, words

ROW_BYTES_MAX = 1 << 20
_DECODERS_MAX = 64

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[int, Any]).decode


def merge_values(old: bytes, changes: bytes) -> bytes:
    """The old row's stored value with the columns of `changes` put over it.

    It depends on these bytes only, so both sites merge to the same bytes: columns of the old row keep their order, new ones
    follow.
    """
    row = decoded(_unpack, old, _unmergeable)
    row.update(decoded(_unpack, changes, _unmergeable))
    return _pack(row)


def _unmergeable(what: str) -> LogError:
    return LogError(f"a stored row, or a change of one, does not decode: {what}")


class _Form:
    """The parts that depend on the form of a body, JSON or native: readers, encoders, and what fills in absent columns. An
    encoder is made when it is first needed: who only reads never waits for the compiler."""

    def __init__(self, keys: KeyCodec, key_columns: Sequence[Column], value_columns: Sequence[Column], native: bool) -> None:
        self.key_readers: dict[str, Reader] = {
            column.name: reader(column.name, column.type, nullable=False, native=native, key=True) for column in key_columns
        }
        self._value_readers = {
            column.name: reader(column.name, column.type, nullable=column.nullable, native=native)
            for column in value_columns
        }
        self._keys, self._key_columns, self._value_columns = keys, key_columns, value_columns
        self.readers: dict[str, Reader] = self.key_readers | self._value_readers
        self.changes = {column.name: (column.id, self._value_readers[column.name]) for column in value_columns}
        self.fill: Row = {
            column.name: _as_sent(column, native)
            for column in value_columns if column.nullable or column.default is not None
        }

    @cached_property
    def encode_row(self) -> Callable[[Row], tuple[bytes, bytes]]:
        return row_encoder(self._key_columns, self._keys.encoders, self._value_columns, self.readers)

    @cached_property
    def encode_values(self) -> Callable[[Row], bytes]:
        return value_encoder(self._value_columns, self._value_readers)


class RowCodec:
    """The codec of one table at one revision. Errors are InvalidInput (naming the column) and TooLarge."""

    def __init__(
        self, schema: TableSchema, *, key_bytes_max: int = KEY_BYTES_MAX, row_bytes_max: int = ROW_BYTES_MAX
    ) -> None:
        self.schema: Final = schema
        self.fingerprint: Final = schema_fingerprint(schema).encode()
        self.row_bytes_max: Final = row_bytes_max
        self.key_columns: Final = schema.key_columns
        self.value_columns: Final = schema.value_columns
        self.keys: Final = KeyCodec(schema.name, [(c.name, c.type) for c in self.key_columns], key_bytes_max)
        self._key_bytes_max = key_bytes_max
        self._json = _Form(self.keys, self.key_columns, self.value_columns, native=False)
        self._native_form: _Form | None = None
        self._decoders: dict[tuple[tuple[str, ...] | None, bool, bool], Callable[[bytes, bytes], Row]] = {}

    @property
    def _native(self) -> _Form:
        if self._native_form is None:
            self._native_form = _Form(self.keys, self.key_columns, self.value_columns, native=True)
        return self._native_form

    def encode_json_row(self, obj: Row, *, native: bool = False) -> tuple[bytes, bytes]:
        """(key, stored value) of a whole row, for upsert and insert. Absent columns get their default, or null."""
        form = self._native if native else self._json
        if type(obj) is not dict:
            raise self._not_an_object()
        row = obj if len(obj) == len(form.readers) else {**form.fill, **obj}
        if len(row) != len(form.readers):
            raise self._column_fault(obj, form, form.readers)
        try:
            key, value = form.encode_row(row)
        except (KeyError, UnicodeEncodeError):
            raise self._column_fault(row, form, form.readers) from None
        if len(key) > self._key_bytes_max:
            raise self.keys.too_large(len(key))
        if len(key) + len(value) > self.row_bytes_max:
            raise self.too_large(len(key) + len(value))
        return key, value

    def encode_row_at(self, path: str, obj: Row, *, native: bool = False) -> tuple[bytes, bytes]:
        """As `encode_json_row`, with the key from `path` (keys.py). Key columns in `obj` must say the same."""
        form = self._native if native else self._json
        key, rest = self._key_at(path, obj, form)
        row = rest if len(rest) == len(form.changes) else {**form.fill, **rest}
        if len(row) != len(form.changes):
            raise self._column_fault(rest, form, form.changes)
        try:
            value = form.encode_values(row)
        except (KeyError, UnicodeEncodeError):
            raise self._column_fault(row, form, form.changes) from None
        if len(key) + len(value) > self.row_bytes_max:
            raise self.too_large(len(key) + len(value))
        return key, value

    def encode_key(self, obj: Row, *, native: bool = False) -> bytes:
        """The key in an object that holds exactly the key columns, as in {"op": "delete", "key": {...}}."""
        form = self._native if native else self._json
        if type(obj) is not dict:
            raise self._not_an_object()
        if obj.keys() != form.key_readers.keys():
            raise self._column_fault(obj, form, form.key_readers)
        return self.keys.encode([read(obj[name]) for name, read in form.key_readers.items()])

    def encode_changes(self, obj: Row, *, native: bool = False) -> bytes:
        """The stored changes of an update: the columns in `obj`, none of the key, at least one."""
        form = self._native if native else self._json
        if type(obj) is not dict:
            raise self._not_an_object()
        if not obj:
            raise InvalidInput(f"the update of a row of table {self.schema.name!r} names no column", table=self.schema.name)
        changes = {}
        for name, sent in obj.items():
            known = form.changes.get(name)
            if known is None:
                if name in form.key_readers:
                    raise invalid(name, "is part of the primary key and cannot be changed")
                raise self._unknown(name)
            changes[known[0]] = known[1](sent)
        value = _pack(changes)
        if len(value) > self.row_bytes_max:
            raise self.too_large(len(value))
        return value

    def encode_changes_at(self, path: str, obj: Row, *, native: bool = False) -> tuple[bytes, bytes]:
        """(key, stored changes) with the key from `path`. Key columns in `obj` must say the same."""
        key, rest = self._key_at(path, obj, self._native if native else self._json)
        return key, self.encode_changes(rest, native=native)

    def encode_update(self, obj: Row, *, native: bool = False) -> tuple[bytes, bytes]:
        """(key, stored changes) of an object that holds the key columns and the columns to change."""
        form = self._native if native else self._json
        if type(obj) is not dict:
            raise self._not_an_object()
        key = self.encode_key({name: obj[name] for name in form.key_readers if name in obj}, native=native)
        return key, self.encode_changes({n: v for n, v in obj.items() if n not in form.key_readers}, native=native)

    def decode_row(
        self, key: bytes, value: bytes, columns: Sequence[str] | None = None, *, native: bool = False
    ) -> Row:
        """The row as JSON values (`native`: stored values), in schema column order; `columns`: only these."""
        return self.decoder(columns, native=native)(key, value)

    def decoder(
        self, columns: Sequence[str] | None = None, *, native: bool = False, int64_text: bool = False
    ) -> Callable[[bytes, bytes], Row]:
        """The function behind `decode_row`, for many rows; `int64_text`: values of int64 columns are decimal text.

        Raises InvalidInput when a column is not known.
        """
        wanted = None if columns is None else tuple(columns)
        form = wanted, native, int64_text
        made = self._decoders.get(form)
        if made is None:
            for name in wanted or ():
                if name not in self._json.readers:
                    raise self._unknown(name)
            chosen = [column for column in self.schema.columns if wanted is None or column.name in wanted]
            made = row_decoder(
                chosen, self.keys.names, self.keys.decode, native=native, int64_text=int64_text,
                damaged=partial(_damaged, self.schema.name),  # not one of this codec, which then held itself
            )
            if len(self._decoders) >= _DECODERS_MAX:
                self._decoders.clear()
            self._decoders[form] = made
        return made

    def too_large(self, length: int) -> TooLarge:
        return TooLarge(
            f"a row of table {self.schema.name!r} takes {length} bytes; the limit is {self.row_bytes_max}",
            table=self.schema.name, row_bytes=length, row_bytes_max=self.row_bytes_max,
        )

    def _key_at(self, path: str, obj: Row, form: _Form) -> tuple[bytes, Row]:
        """The key in `path`, and `obj` without key columns."""
        if type(obj) is not dict:
            raise self._not_an_object()
        key = self.keys.key_from_path(path)
        if form.key_readers.keys().isdisjoint(obj):
            return key, obj
        rest = dict(obj)
        for name, in_path in zip(form.key_readers, self.keys.decode(key), strict=True):
            if name in rest and form.key_readers[name](rest.pop(name)) != in_path:
                raise invalid(name, "differs from the key in the path")
        return key, rest

    def _not_an_object(self) -> InvalidInput:
        return InvalidInput(f"a row of table {self.schema.name!r} must be an object", table=self.schema.name)

    def _unknown(self, name: object) -> InvalidInput:
        names = ", ".join(column.name for column in self.schema.columns[:20])
        return invalid(str(name)[:128], f"is not a column of table {self.schema.name!r}; columns are {names}")

    def _column_fault(self, row: Row, form: _Form, wanted: dict[str, Any]) -> InvalidInput:
        """Returns the reason why `row` lacks the `wanted` columns: an unknown, missing or ill-formed one."""
        for name in row:
            if name not in form.readers:
                return self._unknown(name)
            if name not in wanted:
                return invalid(name, f"is not part of the primary key of table {self.schema.name!r}")
        for name in wanted:
            if name not in row and name not in form.fill:
                return invalid(name, f"is missing, and table {self.schema.name!r} has no default for it")
        for name in wanted:
            if name in row:
                form.readers[name](row[name])
        raise AssertionError(f"no fault found in a row of table {self.schema.name!r}")


class RowCodecs:
    """The codecs in use, one for each table, made anew when its schema changes. Limits are the settings."""

    def __init__(self, *, key_bytes_max: int = KEY_BYTES_MAX, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._limits = {"key_bytes_max": key_bytes_max, "row_bytes_max": row_bytes_max}
        self._codecs: dict[int, RowCodec] = {}

    def get(self, schema: TableSchema) -> RowCodec:
        """The codec of exactly `schema`."""
        codec = self._codecs.get(schema.id)
        if codec is None or (codec.schema is not schema and codec.schema != schema):
            codec = self._codecs[schema.id] = RowCodec(schema, **self._limits)
        return codec


def _damaged(table: str, key: bytes, error: Exception) -> TwinlogError:
    return TwinlogError(f"a stored row of table {table!r} does not decode: {words(error)}", table=table, key=key.hex())


def _as_sent(column: Column, native: bool) -> Any:
    """The default of `column` in the form of a body."""
    to_json = None if native else TYPES[column.type].to_json
    return column.default if to_json is None or column.default is None else to_json(column.default)
