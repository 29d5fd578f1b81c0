"""One part of a key as it stands in a path: percent-encoded, or `=` and its base64url where a path would not keep that.

Clients and proxies fold a path: an empty segment, `.` and `..` go, also as `%2e`; some decode `%2F` before they do. A key that
looks like one would name another row, or its whole table. So a part is written as base64url when it is empty, begins with `=`,
holds a `%`, has such a segment between its slashes, or ends as an action does (`:check`); every other one is percent-encoded.

What always holds: `part_from_path(part_to_path(text)) == text` for every text; however often the written form is
percent-decoded, no segment in it is empty, `.` or `..`; a bare `=` in front is never part of the text (`%3D` is).
Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, unquote, unquote_to_bytes

from twinlog.errors import InvalidInput

MARK = "="
_FOLDED = re.compile(r"(?:\A|[/\\])\.{0,2}(?:[/\\]|\Z)|%|\A=|:[a-z]+\Z")
_BARE_STEP = re.compile(r"(?:\A|[/\\])((?:\.|%2[eE]){1,2})(?=[/\\]|\Z)|\A[/\\]|[/\\](?:[/\\]|\Z)")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")  # nothing folds it, and nothing of it is encoded
_STARTS = (".", "%")


def part_to_path(text: str) -> str:
    """The part as it stands in a path. Raises InvalidInput for a text that is no valid Unicode."""
    if _PLAIN.fullmatch(text) is not None:
        return text
    try:
        if _FOLDED.search(text) is None:
            return quote(text, safe=":")
        return MARK + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{text[:60]!r} cannot be part of a key: it is no valid Unicode ({error.reason})") from error


def part_from_path(part: str) -> str:
    """The inverse, also of parts that are only percent-encoded. Raises ValueError that says what is wrong with it. HOT."""
    if part[:1] == MARK:
        return _from_base64(part[1:])
    if "%" not in part:
        return part
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise ValueError("is not valid UTF-8 once percent-decoded") from None


def _from_base64(written: str) -> str:
    try:
        text = base64.b64decode(written + "=" * (-len(written) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        text = None
    if text is None or base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") != written:
        raise ValueError(
            "begins with a bare =, and is not the base64url (without padding) of a text in UTF-8 behind it; "
            "a = that belongs to the key is written %3D"
        )
    return text


def check_not_folded(path: str) -> None:
    """Raises InvalidInput for a whole key with a bare `.` or `..` between its slashes, percent-encoded or not, or with nothing
    there: what folds paths would make another key of it, or the table. An empty key without any slash passes. HOT."""
    if (path[:1] in _STARTS or "/" in path or "\\" in path) and (found := _BARE_STEP.search(path)) is not None:
        step, written = unquote(found[1] or ""), ",".join(map(_unfolded, path.split(",")))
        shown = f"has {step!r} between its slashes" if step != unquote(path) else f"is {step!r}"
        raise InvalidInput(
            f"the key in the path {shown}, which clients and proxies take for a step in the path: write it as "
            f"{written[:200]} (a = and the base64url of the text)", key=unquote(path)[:200], write=written[:200],
        )


def _unfolded(part: str) -> str:
    try:
        return part_to_path(part_from_path(part))
    except ValueError:  # its reader says what is wrong with it
        return part
