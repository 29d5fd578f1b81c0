"""Reads the target of a request line: a path, or an address whose host stands in for Host.

Source: RFC 9112, section 3.2.

This module is pure.
"""

from __future__ import annotations

import re

_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]+)([/?#].*)?", re.DOTALL)


def read_target(method: bytes, target: bytes) -> tuple[bytes, bytes | None]:
    """Returns the path with its query, and the host that the target names; None where it names none.

    `/*` stands for the site as a whole, and is no path. Raises ValueError, whose text says what a target must be.
    """
    if target.startswith(b"/"):
        return target, None
    if target == b"*" and method == b"OPTIONS":
        return b"/*", None
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise ValueError("the target of a request begins with / or is a whole address, as http://HOST/PATH")
    host, rest = found[1], found[2] or b""
    if b"@" in host:
        raise ValueError("the target of a request names no user: leave out what stands before @")
    if not rest and method == b"OPTIONS":
        return b"/*", host
    return (rest if rest.startswith(b"/") else b"/" + rest), host
