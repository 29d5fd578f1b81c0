"""Column types: what a client may send for each, what is stored, and what is answered.

| type | JSON | msgpack (`native`) | stored |
|---|---|---|---|
| bool | true, false | the same | bool |
| int32 | an integer in range; 1.0 and true are not | the same | int |
| int64 | the same, or its decimal text: JavaScript reads a longer number than 2^53 wrongly | the same | int |
| float32, float64 | a number, or "NaN", "Infinity", "-Infinity" | a number, NaN and infinities too | float |
| string | a string of valid Unicode | the same | str |
| bytes | standard base64 with padding | bin | bytes |
| timestamp | RFC 3339 text; no offset means UTC | the same, int microseconds, or a timestamp | int microseconds, UTC |
| decimal | a string, or an integer | the same | canonical text: no exponent, no needless zero |
| json | any JSON value, 32 levels deep at most | the same | as it is |

What always holds: two values that are equal are stored equal (1 and 1.0 in a float column, "1.50" and "1.5" in a decimal
one); nothing is rounded silently except a number that a binary float cannot hold exactly; `from_json(to_json(v)) == v`.
A float32 is stored, and answered, as the float64 that equals it. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, words

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_JSON_INT_MAX = (1 << 64) - 1
TIMESTAMP_MIN, TIMESTAMP_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999, microseconds
DECIMAL_DIGITS_MAX = 38
JSON_DEPTH_MAX = 32

_DAY_US = 86_400_000_000
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT32 = struct.Struct("<f")
_NAN = float("nan")
_FLOAT_WORDS: Final = {"NaN": _NAN, "Infinity": float("inf"), "-Infinity": float("-inf")}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")
_FINER = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")


class BadValue(ValueError):
    """A value that its column's type does not allow. The text is the problem; who catches it adds the column."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column type. The functions take a value that is not null and raise BadValue."""

    name: str
    from_json: Callable[[Any], Any]
    from_native: Callable[[Any], Any]
    from_text: Callable[[str], Any] | None  # the form in a path; None: not allowed in a key
    to_json: Callable[[Any], Any] | None = None  # None: the stored value is the JSON value
    key_value: Callable[[Any], Any] | None = None  # what a key makes of a stored value; None: the same


def invalid(column: str, problem: str) -> InvalidInput:
    """The error that names a column."""
    return InvalidInput(f"column {column!r}: {problem}", column=column, problem=problem)


def reader(
    column: str, type_name: str, *, nullable: bool, native: bool = False, key: bool = False
) -> Callable[[Any], Any]:
    """A function from a client's value to the stored one, for this column. It raises InvalidInput that names the column.

    `native`: the value came from msgpack. `key`: it goes into the primary key (no NaN, and -0.0 is 0.0).
    """
    kind = TYPES[type_name]
    parse = kind.from_native if native else kind.from_json
    key_value = kind.key_value if key else None

    def read(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise invalid(column, "must not be null")
        try:
            stored = parse(value)
            return stored if key_value is None else key_value(stored)
        except BadValue as bad:
            raise invalid(column, words(bad)) from None

    return read


def _word(value: object) -> str:
    """Names the type of `value` in the words of JSON, for a message."""
    words: dict[type, str] = {
        bool: "a boolean", int: "an integer", float: "a number with a fraction", str: "a string", list: "an array",
        dict: "an object", bytes: "bytes", datetime: "a timestamp", type(None): "null",
    }
    return words.get(type(value), type(value).__name__)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise BadValue(f"must be true or false, not {_word(value)}")
    return value


def _int(low: int, high: int, name: str) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if type(value) is not int:
            raise BadValue(f"must be an integer, not {_word(value)}")
        if not low <= value <= high:
            raise BadValue(f"is out of the range of {name}, {low} to {high}")
        return value

    return parse


_int64 = _int(INT64_MIN, INT64_MAX, "int64")
_int32 = _int(INT32_MIN, INT32_MAX, "int32")


def _int64_sent(value: Any) -> int:
    return _int64_text(value) if type(value) is str else _int64(value)


def _float64_native(value: Any) -> float:
    if type(value) is float:
        return value if value == value else _NAN
    if type(value) is not int:
        raise BadValue(f"must be a number, not {_word(value)}")
    try:
        return float(value)
    except OverflowError:
        raise BadValue("is out of the range of float64") from None


def _float64_json(value: Any) -> float:
    if type(value) is str:
        if value not in _FLOAT_WORDS:
            raise BadValue('must be a number, "NaN", "Infinity" or "-Infinity", not another string')
        return _FLOAT_WORDS[value]
    return _float64_native(value)


def _rounded32(value: float) -> float:
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        raise BadValue("is out of the range of float32") from None
    return rounded


def _float32_json(value: Any) -> float:
    return _rounded32(_float64_json(value))


def _float32_native(value: Any) -> float:
    return _rounded32(_float64_native(value))


def _float_to_json(value: float) -> float | str:
    if value - value == 0.0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _float_key(value: float) -> float:
    if value != value:
        raise BadValue("must not be NaN, for it is part of the primary key")
    return value + 0.0  # -0.0 becomes 0.0


def _string(value: Any) -> str:
    if type(value) is not str:
        raise BadValue(f"must be a string, not {_word(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue("is not valid Unicode: it holds half of a surrogate pair") from None
    return value


def _bytes_json(value: Any) -> bytes:
    if type(value) is not str:
        raise BadValue(f"must be a string of base64, not {_word(value)}")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise BadValue("is not base64 (standard alphabet, with padding)") from None


def _bytes_native(value: Any) -> bytes:
    if type(value) is not bytes:
        raise BadValue(f"must be bytes (msgpack bin), not {_word(value)}")
    return value


def _bytes_to_json(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _micros(moment: datetime) -> int:
    span = moment - (_EPOCH if moment.tzinfo is None else _EPOCH_UTC)
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def _timestamp_int(value: int) -> int:
    if not TIMESTAMP_MIN <= value <= TIMESTAMP_MAX:
        raise BadValue("is out of the range of timestamps, years 1 to 9999")
    return value


_to_moment = partial(msgspec.convert, type=datetime)


def _no_timestamp(_: str) -> BadValue:
    return BadValue("is not an RFC 3339 timestamp such as 2013-01-01T05:00:00Z")


def _timestamp_json(value: Any) -> int:
    if type(value) is not str:
        raise BadValue(f"must be an RFC 3339 string, not {_word(value)}")
    moment = decoded(_to_moment, value, _no_timestamp)
    if len(value) > 26 and _FINER.search(value):
        raise BadValue("is finer than a microsecond")
    return _timestamp_int(_micros(moment))


def _timestamp_native(value: Any) -> int:
    if type(value) is int:
        return _timestamp_int(value)
    if type(value) is datetime:
        return _timestamp_int(_micros(value))
    if type(value) is str:
        return _timestamp_json(value)
    raise BadValue(f"must be a timestamp, an integer of microseconds or an RFC 3339 string, not {_word(value)}")


def _timestamp_to_json(value: int) -> str:
    days, rest = divmod(value, _DAY_US)
    seconds, micros = divmod(rest, 1_000_000)
    return (_EPOCH + timedelta(days, seconds, micros)).isoformat() + "Z"


def _decimal(value: Any) -> str:
    if type(value) is int:
        if abs(value) >= 10**DECIMAL_DIGITS_MAX:
            raise BadValue(f"has more than {DECIMAL_DIGITS_MAX} digits")
        return str(value)
    if type(value) is not str:
        raise BadValue(f"must be a string such as \"12.50\", or an integer, not {_word(value)}")
    match = _DECIMAL.fullmatch(value) if len(value) <= 200 else None
    if match is None:
        raise BadValue('is not a decimal number such as "12.50"')
    sign, whole, fraction, exponent_text = match.groups()
    fraction = fraction or ""
    if not whole and not fraction:
        raise BadValue('is not a decimal number such as "12.50"')
    all_digits = (whole + fraction).lstrip("0")
    digits = all_digits.rstrip("0")
    if not digits:
        return "0"
    exponent = int(exponent_text or 0) - len(fraction) + len(all_digits) - len(digits)
    return _plain(("-" if sign == "-" else ""), digits, exponent)


def _plain(sign: str, digits: str, exponent: int) -> str:
    """`digits` times ten to the `exponent`, without an exponent. `digits` begins and ends with another digit than 0."""
    if len(digits) + max(exponent, 0) > DECIMAL_DIGITS_MAX or -exponent > DECIMAL_DIGITS_MAX:
        raise BadValue(f"has more than {DECIMAL_DIGITS_MAX} digits, or as many behind the point")
    if exponent >= 0:
        return sign + digits + "0" * exponent
    if -exponent < len(digits):
        return f"{sign}{digits[:exponent]}.{digits[exponent:]}"
    return f"{sign}0.{digits.rjust(-exponent, '0')}"


def _json(value: Any) -> Any:
    _check_json(value, JSON_DEPTH_MAX)
    return value


def _check_json(value: Any, levels: int) -> None:
    kind = type(value)
    if kind is str:
        _string(value)
    elif kind is int:
        if not INT64_MIN <= value <= _JSON_INT_MAX:
            raise BadValue("holds an integer of more than 64 bits")
    elif kind is float:
        if value - value != 0.0:
            raise BadValue("holds NaN or an infinity, which JSON cannot")
    elif kind is list or kind is dict:
        if levels == 0:
            raise BadValue(f"is nested deeper than {JSON_DEPTH_MAX} levels")
        if kind is dict:
            for name in value:
                if type(name) is not str:
                    raise BadValue(f"holds an object with {_word(name)} as a name")
                _string(name)
            value = value.values()
        for item in value:
            _check_json(item, levels - 1)
    elif kind is not bool and value is not None:
        raise BadValue(f"holds {_word(value)}, which JSON cannot")


def _bool_text(text: str) -> bool:
    if text not in ("true", "false"):
        raise BadValue("must be true or false")
    return text == "true"


def _int_text(parse: Callable[[Any], int]) -> Callable[[str], int]:
    def from_text(text: str) -> int:
        if len(text) > 20 or not _INTEGER.fullmatch(text):
            raise BadValue("must be an integer in range, in decimal digits")
        return parse(int(text))

    return from_text


def _float_text(parse: Callable[[Any], float]) -> Callable[[str], float]:
    def from_text(text: str) -> float:
        if text in _FLOAT_WORDS:
            return parse(_FLOAT_WORDS[text])
        if not _NUMBER.fullmatch(text):
            raise BadValue("must be a number")
        number = float(text)
        if number - number != 0.0:
            raise BadValue("is out of the range of float64")
        return parse(number)

    return from_text


_int64_text = _int_text(_int64)

TYPES: Final[dict[str, ColumnType]] = {
    kind.name: kind
    for kind in (
        ColumnType("bool", _bool, _bool, _bool_text),
        ColumnType("int32", _int32, _int32, _int_text(_int32)),
        ColumnType("int64", _int64_sent, _int64_sent, _int64_text),
        ColumnType("float32", _float32_json, _float32_native, _float_text(_float32_native), _float_to_json, _float_key),
        ColumnType("float64", _float64_json, _float64_native, _float_text(_float64_native), _float_to_json, _float_key),
        ColumnType("string", _string, _string, _string),
        ColumnType("bytes", _bytes_json, _bytes_native, _bytes_json, _bytes_to_json),
        ColumnType("timestamp", _timestamp_json, _timestamp_native, _timestamp_json, _timestamp_to_json),
        ColumnType("decimal", _decimal, _decimal, _decimal),
        ColumnType("json", _json, _json, None),
    )
}
