"""Mutations: what an input becomes by chance, as bytes, or as the JSON or msgpack that it is.

What always holds: the same stream of chances gives the same bytes; no result is longer than BYTES_MAX.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

BYTES_MAX = 64 << 10
_EDGES = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_TEXTS = (
    "",
    "\0",
    " ",
    "a" * 300,
    "\u00e9",
    "\U0001f600",
    "..",
    "=",
    "%",
    "~",
    "'",
    '"',
    "\\",
    "-1",
    "1e999",
    "0" * 40,
    "null",
    "\n",
    "NaN",
    "9" * 5000,
    "2013-01-01T05:00:00Z",
    "2013-13-01T25:61:00+99:99",
    "AAE=",
    "0001-01-01T00:00:00+23:59",
    "\u2028",
    "0x1",
    "9999-12-31T23:59:59.999999-23:59",
    "1_0",
    "\u0661",
    "+1",
    "1.",
    ".5",
    "-0",
    "1e-400",
    "12.50",
    "x~1",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1 << 31,
    -(1 << 31) - 1,
    1 << 53,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 63,
    (1 << 64) - 1,
    0.5,
    -0.0,
    1e308,
    [],
    {},
    [[]],
    {"": None},
    [None] * 50,
    {"op": "=", "column": "note", "value": 1},
)
_JSON_VALUES: tuple[Any, ...] = (1 << 64, -(1 << 70), 10**400, float("inf"), float("nan"))
_MSGPACK_VALUES: tuple[Any, ...] = (
    b"",
    b"\0\xff" * 9,
    float("inf"),
    float("nan"),
    msgspec.msgpack.Ext(5, b"xy"),
    {1: 2},
    {None: 1},
    msgspec.msgpack.Ext(-1, b"\xff" * 12),
)
_DEPTHS = (5, 40, 200, 1200, 6000)


def mutated(chance: Random, data: bytes, other: bytes, structure: str) -> bytes:
    """`data` after one to four changes; parts of `other`, a second input, may come in. `structure`: json, msgpack, or
    nothing."""
    if structure and chance.random() < 0.6:
        changed = _restructured(chance, data, structure)
        if changed is not None:
            data = changed
            if chance.random() < 0.85:
                return data[:BYTES_MAX]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_BYTE_CHANGES)(chance, data, other)
    return data[:BYTES_MAX]


# ---- bytes
def _flip(chance: Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1 :]


def _set(chance: Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return bytes((chance.randrange(256),))
    at = chance.randrange(len(data))
    return data[:at] + bytes((chance.choice((0, 0xFF, 0x80, chance.randrange(256))),)) + data[at + 1 :]


def _edge(chance: Random, data: bytes, other: bytes) -> bytes:
    """A whole number of 1 to 8 bytes at some place becomes an extreme one, or a neighbour."""
    size = chance.choice((1, 2, 4, 8))
    if len(data) < size:
        return data
    at = chance.randrange(len(data) - size + 1)
    order: Any = chance.choice(("little", "big"))
    if chance.random() < 0.3:
        value = int.from_bytes(data[at : at + size], order) + chance.choice((-1, 1, -256, 256))
    else:
        value = chance.choice(_EDGES)
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, order) + data[at + size :]


def _cut(chance: Random, data: bytes, other: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _without(chance: Random, data: bytes, other: bytes) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + data[start + chance.choice((1, 2, 8, 60)) :]


def _twice(chance: Random, data: bytes, other: bytes) -> bytes:
    start = chance.randrange(len(data) + 1)
    part = data[start : start + chance.choice((1, 2, 16, 500))]
    return data[:start] + part * chance.choice((2, 3, 20)) + data[start:]


def _noise(chance: Random, data: bytes, other: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(chance.choice((1, 4, 20))) + data[at:]


def _spliced(chance: Random, data: bytes, other: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _moved(chance: Random, data: bytes, other: bytes) -> bytes:
    start, to = chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)
    part = data[start : start + chance.choice((1, 4, 16))]
    rest = data[:start] + data[start + len(part) :]
    return rest[:to] + part + rest[to:]


def _word(chance: Random, data: bytes, other: bytes) -> bytes:
    """A text that means something to some reader, or what opens a level, many times."""
    word = (
        chance.choice(_TEXTS).encode()
        if chance.random() < 0.7
        else chance.choice((b"[", b'{"a":', b"\x91", b"\x81\xa1a")) * chance.choice(_DEPTHS)
    )
    at = chance.randrange(len(data) + 1)
    return data[:at] + word + data[at + (len(word) if chance.random() < 0.5 else 0) :]


_BYTE_CHANGES: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    _flip,
    _flip,
    _set,
    _edge,
    _edge,
    _cut,
    _without,
    _twice,
    _noise,
    _spliced,
    _moved,
    _word,
)


# ---- structures
def _restructured(chance: Random, data: bytes, structure: str) -> bytes | None:
    """`data` with some of its parts replaced; None where it is none of that structure."""
    try:
        tree = msgspec.json.decode(data) if structure == "json" else msgspec.msgpack.decode(data, strict=False)
        for _ in range(chance.choice((1, 1, 2, 3))):
            tree = _changed(chance, tree, structure, chance.randrange(6))
        return dumped(tree) if structure == "json" else msgspec.msgpack.encode(tree)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def dumped(tree: Any) -> bytes:
    """JSON, also what is none by the book: infinities, endless numbers, and halves of surrogates."""
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _changed(chance: Random, node: Any, structure: str, levels: int) -> Any:
    """Goes down at most so many levels, and changes what is there."""
    if levels and isinstance(node, dict) and node:
        name = chance.choice(list(node))
        if chance.random() < 0.75:
            return {**node, name: _changed(chance, node[name], structure, levels - 1)}
        return _changed_members(chance, node, name, structure)
    if levels and isinstance(node, list) and node:
        at = chance.randrange(len(node))
        match chance.randrange(6):
            case 0:
                return node[:at] + node[at + 1 :]
            case 1:
                return node[:at] + [node[at]] * chance.choice((2, 2, 30)) + node[at + 1 :]
            case _:
                return [*node[:at], _changed(chance, node[at], structure, levels - 1), *node[at + 1 :]]
    return _value(chance, node, structure)


def _changed_members(chance: Random, node: dict[Any, Any], name: Any, structure: str) -> dict[Any, Any]:
    rest = {other: value for other, value in node.items() if other != name}
    match chance.randrange(4):
        case 0:
            return rest
        case 1:
            return {**node, chance.choice(_TEXTS)[:200]: _value(chance, None, structure)}
        case 2:
            return {**rest, chance.choice(_TEXTS)[:200]: node[name]}
        case _:
            return {**node, chance.choice(list(node)): node[name]}


def _value(chance: Random, old: Any, structure: str) -> Any:
    if type(old) is int and chance.random() < 0.4:
        return old + chance.choice((-1, 1, 1 << 20, -(1 << 40)))
    if isinstance(old, str) and old and chance.random() < 0.4:
        at = chance.randrange(len(old))
        return old[:at] + chance.choice(_TEXTS)[:400] + old[at + chance.randrange(2) :]
    if isinstance(old, bytes) and old and chance.random() < 0.6:
        return chance.choice(_BYTE_CHANGES)(chance, old, old)
    match chance.randrange(4):
        case 0:
            return chance.choice(_TEXTS)
        case 1:
            return chance.choice(_JSON_VALUES if structure == "json" else _MSGPACK_VALUES)
        case 2 if chance.random() < 0.3:
            nested: Any = old
            for _ in range(chance.choice(_DEPTHS[:4])):
                nested = [nested] if chance.random() < 0.5 else {"a": nested}
            return nested
        case _:
            return chance.choice(_VALUES)
