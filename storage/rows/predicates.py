"""Column predicates: the `where` of a scan and the conditions of check-and-mutate, compiled against a schema.

The JSON form is a list whose every member must hold: [{"column": "carrier", "op": "=", "value": "UA"}, ...].

| op | value | columns |
|---|---|---|
| = != | one value | all but json |
| < <= > >= | one value | all but json |
| in | a list of values | all but json |
| prefix | one value | string, bytes |
| is_null not_null | none | all |

What always holds: a comparison with a null column is false, `!=` too, as in SQL; a row that is not there satisfies
nothing; values compare as their types do (decimals by number, strings by code point), so that a predicate agrees with the
order of keys; the key is decoded only when a predicate names a key column, the value only when one names another; a stored
value that cannot be compared, because its bytes are damaged, is an error of the tree.
Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.schema import Column
from storage.rows.types import reader
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, TooLarge, TwinlogError

PREDICATES_MAX = 100
IN_VALUES_MAX = 1000

Predicate = Callable[[StoredRow | None], bool]
_Test = Callable[[Any], bool]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
OPS = (*_COMPARISONS, "in", "is_null", "not_null", "prefix")

_unpack = msgspec.msgpack.Decoder(dict[int, Any]).decode


def compile_predicates(codec: RowCodec, where: object, *, native: bool = False) -> Predicate:
    """Returns a function that decides whether a stored row of the codec's table satisfies all of `where`.

    `native`: the values came from msgpack (types.py). Raises InvalidInput that names column and op, TooLarge.
    """
    if not isinstance(where, list):
        raise InvalidInput('predicates must be a list of {"column", "op", "value"}')
    if len(where) > PREDICATES_MAX:
        raise TooLarge(f"{len(where)} predicates came; at most {PREDICATES_MAX} are allowed")
    columns = {column.name: column for column in codec.schema.columns}
    key_tests: list[tuple[int, _Test]] = []
    value_tests: list[tuple[int, Any, _Test]] = []
    for item in where:
        column, op = _column_and_op(item, columns, codec)
        test = _compile_test(column, op, item, native)
        if column.name in codec.keys.names:
            key_tests.append((codec.keys.names.index(column.name), test))
        else:
            value_tests.append((column.id, column.default, test))
    decode_key = codec.keys.decode

    def holds(row: StoredRow | None) -> bool:
        if row is None:
            return False
        if key_tests:
            key = decode_key(row.key)
            for index, test in key_tests:
                if not test(key[index]):
                    return False
        if value_tests:
            get = decoded(_unpack, row.value, _damaged).get
            try:
                for column_id, default, test in value_tests:
                    if not test(get(column_id, default)):
                        return False
            except (TypeError, AttributeError, ValueError, ArithmeticError) as error:
                # The operand has its column's type, so the stored value has another one.
                name = next(column.name for column in codec.schema.columns if column.id == column_id)
                raise _damaged(f"column {name!r} of table {codec.schema.name!r} holds a value of another type") from error
        return True

    return holds


def _damaged(what: str) -> TwinlogError:
    return TwinlogError(f"a stored row does not decode: {what}")


def _column_and_op(item: object, columns: dict[str, Column], codec: RowCodec) -> tuple[Column, str]:
    if not isinstance(item, dict) or not {"column", "op"} <= item.keys() <= {"column", "op", "value"}:
        raise InvalidInput('a predicate must be an object of "column", "op" and, for most ops, "value"')
    name, op = item["column"], item["op"]
    if not isinstance(name, str) or name not in columns:
        raise _bad(str(name)[:128], op, f"is not a column of table {codec.schema.name!r}")
    if not isinstance(op, str) or op not in OPS:
        raise _bad(name, op, f"has an op that is not known; known are {', '.join(OPS)}")
    return columns[name], op


def _compile_test(column: Column, op: str, item: dict[str, Any], native: bool) -> _Test:
    """A function of the column's stored value (null: None)."""
    if op in ("is_null", "not_null"):
        if item.get("value") is not None:
            raise _bad(column.name, op, "takes no value")
        return _is_null if op == "is_null" else _is_not_null
    if column.type == "json":
        raise _bad(column.name, op, "is a json column, which has only is_null and not_null")
    if "value" not in item:
        raise _bad(column.name, op, 'needs a "value"')
    sent = item["value"]
    comparable: Callable[[Any], Any] = Decimal if column.type == "decimal" else _same
    if op == "in":
        return _in_test(_in_values(column, sent, native), comparable)
    value = _read(column, op, sent, native)
    if op == "prefix":
        if column.type not in ("string", "bytes"):
            raise _bad(column.name, op, f"is of type {column.type}; prefix is for string and bytes")
        return lambda stored: stored is not None and stored.startswith(value)
    compare, operand = _COMPARISONS[op], comparable(value)
    if comparable is _same:
        return lambda stored: stored is not None and compare(stored, operand)
    return lambda stored: stored is not None and compare(comparable(stored), operand)


def _in_values(column: Column, sent: object, native: bool) -> list[Any]:
    if not isinstance(sent, list):
        raise _bad(column.name, "in", "needs a list of values")
    if len(sent) > IN_VALUES_MAX:
        raise TooLarge(
            f"column {column.name!r}, op 'in': {len(sent)} values came; at most {IN_VALUES_MAX} are allowed",
            column=column.name, op="in",
        )
    return [_read(column, "in", value, native) for value in sent]


def _in_test(values: list[Any], comparable: Callable[[Any], Any]) -> _Test:
    # A NaN is in no list, as it equals nothing; a set would find it by identity.
    members = frozenset(comparable(value) for value in values if value == value)
    return lambda stored: stored is not None and comparable(stored) in members


def _read(column: Column, op: str, sent: object, native: bool) -> Any:
    if sent is None:
        raise _bad(column.name, op, "cannot compare with null; use is_null or not_null")
    try:
        return reader(column.name, column.type, nullable=False, native=native)(sent)
    except InvalidInput as error:
        raise _bad(column.name, op, str(error.fields["problem"])) from None


def _bad(column: str, op: object, problem: str) -> InvalidInput:
    return InvalidInput(f"column {column!r}, op {str(op)[:32]!r}: {problem}", column=column, op=str(op)[:32], problem=problem)


def _same(value: Any) -> Any:
    return value


def _is_null(stored: Any) -> bool:
    return stored is None


def _is_not_null(stored: Any) -> bool:
    return stored is not None
