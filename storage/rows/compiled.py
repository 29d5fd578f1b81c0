"""Straight-line functions made for one schema: the hot inner part of codec.py and arrow.py.

The source that is compiled here holds nothing of a client but column names (schema.py allows letters, digits and _ only)
and column ids; values and functions come in by name. What always holds: a generated check only lets pass what the
column's reader (types.py) would return unchanged; everything else goes to the reader, which is the one rule.
Measured: a row of six columns encodes in two thirds of the time that a loop over its columns takes.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import msgspec

from storage.rows.schema import Column
from storage.rows.types import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, TYPES
from twinlog.decoding import UNDECODABLE
from twinlog.errors import LogError

CODES_MAX = 64  # tables of one shape share them; one of a table with 1,000 columns takes 325 kB

Reader = Callable[[Any], Any]
Row = dict[str, Any]

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[int, Any]).decode
_ABSENT = object()

# What passes without its reader, by type. A string that is no valid Unicode fails later, when it is encoded.
_PASSES = {
    "bool": "type({v}) is bool",
    "int32": f"type({{v}}) is int and {INT32_MIN} <= {{v}} <= {INT32_MAX}",
    "int64": f"type({{v}}) is int and {INT64_MIN} <= {{v}} <= {INT64_MAX}",
    "float64": "type({v}) is float and {v} - {v} == 0.0",
    "string": "type({v}) is str",
}
_SHOWN = {name: _PASSES[name] for name in ("bool", "int32", "int64")} | {  # what a database shows as it is
    "float64": "type({v}) is float", "string": "type({v}) is str and '\\0' not in {v}", "bytes": "type({v}) is bytes"
}
_PASSES_IN_KEY = {name: test for name, test in _PASSES.items() if name != "float64"}  # -0.0 must not


def row_encoder(
    keys: Sequence[Column], key_parts: Sequence[Callable[[Any], bytes]], values: Sequence[Column],
    readers: Mapping[str, Reader],
) -> Callable[[Row], tuple[bytes, bytes]]:
    """From a row that has every column of `keys` and `values` to (key, stored value).

    Raises KeyError when a column is absent, UnicodeEncodeError, and what `readers` (by column name) raise.
    """
    lines = [_read(column, _PASSES_IN_KEY) for column in keys] + [_read(column, _PASSES) for column in values]
    parts = " + ".join(f"p{i}(v{column.id})" for i, column in enumerate(keys))
    lines.append(f" return {parts}, pack({_map(values)})")
    names = {f"r{column.id}": readers[column.name] for column in (*keys, *values)}
    return _compile("def made(row):", lines, names | {f"p{i}": part for i, part in enumerate(key_parts)})


def value_encoder(values: Sequence[Column], readers: Mapping[str, Reader]) -> Callable[[Row], bytes]:
    """As `row_encoder`, for the stored value alone."""
    lines = [*(_read(column, _PASSES) for column in values), f" return pack({_map(values)})"]
    return _compile("def made(row):", lines, {f"r{column.id}": readers[column.name] for column in values})


def columns_encoder(values: Sequence[Column]) -> Callable[[Sequence[Sequence[Any]]], list[bytes]]:
    """From lists of stored values, one for each of `values` (at least one), to the stored value of each row."""
    targets = "".join(f"v{column.id}, " for column in values)
    line = f" return [pack({_map(values)}) for {targets}in zip(*lists, strict=True)]"
    return _compile("def made(lists):", [line], {})


def row_decoder(
    columns: Sequence[Column], key_names: Sequence[str], split_key: Callable[[bytes], Sequence[Any]], *, native: bool,
    int64_text: bool, damaged: Callable[[bytes, Exception], Exception],
) -> Callable[[bytes, bytes], Row]:
    """From (key, stored value) to {name: value} of `columns`, in their order. `native`: stored values as they are.

    `int64_text`: but those of int64 columns as decimal text. Raises what `damaged(key, error)` makes of bytes that no row has.
    """
    names: dict[str, Any] = {"split_key": split_key}
    items = []
    for column in columns:
        in_key = column.name in key_names
        if not in_key:
            names[f"d{column.id}"] = column.default
        source = f"key[{key_names.index(column.name)}]" if in_key else f"get({column.id}, d{column.id})"
        to_json = str if int64_text and column.type == "int64" else None if native else TYPES[column.type].to_json
        if to_json is not None:
            names[f"j{column.id}"] = to_json
            finite = " or v - v == 0.0" if column.type in ("float32", "float64") else ""
            source = f"v if (v := {source}) is None{finite} else j{column.id}(v)"
        items.append(f"{column.name!r}: {source}")
    lines = []
    if any(column.name in key_names for column in columns):
        lines.append("key = split_key(where)")
    if any(column.name not in key_names for column in columns):
        lines.append("get = unpack(value).get")
    lines.append(f"return {{{', '.join(items)}}}")
    return _compile("def made(where, value):", _guarded(lines, "damaged(where, error)"), names | {"damaged": damaged})


def cells_decoder(
    columns: Sequence[Column], key_names: Sequence[str], split_key: Callable[[bytes], Sequence[Any]],
    shows: Mapping[str, Reader],
) -> Callable[[bytes, bytes], tuple[Any, ...]]:
    """From (key, stored value) to what `shows` (by type) make of each of `columns`; None where a row has neither value nor
    default. What is of its type passes as it is, where a `show` would return it unchanged."""
    names: dict[str, Any] = {"split_key": split_key, **{f"s_{name}": show for name, show in shows.items()}}
    cells = []
    for column in columns:
        if column.name in key_names:
            source = f"key[{key_names.index(column.name)}]"
        else:
            source = f"get({column.id}, d{column.id})"
            names[f"d{column.id}"] = column.default
        passes = " or " + _SHOWN[column.type].format(v="v") if column.type in _SHOWN else ""
        cells.append(f"v if (v := {source}) is None{passes} else s_{column.type}(v), ")
    lines = ["key = split_key(key)", "get = unpack(value).get", f"return ({''.join(cells)})"]
    return _compile("def made(key, value):", _guarded(lines, "LogError(f'a row does not decode: {error}')"), names)


def _guarded(lines: Sequence[str], error: str) -> list[str]:
    """The lines in a `try` that costs nothing, for the bytes may be damaged: what is wrong with them is raised as `error`."""
    return [" try:", *(f"  {line}" for line in lines), " except UNDECODABLE as error:", f"  raise {error} from error"]


def stored_check(
    values: Sequence[Column], checks: Mapping[int, Callable[[Any], None]], others: Callable[[Mapping[int, Any]], str | None],
    *, whole: bool,
) -> Callable[[bytes], str | None]:
    """From a stored value to what is wrong with its form, or None. `checks`, by column id, raise for a value that its type does
    not leave as it is; `others` judges columns that are not among `values`. `whole`: every column that no reader could fill in
    is there. Raises what decoding raises. HOT."""
    lines = [" row = unpack(value)", " get = row.get", " n = 0"]
    for column in values:
        v = f"v{column.id}"
        passes = [f"{v} is None"] if column.nullable else []
        passes += [_PASSES[column.type].format(v=v)] if column.type in _PASSES else []
        guard = f"if not ({' or '.join(passes)}): " if passes else ""
        lines += [
            f" {v} = get({column.id}, absent)", f" if {v} is not absent:", "  n += 1", f"  {guard}c{column.id}({v})",
        ]
        if whole and not column.nullable and column.default is None:
            lines += [" else:", f"  return {f'holds a row without a value of column {column.id}, which has no default'!r}"]
    lines += [
        " if n != len(row):", "  problem = others(row)", "  if problem is not None: return problem",
        " if pack(row) != value: return 'holds a value that is not in its canonical form'",
    ]
    return _compile("def made(value):", lines, {"absent": _ABSENT, "others": others, **{f"c{n}": c for n, c in checks.items()}})


def _read(column: Column, passes: Mapping[str, str]) -> str:
    """Source that sets v{id} to the stored value of `column`."""
    v = f"v{column.id}"
    assign = f" {v} = row[{column.name!r}]\n"
    test = passes.get(column.type)
    if test is None:
        return f" {v} = r{column.id}(row[{column.name!r}])"
    return f"{assign} if not ({test.format(v=v)}): {v} = r{column.id}({v})"


def _map(values: Sequence[Column]) -> str:
    return f"{{{', '.join(f'{column.id}: v{column.id}' for column in values)}}}"


@lru_cache(maxsize=CODES_MAX)
def _code(source: str) -> CodeType:
    return compile(source, "<compiled row>", "exec")


def _compile(head: str, lines: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    namespace: dict[str, Any] = {**names, "pack": _pack, "unpack": _unpack, "UNDECODABLE": UNDECODABLE, "LogError": LogError}
    exec(_code("\n".join((head, *lines))), namespace)
    made: Callable[..., Any] = namespace.pop("made")  # else it holds itself until the collector looks at all
    return made
