"""The key codec: a primary key as bytes that compare as the typed values do.

| type | bytes |
|---|---|
| bool | 00 or 01 |
| int32, int64, timestamp | big endian, 4 or 8 bytes, sign bit flipped |
| float32, float64 | IEEE 754 big endian; a negative one has all bits flipped, another one the sign bit |
| string, bytes | UTF-8, or as it is, each 00 written as 00 FF; then 00 01 |
| decimal | sign 00, 01 (zero) or 02; exponent; two digits a byte as 1 to 100; then 00; flipped when negative |

What always holds: for the key columns of one table, `encode(a) < encode(b)` exactly when tuple `a < b`;
`decode(encode(a)) == a`; no key is a prefix of another key; the bytes of leading columns are a prefix of the whole key's,
so a range over leading columns is a range of bytes. Null and NaN never get here, -0.0 is 0.0 (types.py).
The text form, used in paths: parts as twinlog/key_text.py writes them, joined by commas. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from storage.rows.types import TYPES, ColumnType, invalid
from twinlog.errors import InvalidInput, TooLarge, TwinlogError, words
from twinlog.key_text import check_not_folded, part_from_path, part_to_path

KEY_BYTES_MAX = 1024
_SIGN32, _SIGN64 = 1 << 31, 1 << 63
_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")
_FLIP = bytes(255 - byte for byte in range(256))
_EXPONENT_BIAS = 64

PartEncoder = Callable[[Any], bytes]
PartDecoder = Callable[[bytes, int], tuple[Any, int]]


def _put_bool(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _get_bool(key: bytes, at: int) -> tuple[bool, int]:
    return key[at] != 0, at + 1


def _put_int32(value: int) -> bytes:
    return (value + _SIGN32).to_bytes(4, "big")


def _get_int32(key: bytes, at: int) -> tuple[int, int]:
    return _U32.unpack_from(key, at)[0] - _SIGN32, at + 4


def _put_int64(value: int) -> bytes:
    return (value + _SIGN64).to_bytes(8, "big")


def _get_int64(key: bytes, at: int) -> tuple[int, int]:
    return _U64.unpack_from(key, at)[0] - _SIGN64, at + 8


def _float_part(floats: struct.Struct, ints: struct.Struct) -> tuple[PartEncoder, PartDecoder]:
    size = floats.size
    sign, ones = 1 << (8 * size - 1), (1 << (8 * size)) - 1

    def put(value: float) -> bytes:
        bits = int.from_bytes(floats.pack(value), "big")
        return ints.pack(bits ^ ones if bits & sign else bits | sign)

    def get(key: bytes, at: int) -> tuple[float, int]:
        bits = ints.unpack_from(key, at)[0]
        return floats.unpack(ints.pack(bits ^ sign if bits & sign else bits ^ ones))[0], at + size

    return put, get


def _put_bytes(value: bytes) -> bytes:
    return (value.replace(b"\0", b"\0\xff") if 0 in value else value) + b"\0\1"


def _get_bytes(key: bytes, at: int) -> tuple[bytes, int]:
    end = key.index(b"\0\1", at)
    return key[at:end].replace(b"\0\xff", b"\0"), end + 2


def _put_string(value: str) -> bytes:
    return _put_bytes(value.encode())


def _get_string(key: bytes, at: int) -> tuple[str, int]:
    value, end = _get_bytes(key, at)
    return value.decode(), end


def _put_decimal(value: str) -> bytes:
    """`value` is canonical (types.py): 0.d1d2d3... times ten to the exponent, d1 not 0."""
    if value == "0":
        return b"\1"
    whole, _, fraction = value.lstrip("-").partition(".")
    whole = whole.lstrip("0")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) if whole else len(digits) - len(fraction)
    digits = digits.rstrip("0")
    padded = digits + "0" * (len(digits) & 1)
    pairs = bytes(int(padded[i : i + 2]) + 1 for i in range(0, len(padded), 2))
    body = bytes((exponent + _EXPONENT_BIAS,)) + pairs + b"\0"
    return b"\0" + body.translate(_FLIP) if value[0] == "-" else b"\2" + body


def _get_decimal(key: bytes, at: int) -> tuple[str, int]:
    sign = key[at]
    if sign == 1:
        return "0", at + 1
    end = key.index(b"\0" if sign else b"\xff", at + 2)
    body = key[at + 1 : end]
    if not sign:
        body = body.translate(_FLIP)
    digits = "".join(f"{pair - 1:02d}" for pair in body[1:])
    text = f"{'' if sign else '-'}0.{digits}e{body[0] - _EXPONENT_BIAS}"
    return TYPES["decimal"].from_json(text), end + 1


PARTS: dict[str, tuple[PartEncoder, PartDecoder]] = {
    "bool": (_put_bool, _get_bool),
    "int32": (_put_int32, _get_int32),
    "int64": (_put_int64, _get_int64),
    "float32": _float_part(_F32, _U32),
    "float64": _float_part(_F64, _U64),
    "string": (_put_string, _get_string),
    "bytes": (_put_bytes, _get_bytes),
    "timestamp": (_put_int64, _get_int64),
    "decimal": (_put_decimal, _get_decimal),
}


class KeyCodec:
    """The codec of one table's keys. `columns`: (name, type) in key order; values are stored values (types.py)."""

    def __init__(self, table: str, columns: Sequence[tuple[str, str]], bytes_max: int = KEY_BYTES_MAX) -> None:
        self.table = table
        self.names = tuple(name for name, _ in columns)
        self.types = tuple(type_name for _, type_name in columns)
        self.bytes_max = bytes_max
        kinds = [TYPES[type_name] for type_name in self.types]
        self._texts = [(name, _text_reader(kind), kind.key_value) for name, kind in zip(self.names, kinds, strict=True)]
        self.encoders = tuple(PARTS[type_name][0] for type_name in self.types)
        self._decoders = tuple(PARTS[type_name][1] for type_name in self.types)

    def encode(self, values: Sequence[Any]) -> bytes:
        """The key's bytes. Fewer values than key columns: the common prefix of all keys that begin with them.

        Raises TooLarge.
        """
        key = b"".join([put(value) for put, value in zip(self.encoders, values, strict=False)])
        if len(key) > self.bytes_max:
            raise self.too_large(len(key))
        return key

    def too_large(self, length: int) -> TooLarge:
        names = ", ".join(self.names)
        return TooLarge(
            f"a key ({names}) of table {self.table!r} takes {length} bytes; the limit is {self.bytes_max}",
            table=self.table, column=names, key_bytes=length, key_bytes_max=self.bytes_max,
        )

    def decode(self, key: bytes) -> tuple[Any, ...]:
        """The inverse of `encode` for a whole key. Raises TwinlogError when `key` is not one of this table."""
        values, at = [], 0
        try:
            for get in self._decoders:
                value, at = get(key, at)
                values.append(value)
        except (ValueError, IndexError, struct.error):
            at = -1
        if at != len(key):
            raise TwinlogError(
                f"a stored key of table {self.table!r} does not decode: {key[:64].hex()}", table=self.table, key=key.hex()
            )
        return tuple(values)

    def values_from_path(self, path: str) -> tuple[Any, ...]:
        """The values in `path` as it stands in the request line, still percent-encoded. All or only leading parts.

        Raises InvalidInput that names the column.
        """
        texts = path.split(",")
        if len(texts) > len(self.names):
            raise InvalidInput(
                f"the key of table {self.table!r} has {len(self.names)} parts ({', '.join(self.names)}), "
                f"but {len(texts)} came; a comma inside a part is written %2C",
                table=self.table, parts=len(texts),
            )
        values = []
        for (name, from_text, key_value), text in zip(self._texts, texts, strict=False):
            try:
                value = from_text(part_from_path(text))
                values.append(value if key_value is None else key_value(value))
            except ValueError as bad:
                raise invalid(name, words(bad)) from None
        return tuple(values)

    def key_from_path(self, path: str) -> bytes:
        """The whole key that `path` names. Raises InvalidInput (a missing part names its column; `.` and `..`), TooLarge."""
        check_not_folded(path)
        values = self.values_from_path(path)
        if len(values) < len(self.names):
            raise invalid(self.names[len(values)], "is missing from the key in the path")
        return self.encode(values)

    def prefix_from_path(self, path: str) -> bytes:
        """A bound of a scan: the prefix that `path`, with all or only leading parts, names."""
        return self.encode(self.values_from_path(path))

    def path_from_values(self, values: Sequence[Any]) -> str:
        """The text form of a key or of its leading parts."""
        return ",".join(map(_part_to_text, self.types, values))

    def path_from_key(self, key: bytes) -> str:
        """The text form of a stored key."""
        return self.path_from_values(self.decode(key))


def _text_reader(kind: ColumnType) -> Callable[[str], Any]:
    if kind.from_text is None:
        raise TwinlogError(f"a column of type {kind.name} cannot be part of a key")
    return kind.from_text


def _part_to_text(type_name: str, value: Any) -> str:
    if type_name == "bool":
        return "true" if value else "false"
    to_json = TYPES[type_name].to_json
    return part_to_path(str(value if to_json is None else to_json(value)))
