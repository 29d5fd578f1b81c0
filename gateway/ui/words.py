"""The words and figures of the page, as `twinlog status` has them: what nobody knows is `unknown`, never 0."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from twinlog.cli.status import duration as duration_text
from twinlog.cli.status import size as size_text

UNKNOWN = "unknown"


class SentencePart(NamedTuple):
    """A piece of a sentence. `is_code`: it is to be typed, or is a name."""

    text: str
    is_code: bool


def number(value: Any, unit: str = "") -> str:
    """A count for people."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    if value == 1:
        unit = unit.removesuffix("s")
    return f"{value:,.0f}" + (f" {unit}" if unit else "")


def rate(value: float | None) -> str:
    """Per second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def size(value: float | None) -> str:
    return UNKNOWN if value is None else size_text(value)


def duration(value: float | None) -> str:
    """Seconds in words."""
    return UNKNOWN if value is None else duration_text(max(0.0, value))


def latency(value: float | None) -> str:
    """Seconds as milliseconds, with as many places as mean something."""
    if value is None:
        return "-"
    ms = value * 1000
    return f"{ms:.2f} ms" if ms < 1 else f"{ms:.1f} ms" if ms < 100 else f"{ms:,.0f} ms"


def age(value: float | None) -> str:
    """An age in whole seconds, so that a page does not change only because time passes."""
    if value is None:
        return UNKNOWN
    return "now" if value < 2 else f"{duration_text(float(round(value)))} ago".replace(".0 s", " s")


def moment(wall_ms: Any) -> str:
    """UTC, to the second."""
    if not isinstance(wall_ms, int):
        return UNKNOWN
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def parts(text: str) -> Iterator[SentencePart]:
    """Cuts a sentence at its backticks, between which stands what is to be typed."""
    for place, piece in enumerate(text.split("`")):
        if piece:
            yield SentencePart(piece, place % 2 == 1)


def command_in(text: str) -> str:
    """Returns the first command that a sentence names; empty: none."""
    return next((part.text for part in parts(text) if part.is_code and part.text.startswith("twinlog ")), "")
