"""Decodes bytes that come from outside or from a disk: whatever is wrong with them becomes one error, which the caller names.

msgspec has errors of its own for bytes of a wrong shape; a text that is no UTF-8 is a UnicodeDecodeError, what is nested too
deep a RecursionError, a number that nothing holds an OverflowError or ValueError. A handler of msgspec's alone misses those.

What always holds: no other place calls a decoder on such bytes, but wire/json_objects.py, and no other place handles its errors
(tests/tools/test_decoding_law.py).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from twinlog.errors import words

T = TypeVar("T")
UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, TypeError)
ErrorOf = Callable[[str], Exception]
OBJECT: Callable[[bytes | str], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode  # of JSON


def decoded(decode: Callable[[Any], T], data: Any, error: ErrorOf, *, shape: ErrorOf | None = None) -> T:
    """Returns `decode(data)`. Raises `error(what)`, with the problem in words. HOT.

    `shape(what)`, where it is given, is raised for bytes that are sound but of another kind.
    """
    try:
        return decode(data)
    except msgspec.ValidationError as bad:
        raise (shape or error)(words(bad)) from bad
    except UNDECODABLE as bad:
        raise error(words(bad)) from bad


def or_none(decode: Callable[[Any], T], data: Any) -> T | None:
    """Returns `decode(data)`, or None for bytes that do not decode."""
    try:
        return decode(data)
    except UNDECODABLE:
        return None
