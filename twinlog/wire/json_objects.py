"""JSON objects and TOML tables from bytes, by the standard library: commands of a failover do not wait for msgspec.

This module is pure.
"""

from __future__ import annotations

import json
from typing import Any


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object that `data` is. Raises ValueError for everything else."""
    try:
        found = _DECODE(data.decode(json.detect_encoding(data), "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is no JSON object but {type(found).__name__}")
    return found


def toml_table(data: bytes) -> dict[str, Any]:
    """The table that a TOML file is. Raises ValueError for everything else."""
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODE = json.JSONDecoder(parse_constant=_no_number).decode  # as json.loads, which makes a decoder for each call
